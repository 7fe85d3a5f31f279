"""The result of a take: its rows, or a leased batch whose rows were not read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from tubeq_spark.model.states import due
from tubeq_spark.model.takes import is_mostly_left
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import SettleRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
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

    def renewed(
        self, dest: int, lease: NewLease, _clauses: Sequence[Clause], removed: int
    ) -> LeasedBatch:
        """The batch after a renewal, which has moved it to a segment, and has removed some tasks."""
        return replace(self, segment=dest, lease=lease, count=self.count - removed)


@dataclass(frozen=True, slots=True)
class TakenRows:
    """The rows of the tasks that one call has taken, as after its take, in the tube's order.

    Attributes:
        rows: The rows.
        lease: Their leases, and who holds them.
        sizes: The number of rows with which the take has written each segment, if that is known.
        shares_segments: Whether tasks of several calls may be in one segment.
    """

    shares_segments: ClassVar[bool] = True

    rows: list[StoredTask]
    lease: NewLease
    sizes: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of tasks."""
        return len(self.rows)

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

    def renewed(
        self, dest: int, lease: NewLease, clauses: Sequence[Clause], _removed: int
    ) -> TakenRows:
        """The rows after a renewal by some clauses, which has moved them to a segment."""
        return TakenRows(
            [replace(row, segment=dest) for row in rows_after(clauses, self.rows)], lease
        )
