"""The rows of a tube's tasks that a commit changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.columns import array, repeated
from tubeq_spark.storage.tables.schema import TUBE_TYPES
from tubeq_spark.storage.tables.tube_table import SEGMENT_0
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The states of tasks that have not ended.
_STATES = array([state.value for state in TaskState if state is not TaskState.DONE], pa.string())


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
    is_task = pc.and_(
        pc.and_(pc.greater(table["tube"], 0), pc.not_equal(table["segment"], SEGMENT_0)),
        pc.is_in(table["state"], value_set=_STATES),
    )
    return table.filter(is_task)


def changed(before: pa.Table, after: pa.Table) -> tuple[list[Row], list[Row]]:
    """The rows that a commit removed, and those that it added. A row that it only wrote again is in neither.

    Args:
        before: The rows of tasks in the files that it removed.
        after: The rows of tasks in the files that it added.
    """
    counted = [
        rows.append_column("n", repeated(n, pa.int64(), rows.num_rows))
        for rows, n in ((before, -1), (after, 1))
    ]
    net = pa.concat_tables(counted).group_by(SCHEMA.names, use_threads=False)
    removed, added = list[Row](), list[Row]()
    table = net.aggregate([("n", "sum")]).select([*SCHEMA.names, "n_sum"])
    for *values, n in zip(*(column.to_pylist() for column in table.columns), strict=True):
        (added if n > 0 else removed).extend([Row._make(values)] * abs(n))
    return removed, added
