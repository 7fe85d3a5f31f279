"""The chosen tasks of a take: as rows, or as segments with only the counts read.

`ChosenRows` and `ChosenSegments` have the same methods, so takes of single tasks and of batches use one
algorithm. The methods return the number of tasks, their segments, and the result of a call after the
statement has moved them. The result is the chosen tasks or, if other commits moved some of them first, the
rows that are read back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from tubeq_spark.model.tube_types import position_of
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows, TaskRows
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.bury_unreadable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import SegmentSelection
    from tubeq_spark.verbs.quotas import Quotas

    #: Maps a task's sub-queue and position in the order to its lease segment and take id.
    Destination: TypeAlias = Callable[[str | None, OrderPosition], tuple[int, int]]

T = TypeVar("T")


class ChosenTasks(Protocol[T]):
    """The chosen tasks of a take; `T` is the result of one call."""

    @classmethod
    def first(
        cls, ctx: TubeContext, where: Expression, count: int, *, whole_utubes: bool = False
    ) -> Self:
        """Choose the first tasks in the order that match a condition; `whole_utubes` as for `TubeReader.first`."""
        ...

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, quotas: Quotas) -> Self:
        """Choose the first tasks of some sub-queues."""
        ...

    @property
    def count(self) -> int:
        """The number of tasks."""
        ...

    @property
    def segments(self) -> list[int]:
        """The segments of the tasks."""
        ...

    @property
    def in_lease_segment(self) -> bool:
        """Whether some tasks have ended leases, which must be written before the tasks are taken."""
        ...

    @property
    def places(self) -> Iterable[tuple[str | None, OrderPosition]]:
        """Sub-queue and position of each task or of the last ones."""
        ...

    def shares(self, counts: Sequence[int]) -> list[OrderPosition]:
        """The last position of each call that gets tasks."""
        ...

    def moved(self, ctx: TubeContext, to: Destination, lease: NewLease) -> dict[int, T]:
        """The held tasks under each take id, if the statement moved all chosen tasks."""
        ...

    def read_back(self, ctx: TubeContext, meant: Mapping[int, T], count: int) -> dict[int, T]:
        """The tasks under each take id, if only `count` of them were moved."""
        ...

    def count_delays(self, ctx: TubeContext, held: Mapping[int, T]) -> None:
        """Count the delays that had ended before the held tasks were taken, and keep these events for the callback."""
        ...


@dataclass(frozen=True, slots=True)
class ChosenRows(TaskRows):
    """The chosen tasks of a take, as rows, and the order of their tube."""

    order: tuple[str, ...] = ()

    @classmethod
    def first(
        cls, ctx: TubeContext, where: Expression, count: int, *, whole_utubes: bool = False
    ) -> Self:
        """Choose the first tasks that match a condition, after burying unreadable ones."""

        def read(at_least: int = 0) -> list[StoredTask]:
            return ctx.reader.first(where, max(count, at_least), whole_utubes=whole_utubes)

        return cls(readable(ctx, read(), read), ctx.table.order)

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, quotas: Quotas) -> Self:
        """Choose the first tasks of some sub-queues, after burying unreadable ones."""
        ready = ctx.table.is_ready(quotas.now_us)

        def read(at_least: int = 0) -> list[StoredTask]:
            more = at_least // len(quotas.of)
            quota = {utube: max(count, more) for utube, count in quotas.of.items()}
            return ctx.reader.first_of_each(ready, quota)

        return cls(readable(ctx, read(), read), ctx.table.order)

    @property
    def in_lease_segment(self) -> bool:
        """Whether some tasks have ended leases."""
        return any(row.state is TaskState.TAKEN for row in self.rows)

    @property
    def places(self) -> Iterable[tuple[str | None, OrderPosition]]:
        """Sub-queue and position of each task."""
        return ((row.utube, position_of(row, self.order)) for row in self.rows)

    def shares(self, counts: Sequence[int]) -> list[OrderPosition]:
        """The last position of each call that gets tasks."""
        lasts, begin = [], 0
        for count in counts:
            share = self.rows[begin : begin + count]
            begin += count
            if share:
                lasts.append(position_of(share[-1], self.order))
        return lasts

    def moved(self, ctx: TubeContext, to: Destination, lease: NewLease) -> dict[int, TakenRows]:
        """The held tasks under each take id, if the statement moved all chosen tasks."""
        source = {
            "segment": lambda row: to(row.utube, position_of(row, self.order))[0],
            "claim": lambda row: to(row.utube, position_of(row, self.order))[1],
        }
        return _by_take_id(rows_after([ctx.writer.taken(lease)], self.rows, source), lease)

    def read_back(
        self, ctx: TubeContext, meant: Mapping[int, TakenRows], _count: int
    ) -> dict[int, TakenRows]:
        """The tasks under each take id, read by take id, because others may have moved them."""
        lease = next(iter(meant.values())).lease
        held = ctx.table.is_held(lease.owner, meant)
        return _by_take_id(ctx.reader.of(held, order=ctx.table.order), lease)

    def count_delays(self, ctx: TubeContext, held: Mapping[int, TakenRows]) -> None:
        """Count the ended delays of the held tasks, and keep these events for the callback."""
        ids = {row.task_id for taken in held.values() for row in taken.rows}
        delayed = [row for row in self.rows if row.state is TaskState.DELAYED]
        ready = [row.seen_as(TaskState.READY) for row in delayed if row.task_id in ids]
        if ready:
            ctx.record_event("delay", ready)


def _by_take_id(held: Iterable[StoredTask], lease: NewLease) -> dict[int, TakenRows]:
    """The held tasks by take id."""
    rows: dict[int, list[StoredTask]] = defaultdict(list)
    sizes = Counter[int]()
    for row in held:
        if row.take_id is not None:
            rows[row.take_id].append(row)
            sizes[row.segment] += 1
    return {take_id: TakenRows(under, lease, sizes) for take_id, under in rows.items()}


@dataclass(frozen=True, slots=True)
class ChosenSegments:
    """The chosen tasks without their rows: for each segment the count and the last task."""

    selections: Sequence[SegmentSelection]

    @classmethod
    def first(
        cls, ctx: TubeContext, where: Expression, count: int, *, whole_utubes: bool = False
    ) -> Self:
        """Choose the first tasks that match a condition."""
        return cls(ctx.reader.segments(where, count, whole_utubes=whole_utubes))

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, quotas: Quotas) -> Self:
        """Choose the first tasks of some sub-queues."""
        return cls(ctx.reader.segments_of_each(ctx.table.is_ready(quotas.now_us), quotas.of))

    @property
    def count(self) -> int:
        """The number of tasks."""
        return sum(selection.count for selection in self.selections)

    @property
    def segments(self) -> list[int]:
        """The segments of the tasks."""
        return sorted({selection.segment for selection in self.selections})

    @property
    def in_lease_segment(self) -> bool:
        """Whether some tasks have ended leases."""
        return any(selection.in_lease_segment for selection in self.selections)

    @property
    def places(self) -> Iterable[tuple[str | None, OrderPosition]]:
        """Sub-queue and position of the last task of each segment."""
        return ((selection.utube, selection.last) for selection in self.selections)

    def shares(self, _counts: Sequence[int]) -> list[OrderPosition]:
        """The last position of all tasks: segments are not divided between calls."""
        return [max(selection.last for selection in self.selections)] if self.selections else []

    def moved(self, _ctx: TubeContext, to: Destination, lease: NewLease) -> dict[int, LeasedBatch]:
        """The held tasks under each take id, if the statement moved all chosen tasks."""
        parts: dict[tuple[int, int], list[SegmentSelection]] = defaultdict(list)
        for selection in self.selections:
            parts[to(selection.utube, selection.last)].append(selection)
        return {
            take_id: LeasedBatch(
                take_id,
                segment,
                lease,
                sum(selection.count for selection in part),
                min((s.shortest_ttr for s in part if s.shortest_ttr is not None), default=None),
            )
            for (segment, take_id), part in parts.items()
        }

    def read_back(
        self, ctx: TubeContext, meant: Mapping[int, LeasedBatch], count: int
    ) -> dict[int, LeasedBatch]:
        """The tasks under each take id. They are counted if their number is not known."""
        held = {}
        for take_id, batch in meant.items():
            n = count
            if len(meant) > 1:
                n = ctx.reader.count(ctx.table.is_held(batch.lease.owner, [take_id]))
            if n:
                held[take_id] = replace(batch, count=n)
        return held

    def count_delays(self, ctx: TubeContext, _held: Mapping[int, LeasedBatch]) -> None:
        """Count ended delays; the single tasks are not known."""
        ctx.count("delay", sum(selection.delayed for selection in self.selections))
