"""The rows of a tube's tasks that a commit changed, and the rules of one task.

The rules say which change of its row each operation may make, at which moment, and who may make it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.expression import all_of, row
from tubeq_spark.storage.statement import PUTS, TAKES
from tubeq_spark.storage.tables.schema import TUBE_TYPES
from tubeq_spark.storage.tables.tube_table import GONE, SEGMENT_0

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.storage.statement import Note

_ROW = row()


class Row(NamedTuple):
    """A row of a task; moments are microseconds, and durations, too."""

    segment: int
    tube: int
    task_id: int
    state: str
    pri: int
    rank: int | None
    utube: str | None
    created: int
    ttl: int | None
    ttr: int | None
    next_event: int | None
    expires_at: int | None
    owner: str | None
    attempts: int
    since: int | None
    unique: str | None

    @property
    def session(self) -> str:
        """The session that holds it, or last held it."""
        return (self.owner or "").partition("/")[0]

    def is_alive(self, at_us: int) -> bool:
        """Whether its ttl has not ended at a moment."""
        return self.expires_at is None or self.expires_at > at_us

    def is_due(self, at_us: int) -> bool:
        """Whether its lease or its delay has ended at a moment."""
        return self.next_event is not None and self.next_event <= at_us

    def is_lasting(self, at_us: int) -> bool:
        """Whether it is taken by a lease that lasts at a moment."""
        return self.state == "t" and not self.is_due(at_us)


#: The columns of a tube that the rules read; moments are microseconds.
SCHEMA = pa.schema(
    [(name, pa.string() if TUBE_TYPES[name] == "STRING" else pa.int64()) for name in Row._fields]
)


def rows_of(table: pa.Table) -> Iterator[Row]:
    """The rows of a table with the columns of `SCHEMA`."""
    return map(Row._make, zip(*(column.to_pylist() for column in table.columns), strict=True))


def tasks_of(table: pa.Table) -> pa.Table:
    """The rows of tasks: without gates, tombstones, and rows of tasks that have ended."""
    return matching(table, all_of(_ROW.tube > 0, _ROW.segment != SEGMENT_0, _ROW.state != GONE))


def changed(before: pa.Table, after: pa.Table) -> tuple[list[Row], list[Row]]:
    """The rows that a commit removed, and those that it added. A row that it only wrote again is in neither.

    Args:
        before: The rows of tasks in the files that it removed.
        after: The rows of tasks in the files that it added.
    """
    there, then = Counter(rows_of(before)), Counter(rows_of(after))
    return [*(there - then).elements()], [*(then - there).elements()]


# -- the rules of one task ----------------------------------------------------------------------------

#: Operations that remove tasks without a condition: a program has asked for it.
_REMOVES = {"delete", "truncate", "drop", "repair"}
#: Operations of the session that holds the task, and of no other one.
_OF_HOLDER = {"touch", "renew", "give_back", "requeue"}
#: Operations by which the session that holds a task ends it.
_ENDS = {"ack", "exchange", "done"}
#: The columns of a task that never change.
_LASTING = ("tube", "utube", "created", "unique")
#: The state of a task after an operation other than a take, by the state before it.
_STEPS = {
    "touch": {"tt"},
    "renew": {"tt"},
    "give_back": {"tr"},
    "release": {"tr", "t~", "t!"},
    "requeue": {"tr", "t!"},
    "bury": {"r!", "t!", "~!", "!!"},
    "kick": {"!r"},
    "end_due": {"tr", "t!", "t~", "~r"},
}


def fault_of_step(note: Note, before: Row | None, after: Row | None) -> str | None:
    """Why a commit may not have changed a row in this way; `None` if it may.

    Args:
        note: The note of the commit.
        before: The row before it; `None` if it adds the task.
        after: The row after it; `None` if it removes the task.
    """
    if after is None:
        return None if before is None else _fault_of_end(note, before)
    if before is None:
        return _fault_of_put(note, after)
    # A task that only moves to another segment stays as it is.
    is_moved = after == before._replace(segment=after.segment)
    return None if is_moved else _fault_of_step(note, before, after)


def _fault_of_step(note: Note, before: Row, after: Row) -> str | None:
    if any(getattr(before, name) != getattr(after, name) for name in _LASTING):
        return "became another task"
    if note.operation in TAKES and after.state == "t":
        return _fault_of_take(note, before, after)
    if before.state + after.state not in _STEPS.get(note.operation, ()):
        return f"became {after.state!r} from {before.state!r}"
    if note.operation == "end_due" and not before.is_due(note.at_us or 0):
        return f"became {after.state!r} before its time"
    return _fault_of_holder(note, before) if note.operation in _OF_HOLDER else None


def _fault_of_put(note: Note, after: Row) -> str | None:
    if note.operation not in PUTS:
        return "came from nowhere"
    if after.state not in "r~" or after.attempts:
        return f"began as {after.state!r} after {after.attempts} attempts"
    return None


def _fault_of_end(note: Note, before: Row) -> str | None:
    if note.operation in _REMOVES or not before.is_alive(note.at_us or 0):
        return None
    if note.operation not in _ENDS:
        return "was lost"
    if before.state != "t":
        return f"was acked, but it was {before.state!r}"
    return _fault_of_holder(note, before)


def _fault_of_take(note: Note, before: Row, after: Row) -> str | None:
    at_us = note.at_us or 0
    if before.is_lasting(at_us):
        return f"was taken from {before.session}, whose lease lasted until {before.next_event}"
    is_ready = before.state == "r" or (before.state in "~t" and before.is_due(at_us))
    if not is_ready:
        return f"was taken, but it was {before.state!r}"
    if not before.is_alive(at_us):
        return "was taken after its ttl"
    if after.session != note.session:
        return f"was taken for {after.session} by {note.session}"
    if after.attempts != before.attempts + 1:
        return f"has {after.attempts} attempts after {before.attempts}"
    return None


def _fault_of_holder(note: Note, before: Row) -> str | None:
    if before.session != note.session:
        return f"was changed by {note.session}, but {before.session} held it"
    # A slow take gives its tasks back also after the ends of their leases, until another session has them.
    if note.operation != "give_back" and before.is_due(note.at_us or 0):
        return f"was changed by {note.session} after its lease had ended"
    return None
