"""Chooses the tasks of a take in a tube without sub-queues: those that come first in the order.

Ended leases are written first, by a separate commit, so that their tasks are back in their places
in the order.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubeq_spark.model.changes import Named, Remove, Share, Take, Takeable
from tubeq_spark.model.rivals import beginning
from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.statement import SegmentsUpTo
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.limits import within
from tubeq_spark.verbs.renew import out_of_order
from tubeq_spark.verbs.settle import named, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.changes import Change, Which
    from tubeq_spark.model.lease_times import NewLease
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Statement
    from tubeq_spark.verbs.chosen import ChosenTasks
    from tubeq_spark.verbs.limits import Limits

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
        #: The tasks chosen by the newest attempt.
        self.chosen: OrderChoice[Any] | None = None

    def choose(self, kind: type[ChosenTasks[H]], limits: Limits) -> OrderChoice[H] | None:
        """Choose the first tasks; `None` if none is ready. Usually no commit, at most one.

        Raises:
            Stale: A lease has ended meanwhile, and its end must be written first.
        """
        ctx = self._ctx
        owner, now_us = ctx.queue.taker(), ctx.queue.now_us()
        counts = [request.count for request in within(self._requests, limits.tasks)]
        if self.chosen is not None:
            # Other takes got the tasks that the previous attempt had chosen.
            ctx.lost_takes += 1
        ready = ctx.table.is_ready(now_us)
        tasks = self._beside_rivals(kind, now_us, sum(counts)) or kind.first(
            ctx, ready, sum(counts)
        )
        if tasks.in_lease_segment:
            end_due(ctx, now_us)
            tasks = kind.first(ctx, ready, sum(counts))
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
        found = ctx.reader.segments_by_log(now_us) if rivals else None
        if found is None:
            return None
        key, heads = found
        who = f"{ctx.queue.session.owner}/{ctx.lost_takes}"
        among = beginning(heads, count, rivals, who)
        if not among:
            return None
        tasks = kind.first(ctx, row().segment.is_in(among) & ctx.table.is_ready(now_us), count)
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

    @property
    def quota(self) -> Mapping[str | None, int]:
        """Return no sub-queues."""
        return {}

    def destination(self, _utube: str | None, place: OrderPosition) -> tuple[int, int]:
        """The lease segment and the take id of a task."""
        share = self.shares[bisect_left(self.shares, place, key=lambda share: share.last)]
        return share.segment, share.take_id

    def take(self, lease: NewLease) -> Statement:
        """The statement that moves the tasks."""
        tasks = self.tasks
        return self.ctx.writer.take(tasks.segments, self.shares, lease, self.now_us, tasks.count)

    def exchange(self, found: Sequence[StoredTask], lease: NewLease) -> Statement:
        """The statement that moves the tasks and removes the acked ones."""
        changes: list[tuple[Which, Change]] = [
            (Named(), Remove()),
            (Takeable(self.shares[-1].last, self.now_us), Take(self.shares, lease)),
        ]
        taken = whole(self.tasks.segments)
        return self.ctx.writer.settle(
            [*named(found), *taken],
            changes,
            SegmentsUpTo(self.tasks.segments, self.shares[-1].last),
        )

    def undone(self) -> bool:
        """Undo a statement that moved fewer tasks, if necessary; return whether it was undone."""
        segments = list(dict.fromkeys(share.segment for share in self.shares))
        take_ids = [share.take_id for share in self.shares]
        return out_of_order(self.ctx, segments, take_ids, self.owner, self.now_us)
