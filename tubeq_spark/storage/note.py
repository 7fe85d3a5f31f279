"""The note of a commit: which verb has made it, whose, and on what its decision rests. Only this module writes and reads it.

The note is a line of text. A commit of the native engine and an append of Spark have it in their user metadata, a MERGE
or a DELETE of Spark in its predicate.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.arguments import TakeRequest

#: Operations that add tasks.
PUTS = frozenset({"put", "urgent"})
#: The last version of each table that the running attempt of a verb has read.
versions_read: ContextVar[dict[str, int]] = ContextVar("tubeq_versions_read")
#: The columns of DESCRIBE HISTORY that `read_commit` reads, beside `timestamp`.
HISTORY = ("version", "operation", "userMetadata", "operationParameters", "operationMetrics")
#: So many of the newest commits are searched for a write.
NEWEST = 10
#: The operations, by the names of both engines, of commits around VACUUM, which write no rows.
_CLEANING = frozenset(
    {"SET TBLPROPERTIES", "SET TABLE PROPERTIES", "VACUUM START", "VACUUM END", "METADATA CLEANUP"}
)
#: The metrics of inserted, updated and deleted rows, by the names of both engines.
_METRICS = (
    ("numTargetRowsInserted", "numOutputRows", "num_added_rows"),
    ("numTargetRowsUpdated", "numUpdatedRows"),
    ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows"),
)


@dataclass(frozen=True, slots=True)
class Note:
    """The note of a commit.

    Attributes:
        operation: The verb, or the step of a sweep or a session.
        session: The session that commits.
        conflicts: The number of lost conflicts before it.
        tasks: The number of its tasks; `None`: the number of rows that the statement changes.
        at_us: The moment of the decision, by the clock of the queue; `None` if it does not depend on the time.
        base: The version that the decision has read last; `None` if it has read none, and on Spark.
        asked: What the calls of a take asked for, as `asked_by` writes it.
        changed: The numbers of changed rows; `None` if only the history has them.
        operation_id: A number that only this commit has; 0 if nobody looks for it.
    """

    operation: str
    session: str = ""
    conflicts: int = 0
    tasks: int | None = None
    at_us: int | None = None
    base: int | None = None
    asked: str = ""
    changed: Affected | None = None
    operation_id: int = 0

    def __str__(self) -> str:
        changed = self.changed
        fields = {
            "tasks": self.tasks,
            "at": self.at_us,
            "base": self.base,
            "asked": self.asked or None,
            "changed": changed and f"{changed.inserted}/{changed.updated}/{changed.deleted}",
            "marker": self.operation_id or None,
        }
        begin = (
            f"tubeq operation={self.operation} session={self.session} conflicts={self.conflicts}"
        )
        return begin + "".join(f" {name}={of}" for name, of in fields.items() if of is not None)

    def after(self, affected: Affected) -> Note:
        """The note with the rows that its commit changes."""
        tasks = affected.total if self.tasks is None else self.tasks
        return replace(self, tasks=tasks, changed=affected)


def new_operation_id() -> int:
    """A number that no other commit has, whatever a program does with its random numbers."""
    return secrets.randbits(62) + 1


def asked_by(requests: Sequence[TakeRequest]) -> str:
    """What the calls of a take ask for, in their order: the most tasks, and the most of one sub-queue.

    A call that names its sub-queues has their number as well, and not their names, which may be long.
    """
    return ",".join(
        f"{request.count}/{request.per_utube}"
        + ("" if request.utubes is None else f"/{len(request.utubes)}")
        for request in requests
    )


def pattern_of(field: str) -> str:
    """The pattern of a field's value, as its first group, in a text with a note."""
    return rf"tubeq (?:\w+=[\w/,-]* )*?{field}=([\w/,-]*)"


def note_in(text: str) -> Note | None:
    """The note in a text; `None` if it has none."""

    def value(field: str) -> str:
        found = re.search(pattern_of(field), text)
        return "" if found is None else found[1]

    def number(field: str) -> int | None:
        found = value(field)
        return int(found) if found else None

    if not value("operation"):
        return None
    changed = value("changed")
    return Note(
        value("operation"),
        value("session"),
        number("conflicts") or 0,
        number("tasks"),
        number("at"),
        number("base"),
        value("asked"),
        Affected(*map(int, changed.split("/"))) if changed else None,
        number("marker") or 0,
    )


def text_with_note(commit: Mapping[str, Any]) -> str:
    """The text of a commit in the history, of either engine, that may have a note."""
    # Commits of the native engine have a predicate, too, but their note is in the user metadata, as in Spark's appends.
    metadata = commit.get("userMetadata") or ""
    predicate = (commit.get("operationParameters") or {}).get("predicate") or ""
    return str(metadata if metadata.startswith("tubeq ") else predicate)


def is_of(commit: Mapping[str, Any], operation_id: int) -> bool:
    """Whether a commit in the history, of either engine, has an operation id."""
    found = re.search(pattern_of("marker"), text_with_note(commit))
    return found is not None and found[1] == str(operation_id)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit in the history of a table.

    Attributes:
        version: Its version.
        at_us: Its time, by the storage's clock.
        operation: The verb, or the step of a sweep or a session; `None` for a commit of Delta's own.
        session: The session that has committed; `None` if there is none, or if `operation` is `None`.
        tasks: The number of changed tasks; `None` if the commit does not have it.
        conflicts: The number of attempts that lost a conflict before; `None` if `operation` is `None`.
        statement: Delta's name of the operation.
        affected: The numbers of inserted, updated and deleted rows; `None` if the commit does not have them.
    """

    version: int
    at_us: int
    operation: str | None
    session: str | None
    tasks: int | None
    conflicts: int | None
    statement: str | None
    affected: Affected | None


def read_commit(row: Mapping[str, Any]) -> Commit:
    """Parse a commit from a row of the history: the columns of DESCRIBE HISTORY, with the timestamp in microseconds."""
    note, affected = note_in(text_with_note(row)), _changed_by(row)
    if note is not None:
        affected = note.changed or affected
    tasks = None if affected is None else affected.total
    return Commit(
        int(row["version"]),
        int(row["timestamp"]),
        None if note is None else note.operation,
        None if note is None else note.session or None,
        tasks if note is None or note.tasks is None else note.tasks,
        None if note is None else note.conflicts,
        row["operation"],
        affected,
    )


def _changed_by(commit: Mapping[str, Any]) -> Affected | None:
    """The numbers of changed rows by the metrics of a commit; `None` if it has none."""
    metrics = commit.get("operationMetrics") or {}
    if not any(name in metrics for names in _METRICS for name in names):
        return None
    return Affected(
        *(next((int(metrics[n]) for n in names if n in metrics), 0) for names in _METRICS)
    )


def newest_write(commits: Sequence[tuple[str | None, int]]) -> int:
    """The time of the last commit to a table that is not one of VACUUM.

    Args:
        commits: The operations and moments of the newest commits, the newest first; at least one.

    Returns:
        The moment of the newest write. If all commits are of VACUUM, the moment of the oldest one.
    """
    written = (at for operation, at in commits if operation not in _CLEANING)
    return next(written, commits[-1][1])
