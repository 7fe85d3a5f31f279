"""Chooses the tasks of a take, which come first in the order: as rows, or as segments with only the counts read.

Ended leases are written first, by a separate commit, so that their tasks are back in their places
in the order.

`ChosenRows` and `ChosenSegments` have the same methods, so takes of single tasks and of batches use one
algorithm. The methods return the number of tasks, their segments, and the result of a call after the
statement has moved them. The result is the chosen tasks or, if other commits moved some of them first, the
rows that are read back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from tubeq_spark.model.changes import InSegments, Named, Remove, Share, Take, Takeable
from tubeq_spark.model.rivals import beginning
from tubeq_spark.model.tube_types import position_of
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows, TaskRows
from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import SegmentsUpTo, SettleRow
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.bury_unreadable import readable
from tubeq_spark.verbs.expire import end_due, write_down
from tubeq_spark.verbs.most_taken import within
from tubeq_spark.verbs.renew import out_of_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.changes import Change, Which
    from tubeq_spark.model.lease_times import NewLease
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SegmentSelection
    from tubeq_spark.storage.statement import Statement
    from tubeq_spark.verbs.locate import NamedTasks
    from tubeq_spark.verbs.subqueue_locks import AcquiredSubqueues

    #: Maps a task's sub-queue and position in the order to its lease segment and take id.
    Destination: TypeAlias = Callable[[str | None, OrderPosition], tuple[int, int]]

H = TypeVar("H")

#: A take of at most so many tasks shares its lease segment with the other takes of its commit. Larger takes do
#: not, because an ack of some tasks rewrites the rest of their lease segment.
MOST_SHARED = 16


class TakeInOrder:
    """One take in a tube without sub-queues, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for several calls at once. The first call gets the first tasks."""
        self._ctx = ctx
        self._requests = requests
        #: The largest number of tasks for all calls together; `None` sets no limit.
        self.room: int | None = None
        #: The tasks chosen by the newest attempt.
        self.chosen: OrderChoice[Any] | None = None

    def give_up(self) -> None:
        """Undo preparations of failed attempts; this kind of take makes none."""

    def kept(self, _ids: Sequence[int], _found: NamedTasks) -> dict[str | None, int]:
        """The utube locks that an exchange keeps; a tube without sub-queues has none."""
        return {}

    def choose(
        self, kind: type[ChosenTasks[H]], _kept: Mapping[str | None, int] | None = None
    ) -> OrderChoice[H] | None:
        """Choose the first tasks; `None` if none is ready. Usually no commit, at most one.

        Raises:
            Stale: A lease has ended meanwhile, and its end must be written first.
        """
        ctx = self._ctx
        owner, now_us = ctx.queue.taker(), ctx.queue.now_us()
        counts = [request.count for request in within(self._requests, self.room)]
        if self.chosen is not None:
            # Other takes got the tasks that the previous attempt had chosen.
            ctx.lost_takes += 1
        tasks = self._beside_rivals(kind, now_us, sum(counts)) or kind.first(
            ctx, now_us, sum(counts)
        )
        if tasks.in_lease_segment:
            end_due(ctx, now_us)
            tasks = kind.first(ctx, now_us, sum(counts))
            if tasks.in_lease_segment:
                raise Stale
        lasts = tasks.shares(counts)
        if not lasts:
            return None
        take_ids = ctx.queue.session.segments(len(lasts))
        calls = [*take_ids, *[None] * (len(counts) - len(lasts))]
        segments = _lease_segments(take_ids, counts)
        shares = [Share(*each) for each in zip(lasts, segments, take_ids, strict=True)]
        choice = OrderChoice(ctx, tasks, owner, now_us, calls, shares)
        self.chosen = choice
        return choice

    def _beside_rivals(
        self, kind: type[ChosenTasks[H]], now_us: int, count: int
    ) -> ChosenTasks[H] | None:
        """Choose tasks from segments that no other take uses; `None` if the take should choose the first tasks.

        The tasks have the priority of the first task. Used only where no lock keeps takes of other programs apart.
        """
        ctx = self._ctx
        rivals = ctx.queue.engine.tables.rivals(ctx.table.name)
        found = ctx.reader.heads(now_us) if rivals else None
        if found is None:
            return None
        key, heads = found
        who = f"{ctx.queue.session.owner}/{ctx.lost_takes}"
        among = beginning(heads, count, rivals, who)
        if not among:
            return None
        tasks = kind.first(ctx, now_us, count, among)
        is_same = not key or {place.key for _, place in tasks.places} == set(key)
        return tasks if tasks.count == count and is_same and not tasks.in_lease_segment else None


def _lease_segments(take_ids: Sequence[int], counts: Sequence[int]) -> list[int]:
    """The lease segment for each take id. The small takes of one commit share the segment of the first of them.

    A batch is the only take of its commit, so it never shares a segment.
    """
    shared = None
    segments = []
    for take_id, count in zip(take_ids, counts, strict=False):
        if count > MOST_SHARED:
            segments.append(take_id)
            continue
        shared = take_id if shared is None else shared
        segments.append(shared)
    return segments


@dataclass(frozen=True, slots=True)
class OrderChoice(Generic[H]):
    """The tasks that one attempt moves.

    Attributes:
        ctx: The tube.
        tasks: The chosen tasks.
        owner: The session that takes them.
        now_us: The moment for which the tasks were chosen.
        take_ids: The take id of each call; `None` for a call that gets no tasks.
        shares: The last position, lease segment and take id of each call that gets tasks.
    """

    ctx: TubeContext
    tasks: ChosenTasks[H]
    owner: str
    now_us: int
    take_ids: Sequence[int | None]
    shares: Sequence[Share]

    @property
    def begins_us(self) -> None:
        """Return no moment: the leases begin when the statement is decided."""
        return

    def destination(self, _utube: str | None, place: OrderPosition) -> tuple[int, int]:
        """The lease segment and the take id of a task."""
        share = self.shares[bisect_left(self.shares, place, key=lambda share: share.last)]
        return share.segment, share.take_id

    def take(self, lease: NewLease) -> Statement:
        """The statement that moves the tasks."""
        tasks = self.tasks
        return self.ctx.writer.take(tasks.segments, self.shares, lease, self.now_us, tasks.count)

    def exchange(
        self, found: NamedTasks, moves: Mapping[int, int], lease: NewLease, removal: Remove
    ) -> Statement:
        """The statement that moves the tasks and removes the acked ones; the rest of their lease segments moves."""
        acked: Which = Named() if moves else InSegments(found.segments)
        changes: list[tuple[Which, Change]] = [
            (acked, removal),
            (Takeable(self.shares[-1].last, self.now_us), Take(self.shares, lease)),
        ]
        taken = (SettleRow(segment, None, chosen=not moves) for segment in self.tasks.segments)
        statement = self.ctx.writer.settle(
            [*found.source(), *taken],
            changes,
            moves,
            SegmentsUpTo(self.tasks.segments, self.shares[-1].last),
        )
        # The rest of the lease segments also moves, but it is not taken, so it must not count. If nothing else
        # moves, the statement knows the number of tasks itself.
        return replace(statement, tasks=found.count + self.tasks.count) if moves else statement

    def undone(self) -> bool:
        """Undo a statement that moved fewer tasks, if necessary; return whether it was undone."""
        segments = list(dict.fromkeys(share.segment for share in self.shares))
        take_ids = [share.take_id for share in self.shares]
        return out_of_order(self.ctx, segments, take_ids, self.owner, self.now_us)

    def landed(self, _utubes: set[str | None]) -> None:
        """After the commit: nothing more to do."""


T = TypeVar("T")


class ChosenTasks(Protocol[T]):
    """The chosen tasks of a take; `T` is the result of one call."""

    @classmethod
    def first(cls, ctx: TubeContext, now_us: int, count: int, among: Sequence[int] = ()) -> Self:
        """Choose the first tasks in the order, including those with ended leases: in some segments, or in all."""
        ...

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, acquired: AcquiredSubqueues) -> Self:
        """Choose the first tasks of locked sub-queues."""
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
    def is_all_that_is_ready(self) -> bool:
        """Whether no other task of the tube is ready, so rows need not be selected by sub-queue."""
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

    def write_down(self, ctx: TubeContext, held: Mapping[int, T], now_us: int) -> None:
        """Count the events by time of the held tasks, and keep them for the callback."""
        ...

    def utubes(self, ctx: TubeContext, held: Mapping[int, T], *, complete: bool) -> set[str | None]:
        """The sub-queues of the tasks that are held now."""
        ...


@dataclass(frozen=True, slots=True)
class ChosenRows(TaskRows):
    """The chosen tasks of a take, as rows, and the order of their tube."""

    order: tuple[str, ...] = ()

    @classmethod
    def first(cls, ctx: TubeContext, now_us: int, count: int, among: Sequence[int] = ()) -> Self:
        """Choose the first tasks in the order, after burying unreadable ones."""

        def read(at_least: int = 0) -> list[StoredTask]:
            return ctx.reader.ready(now_us, max(count, at_least), ctx.max_attempts, among)

        return cls(readable(ctx, read(), read), ctx.table.order)

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, acquired: AcquiredSubqueues) -> Self:
        """Choose the first tasks of locked sub-queues, after burying unreadable ones."""

        def read(at_least: int = 0) -> list[StoredTask]:
            each = at_least // len(acquired.quota)
            quota = {utube: max(count, each) for utube, count in acquired.quota.items()}
            return ctx.subqueue_reader.rows(acquired.now_us, ctx.max_attempts, quota)

        return cls(readable(ctx, read(), read), ctx.table.order)

    @property
    def in_lease_segment(self) -> bool:
        """Whether some tasks have ended leases."""
        return any(row.state is TaskState.TAKEN for row in self.rows)

    @property
    def is_all_that_is_ready(self) -> bool:
        """Return False: takes of rows do not use this."""
        return False

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
        return _by_take_id(ctx.reader.held_under(meant, lease.owner), lease)

    def write_down(self, ctx: TubeContext, held: Mapping[int, TakenRows], now_us: int) -> None:
        """Count the events by time of the held tasks, and keep them for the callback."""
        ids = {row.task_id for taken in held.values() for row in taken.rows}
        write_down(ctx, [row for row in self.rows if row.task_id in ids], now_us)

    def utubes(
        self, _ctx: TubeContext, held: Mapping[int, TakenRows], *, complete: bool
    ) -> set[str | None]:
        """The sub-queues of the tasks that are held now."""
        del complete
        return {row.utube for taken in held.values() for row in taken.rows}


def _by_take_id(held: Iterable[StoredTask], lease: NewLease) -> dict[int, TakenRows]:
    """The held tasks by take id."""
    rows: dict[int, list[StoredTask]] = defaultdict(list)
    for row in held:
        if row.take_id is not None:
            rows[row.take_id].append(row)
    return {take_id: TakenRows(under, lease) for take_id, under in rows.items()}


@dataclass(frozen=True, slots=True)
class ChosenSegments:
    """The chosen tasks without their rows: for each segment the count and the last task."""

    selections: Sequence[SegmentSelection]
    is_all_that_is_ready: bool = False

    @classmethod
    def first(cls, ctx: TubeContext, now_us: int, count: int, among: Sequence[int] = ()) -> Self:
        """Choose the first tasks in the order."""
        return cls(ctx.reader.ready_segments(now_us, count, ctx.max_attempts, among))

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, acquired: AcquiredSubqueues) -> Self:
        """Choose the first tasks of locked sub-queues."""
        now_us, quota = acquired.now_us, acquired.quota
        if acquired.alone:
            everything = ctx.subqueue_reader.all_selections(now_us, ctx.max_attempts, quota)
            if everything:
                return cls(everything, is_all_that_is_ready=True)
        return cls(
            ctx.subqueue_reader.selections(now_us, ctx.max_attempts, quota, whole=acquired.whole)
        )

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
            n = count if len(meant) == 1 else ctx.reader.count_of(take_id, batch.lease.owner)
            if n:
                held[take_id] = replace(batch, count=n)
        return held

    def write_down(self, ctx: TubeContext, _held: Mapping[int, LeasedBatch], _now_us: int) -> None:
        """Count ended delays; the single tasks are not known."""
        ctx.count("delay", sum(selection.delayed for selection in self.selections))

    def utubes(
        self, ctx: TubeContext, held: Mapping[int, LeasedBatch], *, complete: bool
    ) -> set[str | None]:
        """The sub-queues of the tasks that are held now."""
        if complete:
            return {selection.utube for selection in self.selections}
        return {utube for _, utube in ctx.subqueue_reader.taken_under(held)}
