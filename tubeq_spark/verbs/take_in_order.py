"""Takes in tubes without sub-queues: the first tasks in the order move to a fresh lease segment.

Ended leases are written first, by a separate commit, so that their tasks are back in their places
in the order.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubeq_spark.rules.row_changes import InSegments, Remove, Take, Takeable
from tubeq_spark.storage.chosen import SettleRow
from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.renew_leases import out_of_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.rules.row_changes import Change, Which
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Statement
    from tubeq_spark.verbs.chosen_tasks import ChosenTasks
    from tubeq_spark.verbs.locate import NamedTasks

__all__ = ["OrderChoice", "TakeInOrder"]

H = TypeVar("H")


class TakeInOrder:
    """One take, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for some calls at once, each of them in turn."""
        self._ctx = ctx
        self._counts = [request.count for request in requests]
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
        tasks = kind.first(ctx, now_us, sum(self._counts))
        if tasks.in_lease_segment:
            end_due(ctx, now_us)
            tasks = kind.first(ctx, now_us, sum(self._counts))
            if tasks.in_lease_segment:
                raise Stale
        lasts = tasks.shares(self._counts)
        if not lasts:
            return None
        lease_segments = ctx.queue.session.segments(len(lasts))
        calls = [*lease_segments, *[None] * (len(self._counts) - len(lasts))]
        ends = list(zip(lasts, lease_segments, strict=True))
        choice = OrderChoice(ctx, tasks, owner, now_us, calls, ends)
        self.chosen = choice
        return choice


@dataclass(frozen=True, slots=True)
class OrderChoice(Generic[H]):
    """The tasks that one attempt moves.

    Attributes:
        ctx: The tube.
        tasks: What comes first.
        owner: Who takes.
        now_us: The moment that the tasks were chosen for.
        take_ids: The lease segment of each call; `None` for one that gets nothing.
        ends: For each lease segment the last place in the order that goes there.
    """

    ctx: TubeContext
    tasks: ChosenTasks[H]
    owner: str
    now_us: int
    take_ids: Sequence[int | None]
    ends: Sequence[tuple[OrderPosition, int]]

    def destination(self, _utube: str | None, place: OrderPosition) -> tuple[int, int]:
        """The lease segment and the take id of a task."""
        lease_segment = self.ends[bisect_left(self.ends, place, key=lambda end: end[0])][1]
        return lease_segment, lease_segment

    def take(self, lease: NewLease) -> Statement:
        """The statement that moves the tasks."""
        tasks = self.tasks
        return self.ctx.writer.take(tasks.segments, self.ends, lease, self.now_us, tasks.count)

    def exchange(self, found: NamedTasks, lease: NewLease) -> Statement:
        """The statement that moves them and removes what is acked."""
        last = self.ends[-1][0]
        changes: list[tuple[Which, Change]] = [
            (InSegments(found.segments), Remove()),
            (Takeable(last, self.now_us), Take(self.ends, lease)),
        ]
        source = [*found.source(), *(SettleRow(segment, None) for segment in self.tasks.segments)]
        return self.ctx.writer.settle(source, changes, {})

    def undone(self) -> bool:
        """Undo a statement that moved fewer tasks, if necessary; return whether it was undone."""
        lease_segments = [lease_segment for _, lease_segment in self.ends]
        return out_of_order(self.ctx, lease_segments, self.owner, self.now_us)

    def landed(self, _utubes: set[str | None]) -> None:
        """After the commit: nothing more to do."""
