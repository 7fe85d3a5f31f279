"""Chooses what a take takes: what comes first in the order, as rows or as segments of which only counts were read.

Ended leases are written first, by a separate commit, so that their tasks are back in their places
in the order.

Both classes have the same methods, so a take is one algorithm for single tasks and for batches: how
many tasks there are, in which segments, and the result of a call after the statement has moved
them. The result are the chosen tasks, or, if other commits moved some of them first, the rows that
are read back.
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

    #: For a task's sub-queue and place in the order: the lease segment and the take id it gets.
    Destination: TypeAlias = Callable[[str | None, OrderPosition], tuple[int, int]]

H = TypeVar("H")

#: A take of at most so many tasks shares its lease segment with the others of its commit: what is
#: acked before the rest rewrites the rest.
MOST_SHARED = 16


class TakeInOrder:
    """One take, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for some calls at once, each of them in turn."""
        self._ctx = ctx
        self._requests = requests
        #: How many tasks all calls may get; `None`: as many as they ask for.
        self.room: int | None = None
        #: The tasks that the newest attempt was to move.
        self.chosen: OrderChoice[Any] | None = None

    def give_up(self) -> None:
        """Undo preparations of failed attempts: there are none."""

    def kept(self, _ids: Sequence[int], _found: NamedTasks) -> dict[str | None, int]:
        """The utube locks that an exchange keeps: none."""
        return {}

    def choose(
        self, kind: type[ChosenTasks[H]], _kept: Mapping[str | None, int] | None = None
    ) -> OrderChoice[H] | None:
        """Choose the first tasks; `None` if none is ready. Usually no commit, at most one.

        Raises:
            Stale: A rival's lease has ended meanwhile.
        """
        ctx = self._ctx
        owner, now_us = ctx.queue.taker(), ctx.queue.now_us()
        counts = [request.count for request in within(self._requests, self.room)]
        if self.chosen is not None:
            # What was chosen before, others had first.
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
        """As many tasks as are wanted, from segments that no rival takes from; `None`: the first tasks.

        Their priority is that of the first task. Only where no lock keeps rivals apart.
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
    """The lease segment for each take id: small takes of one commit share that of their first one.

    A batch is alone in its commit, so it never shares one.
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
        tasks: What comes first.
        owner: Who takes.
        now_us: The moment that the tasks were chosen for.
        take_ids: The take id of each call; `None` for one that gets nothing.
        shares: What each call gets.
    """

    ctx: TubeContext
    tasks: ChosenTasks[H]
    owner: str
    now_us: int
    take_ids: Sequence[int | None]
    shares: Sequence[Share]

    @property
    def begins_us(self) -> None:
        """When its leases begin: when its statement is decided."""
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
        """The statement that moves them and removes what is acked; the rest of its lease segments moves."""
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
        # What moves along is no task that is taken; without it the statement knows their number itself.
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
        """Choose the first tasks in the order, including those with ended leases; of some segments, or of all."""
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
        """Whether some have ended leases, which must be written before they are taken."""
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
        """What is held under each take id, when all of it was moved."""
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
        """Choose the first tasks in the order; bury unreadable ones before."""

        def read(at_least: int = 0) -> list[StoredTask]:
            return ctx.reader.ready(now_us, max(count, at_least), ctx.max_attempts, among)

        return cls(readable(ctx, read(), read), ctx.table.order)

    @classmethod
    def of_subqueues(cls, ctx: TubeContext, acquired: AcquiredSubqueues) -> Self:
        """Choose the first tasks of locked sub-queues; bury unreadable ones before."""

        def read(at_least: int = 0) -> list[StoredTask]:
            each = at_least // len(acquired.quota)
            quota = {utube: max(count, each) for utube, count in acquired.quota.items()}
            return ctx.subqueue_reader.rows(acquired.now_us, ctx.max_attempts, quota)

        return cls(readable(ctx, read(), read), ctx.table.order)

    @property
    def in_lease_segment(self) -> bool:
        """Whether some have ended leases."""
        return any(row.state is TaskState.TAKEN for row in self.rows)

    @property
    def is_all_that_is_ready(self) -> bool:
        """Not used for rows."""
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
        """What is held under each take id, when all of it was moved."""
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
        """Choose what comes first in the order."""
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
        """Whether some have ended leases."""
        return any(selection.in_lease_segment for selection in self.selections)

    @property
    def places(self) -> Iterable[tuple[str | None, OrderPosition]]:
        """Sub-queue and position of the last task of each segment."""
        return ((selection.utube, selection.last) for selection in self.selections)

    def shares(self, _counts: Sequence[int]) -> list[OrderPosition]:
        """The last position of all: segments are not divided between calls."""
        return [max(selection.last for selection in self.selections)] if self.selections else []

    def moved(self, _ctx: TubeContext, to: Destination, lease: NewLease) -> dict[int, LeasedBatch]:
        """What is held under each take id, when all of it was moved."""
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
        """The tasks under each take id; counted if the number is not known."""
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
