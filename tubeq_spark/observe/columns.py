"""The columns of tables about tubes, sessions, sub-queues and commits, for terminals and for pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import from_us
from tubeq_spark.markup import Age

if TYPE_CHECKING:
    import datetime as dt

    from tubeq_spark.model.reports import SessionInfo, UtubeCounts

#: The value of a column: the path of an attribute of a row, or a function of the row.
Column = str | Callable[[Any], Any]
#: Columns by their headings.
Columns = Mapping[str, Column]

#: The states of stored tasks, in the order of columns.
STATES = ("ready", "taken", "delayed", "buried")


def value_of(row: object, column: Column) -> Any:
    """The value of a column in a row."""
    return attrgetter(column)(row) if isinstance(column, str) else column(row)


def _age(path: str) -> Column:
    read = attrgetter(path)
    return lambda row: Age.of(read(row))


def _per_second(name: str) -> Column:
    return lambda tube: None if tube.flow is None else getattr(tube.flow, name)


#: The columns of a `TubeSnapshot`.
_OF_TUBES: Columns = {
    "tube": "name",
    "type": "metrics.type",
    **{state: f"metrics.{state}" for state in STATES},
    "oldest": _age("metrics.oldest_ready_age"),
    "done": "metrics.done",
    "added/s": _per_second("added"),
    "done/s": _per_second("done"),
    "failing": "metrics.failing_workers",
    "ending": "metrics.leases_ending",
    "unswept": "metrics.unswept",
    "since": _age("metrics.unswept_age"),
    "commits": "metrics.commits",
    "log": "metrics.log_commits",
    "files": "metrics.files",
    "bytes": "metrics.size_bytes",
    "paused": lambda tube: "paused" if tube.metrics.paused else "",
}
#: The columns of a commit.
COMMITS: Columns = {
    "version": "version",
    "at": lambda commit: from_us(commit.at_us),
    **{name: name for name in ("operation", "tasks", "conflicts", "session", "statement")},
}


def of_tubes(names: str) -> Columns:
    """Some columns of a `TubeSnapshot`, by their names with spaces between them."""
    return {name: _OF_TUBES[name] for name in names.split()}


def sessions(now: dt.datetime) -> Columns:
    """The columns of `SessionInfo`, with ages at a moment."""

    def lease(info: SessionInfo) -> object:
        if info.until is None:
            return "never"
        left = (info.until - now).total_seconds()
        return Age(left) if left > 0 else f"ended {Age(-left)} ago"

    return {
        "session": lambda info: str(info.uuid),
        "host": "host",
        "pid": lambda info: str(info.pid),
        "open for": lambda info: Age((now - info.since).total_seconds()),
        "lease ends in": lease,
        "holds": "holds",
        "of": lambda info: ", ".join(f"{tube}: {n:,}" for tube, n in info.tubes.items()),
    }


def utubes(now: dt.datetime) -> Columns:
    """The columns of `UtubeCounts`, with ages at a moment."""

    def age(counts: UtubeCounts) -> Age:
        return Age((now - counts.oldest).total_seconds())

    return {"utube": lambda row: utube(row.utube), **{of: of for of in STATES}, "oldest": age}


def utube(name: str | None) -> str | None:
    """The name of a sub-queue; an empty cell stands for the tasks that were put without one."""
    return '""' if name == "" else name
