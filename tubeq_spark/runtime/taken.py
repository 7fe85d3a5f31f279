"""The result of a take: its rows, or a leased batch whose rows were not read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from tubeq_spark.model.states import due
from tubeq_spark.model.takes import is_mostly_left
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import SettleRow
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Clause


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """A leased batch: tasks of one take whose rows were not read.

    Attributes:
        take_id: The number of the take: the first segment to which it moved its tasks.
        segment: The segment in which they are now.
        lease: Their leases, and who holds them.
        count: How many tasks it holds.
        ttr: The shortest of their ttrs, in microseconds; `None` if unlimited.
        shares_segments: Whether tasks of several calls may be in one segment.
    """

    shares_segments: ClassVar[bool] = False

    take_id: int
    segment: int
    lease: NewLease
    count: int
    ttr: int | None

    @property
    def until(self) -> int | None:
        """The end of the first lease, in microseconds; `None` if it never ends."""
        return self.lease.end(self.ttr)

    @property
    def segments(self) -> list[int]:
        """The segments of its tasks."""
        return [self.segment]

    @property
    def take_ids(self) -> set[int]:
        """The take ids under which they are held."""
        return {self.take_id}

    def lasts(self, now_us: int) -> bool:
        """Whether no lease has ended."""
        return not due(self.until, now_us)

    def is_fresh(self, now_us: int) -> bool:
        """Whether most of each ttr is left."""
        return is_mostly_left(self.until, self.ttr, now_us)

    def source(self) -> list[SettleRow]:
        """The source rows of a statement that changes all of its tasks."""
        return [SettleRow(self.segment, None)]

    def found(self, ctx: TubeContext) -> LeasedBatch | None:
        """The batch, after others took some of its tasks; `None` if none is left."""
        segments = ctx.reader.lease_segments(self.take_id, self.lease.owner)
        return replace(self, segment=segments[0]) if segments else None

    def renewed(
        self, ctx: TubeContext, dest: int, lease: NewLease, _clauses: Sequence[Clause]
    ) -> LeasedBatch | None:
        """The batch after a renewal, in the segment to which it was moved."""
        count = ctx.reader.count(ctx.table.is_held(lease.owner, [self.take_id]))
        return replace(self, segment=dest, lease=lease, count=count) if count else None


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Tasks whose rows were read, in the tube's order.

    Attributes:
        rows: The rows.
    """

    rows: list[StoredTask]

    @property
    def count(self) -> int:
        """The number of tasks."""
        return len(self.rows)

    @property
    def segments(self) -> list[int]:
        """The segments of the tasks."""
        return sorted({row.segment for row in self.rows})


@dataclass(frozen=True, slots=True)
class TakenRows(TaskRows):
    """The rows of the tasks that one call has taken, as after its take.

    Attributes:
        lease: Their leases, and who holds them.
        sizes: The number of rows with which the take has written each segment, if that is known.
        shares_segments: Whether tasks of several calls may be in one segment.
    """

    shares_segments: ClassVar[bool] = True

    lease: NewLease
    sizes: Mapping[int, int] = field(default_factory=dict)

    @property
    def take_ids(self) -> set[int]:
        """The take ids under which they are held."""
        return {row.take_id for row in self.rows if row.take_id is not None}

    def lasts(self, now_us: int) -> bool:
        """Whether no lease has ended."""
        return not any(due(row.next_event, now_us) for row in self.rows)

    def is_fresh(self, now_us: int) -> bool:
        """Whether most of each ttr is left."""
        return all(is_mostly_left(row.next_event, row.ttr, now_us) for row in self.rows)

    def source(self) -> list[SettleRow]:
        """The source rows of a statement that changes these tasks."""
        return [SettleRow(row.segment, row.task_id) for row in self.rows]

    def found(self, ctx: TubeContext) -> TakenRows | None:
        """The remaining tasks, after others took some of them; `None` if none is left."""
        take_ids = {row.task_id: row.take_id for row in self.rows}
        rows = {
            row.task_id: row
            for row in ctx.reader.by_ids(take_ids)
            if row.state is TaskState.TAKEN
            and row.owner == self.lease.owner
            and row.take_id == take_ids[row.task_id]
        }
        return replace(self, rows=[rows[i] for i in take_ids if i in rows]) if rows else None

    def renewed(
        self, ctx: TubeContext, dest: int, lease: NewLease, clauses: Sequence[Clause]
    ) -> TakenRows | None:
        """The rows after a renewal by some clauses, in the segment to which they were moved."""
        rows = [replace(row, segment=dest) for row in rows_after(clauses, self.rows)]
        left = {row.task_id for row in rows}
        ended = [row for row in self.rows if row.task_id not in left]
        ctx.queue_event("ttl", [row.task(TaskState.DONE) for row in ended])
        return TakenRows(rows, lease) if rows else None
