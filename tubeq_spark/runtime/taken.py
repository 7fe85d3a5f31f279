"""The result of a take: its rows, or a leased batch whose rows were not read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tubeq_spark.rules.lease_times import is_mostly_left
from tubeq_spark.rules.lifecycle import due
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.row_changes import Renew
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext

__all__ = ["LeasedBatch", "TakenRows", "TaskRows"]


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """A leased batch: tasks of one take whose rows were not read.

    Attributes:
        take_id: The number of the take: the segment that its tasks were moved to first.
        segment: Where they are.
        lease: Their leases, and who holds them.
        count: How many tasks it holds.
        ttr: The shortest of their ttrs, in microseconds; `None` is unlimited.
    """

    take_id: int
    segment: int
    lease: NewLease
    count: int
    ttr: int | None

    @property
    def until(self) -> int | None:
        """The end of the first lease, in microseconds; `None` is never."""
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

    def found(self, ctx: TubeContext) -> tuple[LeasedBatch | None, list[int]]:
        """The remaining tasks and their segments, after others took some of them."""
        segments = ctx.tasks.lease_segments_of(self.take_id, self.lease.owner)
        return (self, segments) if segments else (None, [])

    def renewed(self, ctx: TubeContext, dest: int, renewal: Renew) -> LeasedBatch | None:
        """The batch after its leases were renewed, in the segment that it was moved to."""
        lease = renewal.lease
        count = ctx.tasks.count_of(self.take_id, lease.owner)
        return replace(self, segment=dest, lease=lease, count=count) if count else None


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Tasks whose rows were read, in the tube's order.

    Attributes:
        rows: They.
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
    """The taken rows of one call, as the take has left them.

    Attributes:
        lease: Their leases, and who holds them.
    """

    lease: NewLease

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

    def found(self, ctx: TubeContext) -> tuple[TakenRows | None, list[int]]:
        """The remaining tasks and their segments, after others took some of them."""
        take_ids = {row.task_id: row.take_id for row in self.rows}
        rows = {
            row.task_id: row
            for row in ctx.tasks.by_ids(take_ids)
            if row.state is TaskState.TAKEN
            and row.owner == self.lease.owner
            and row.take_id == take_ids[row.task_id]
        }
        left = replace(self, rows=[rows[i] for i in take_ids if i in rows])
        return (left, left.segments) if rows else (None, [])

    def renewed(self, ctx: TubeContext, dest: int, renewal: Renew) -> TakenRows | None:
        """The rows after their leases were renewed, in the segment that they were moved to."""
        rows = []
        for row in self.rows:
            after = renewal.of(row)
            if after is None:
                ctx.remember("ttl", [row.task(TaskState.DONE)])
            else:
                rows.append(replace(after, segment=dest))
        return TakenRows(rows, renewal.lease) if rows else None
