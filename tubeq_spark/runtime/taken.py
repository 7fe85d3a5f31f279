"""The tasks that one call has taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model.states import due
from tubeq_spark.model.takes import is_mostly_left
from tubeq_spark.storage.rows import places_of, whole_segments

if TYPE_CHECKING:
    import pyarrow as pa

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease


@dataclass(frozen=True, slots=True)
class Taken:
    """The tasks of one call, all in one lease segment: their rows, or a batch whose rows were not read.

    Attributes:
        take_id: The number of their take.
        segment: Their lease segment. Only that of a batch has no tasks of other calls.
        lease: Their leases, and who holds them.
        count: The number of tasks.
        ttr: The shortest of their ttrs, in microseconds; `None` if all are unlimited.
        rows: Their rows, as after the take, in the tube's order; `None` for a batch.
        size: The number of rows with which the take has written the segment; `None` if it is not known.
    """

    take_id: int
    segment: int
    lease: NewLease
    count: int
    ttr: int | None
    rows: list[StoredTask] | None = None
    size: int | None = None

    @classmethod
    def of_rows(cls, rows: list[StoredTask], lease: NewLease, size: int | None = None) -> Taken:
        """Some rows of one take, at least one."""
        first, ttrs = rows[0], [row.ttr for row in rows if row.ttr is not None]
        shortest = min(ttrs, default=None)
        return cls(first.take_id or 0, first.segment, lease, len(rows), shortest, rows, size)

    @property
    def until(self) -> int | None:
        """The end of the first lease, in microseconds; `None` if it never ends."""
        return self.lease.end(self.ttr)

    def lasts(self, now_us: int) -> bool:
        """Whether no lease has ended."""
        return not due(self.until, now_us)

    def is_fresh(self, now_us: int) -> bool:
        """Whether most of each ttr is left."""
        return is_mostly_left(self.until, self.ttr, now_us)

    def source(self) -> pa.Table:
        """The source rows of a statement that changes these tasks."""
        return whole_segments([self.segment]) if self.rows is None else places_of(self.rows)
