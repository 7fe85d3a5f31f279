"""The limits of sub-queues in one attempt of a take: how many of their tasks may begin, and whose turn it is.

They are looked at twice: before the take locks sub-queues, to choose among them, and after it. The
second look counts. While the take has its locks, no other take begins tasks of these sub-queues, so what
it has read can only become less. The moments of leases (`rate`, `order="fair"`) are written by the commit
that locks, which fails if they have changed since the first look.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError
from tubeq_spark.model.limits import NewMoments, UtubeMoments, begun
from tubeq_spark.model.times import limited_us
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.durability.commit_file import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SubqueueHead, TakenTasks
    from tubeq_spark.verbs.subqueue_locks import AcquiredSubqueues

log = logging.getLogger(__name__)
_ANY_NUMBER = sys.maxsize
#: As many heads as there are: a limit that Spark takes.
_ALL = (1 << 31) - 1


class SubqueueLimits:
    """The limits of a tube's sub-queues at one moment. Without limits it reads nothing."""

    def __init__(
        self,
        ctx: TubeContext,
        now_us: int,
        leaving: Sequence[StoredTask] = (),
        unused: Mapping[str | None, tuple[int, int]] | None = None,
    ) -> None:
        """Limit a take.

        Args:
            ctx: The tube.
            now_us: The moment that the take is decided for.
            leaving: The tasks that are acked in the same commit.
            unused: Leases that the take has written down, and that have not begun: how many of a moment.
        """
        self._ctx = ctx
        self._now_us = now_us
        self._leaving = Counter(row.utube for row in leaving)
        self._unused = unused or {}
        options = ctx.record.options
        self._parallel = options.parallel
        self._rate = options.rate
        self.by_turn = options.order == "fair"
        self._counts = ctx.record.counts_taken
        self._taken: dict[str | None, TakenTasks] = {}
        self._begun: dict[str | None, UtubeMoments] = {}

    @property
    def matter(self) -> bool:
        """Whether there are any."""
        return self._counts or self._remembers

    @property
    def _remembers(self) -> bool:
        return self._rate is not None or self.by_turn

    @property
    def replace_locks(self) -> bool:
        """Whether the lock of a take that has committed may be replaced: its tasks are counted."""
        return self._parallel > 1

    @property
    def hold_locks(self) -> bool:
        """Whether the take keeps its locks until its tasks are given back."""
        skew_us = limited_us(self._ctx.queue.config.skew)
        return self._ctx.record.holds_locks(self._now_us, skew_us)

    @property
    def have_ended(self) -> bool:
        """Whether leases of counted tasks have ended, which must be written down first."""
        return any(tasks.ended for tasks in self._taken.values())

    def look(self) -> set[str | None]:
        """Read what sub-queues have left. No commit.

        Returns:
            Those of which as many tasks are taken as may be.
        """
        if self._remembers:
            begun = map(self._without_unused, self._ctx.utube_history.all())
            self._begun = {each.utube: each for each in begun}
        if not self._counts:
            return set()
        self._taken = self._ctx.subqueue_reader.taken(self._now_us)
        return {utube for utube in self._taken if self._free(utube) <= 0}

    def most_heads(self, wanted: int) -> int:
        """How many heads must be read, so that so many may give tasks."""
        if self.by_turn:
            return _ALL
        if self._rate is None:
            return wanted
        return wanted + sum(self._within_rate(utube) <= 0 for utube in self._begun)

    def cut(self, heads: list[SubqueueHead]) -> list[SubqueueHead]:
        """Sub-queues that may give tasks now, each with as many as it may, in their turn.

        If a rate keeps some of them, the tube's context says when the first of these may go on.
        """
        if not self.matter:
            return heads
        waiting = [head.utube for head in heads if self._within_rate(head.utube) <= 0]
        self._ctx.next_begin.at_us = min(map(self._next_us, waiting), default=None)
        left = [
            replace(head, count=min(head.count, room))
            for head in heads
            if (room := self._room(head.utube)) > 0
        ]
        return sorted(left, key=self._turn) if self.by_turn else left

    def turns_before(self, utube: str | None, busy: Collection[str | None]) -> int:
        """How many sub-queues of a fair tube that are not busy have their turn before one of them. No commit."""
        self.look()
        ctx = self._ctx
        heads = ctx.subqueue_reader.heads(
            self._now_us, ctx.max_attempts, busy, _ALL, with_created=True
        )
        turns = [head.utube for head in sorted(heads, key=self._turn)]
        return turns.index(utube) if utube in turns else 0

    def _turn(self, head: SubqueueHead) -> tuple[int, int, int, int]:
        """The place of a sub-queue among all: it waits since its last lease, or since its first task came."""
        found = self._begun.get(head.utube) or UtubeMoments(head.utube)
        since_us = max(head.created_us, *found.moments[-1:], 0)
        return head.first.key, min(since_us, self._now_us), found.turn, head.first.task_id

    def begun(self, quota: Mapping[str | None, int]) -> list[NewMoments]:
        """What is written of the leases of some sub-queues before they begin."""
        if not self._remembers:
            return []
        last = max((each.turn for each in self._begun.values()), default=0)
        written = []
        for turn, (utube, count) in enumerate(quota.items(), last + 1):
            found = self._begun.get(utube) or UtubeMoments(utube)
            moments = begun(found.moments, self._now_us, count, self._kept)
            written.append(NewMoments(utube, found.text, moments, turn))
        return written

    def confirmed(self, acquired: AcquiredSubqueues) -> AcquiredSubqueues:
        """What the sub-queues may give now that they are locked. No commit.

        Raises:
            Stale: One of them may give nothing.
        """
        if not self._counts:
            return acquired
        self._taken = self._ctx.subqueue_reader.taken(self._now_us, acquired.quota)
        quotas = [
            {utube: min(n, self._free(utube)) for utube, n in quota.items()}
            for quota in acquired.quotas
        ]
        if any(n <= 0 for quota in quotas for n in quota.values()):
            raise Stale
        return replace(acquired, quotas=quotas)

    def _room(self, utube: str | None) -> int:
        """How many tasks of a sub-queue may begin."""
        return min(self._free(utube), self._within_rate(utube))

    def _free(self, utube: str | None) -> int:
        """How many more tasks of a sub-queue may be taken."""
        if not self._counts:
            return _ANY_NUMBER
        found = self._taken.get(utube)
        taken = 0 if found is None else found.count - self._leaving[utube]
        if self._parallel == 1:
            # Those of takes that began under `parallel > 1`, which have no lock.
            return 0 if taken > 0 else _ANY_NUMBER
        return self._parallel - taken

    def _within_rate(self, utube: str | None) -> int:
        """How many leases of a sub-queue may begin by its rate."""
        if self._rate is None:
            return _ANY_NUMBER
        return self._rate.room(self._moments(utube), self._now_us)

    def _next_us(self, utube: str | None) -> int:
        if self._rate is None:
            return self._now_us
        return self._rate.next_us(self._moments(utube), self._now_us)

    def _moments(self, utube: str | None) -> Sequence[int]:
        return self._begun[utube].moments if utube in self._begun else ()

    @property
    def _kept(self) -> int:
        """How many moments of a sub-queue are kept."""
        return 1 if self._rate is None else self._rate.tasks

    def _without_unused(self, found: UtubeMoments) -> UtubeMoments:
        """The moments of leases that have begun: those of a MERGE that has failed have not."""
        at_us, count = self._unused.get(found.utube, (0, 0))
        moments = list(found.moments)
        for _ in range(min(count, moments.count(at_us))):
            moments.remove(at_us)
        return replace(found, moments=tuple(moments))


def forget_moments(ctx: TubeContext, now_us: int) -> None:
    """Remove the moments of sub-queues that no take asks for any more. At most one commit.

    A moment that lies further ahead than clocks differ becomes now: else its sub-queue would wait until then.
    """
    rate, is_fair = ctx.record.options.rate, ctx.record.options.order == "fair"
    stored = ctx.utube_history.all()
    # After the read: what was written before it does not lie ahead.
    clock_us = ctx.queue.now_us()
    try:
        # After it, too: a moment of a task that came meanwhile is another one than was read, and so it stays.
        kept = ctx.subqueue_reader.stored() if is_fair else set[str | None]()
    except DamagedFileError:
        log.warning("moments of leases of %s stay", ctx.record.name, exc_info=True)
        return
    ahead_us = clock_us + limited_us(ctx.queue.config.skew)
    ended, changed = [], []
    for each in stored:
        if each.utube not in kept and (
            # By the clock: moments that are forgotten for one that lies ahead would be missed until then.
            rate is None or rate.room(each.moments, min(now_us, clock_us)) == rate.tasks
        ):
            ended.append(each)
        elif max(each.moments, default=0) > ahead_us:
            moments = begun(each.moments, clock_us, 0, 0)
            changed.append(NewMoments(each.utube, each.text, moments, each.turn))
    _tidy(ctx, ended, changed)


def forget_dropped(ctx: TubeContext) -> None:
    """Remove the moments of an emptied tube, in which no take commits any more. At most one commit."""
    options = ctx.record.options
    if options.rate is not None or options.order == "fair":
        _tidy(ctx, ctx.utube_history.all(), [])


def _tidy(
    ctx: TubeContext, ended: Collection[UtubeMoments], changed: Collection[NewMoments]
) -> None:
    if not ended and not changed:
        return
    operation_id = ctx.queue.session.segments(1)[0]
    plan = Plan(ctx.utube_history.tidy(ended, changed, operation_id), lambda _: None)
    with contextlib.suppress(ConflictError):
        ctx.queue.loop_without_retry.run("forget", ctx.utube_locks.table_lock, lambda: plan)
