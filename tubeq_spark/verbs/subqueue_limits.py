"""The limits of sub-queues in one attempt of a take: how many of their tasks may begin, and which comes first.

A take reads them twice: before it locks sub-queues, to choose among them, and after it. The second read decides.
While the take has its locks, no other take begins tasks of these sub-queues, so the number of taken tasks can
only decrease. The commit that locks also writes the moments of leases (`rate`, `order="fair"`), and fails if
they have changed since the first read.
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
from tubeq_spark.storage.log.commit_text import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SubqueueHead, TakenTasks
    from tubeq_spark.verbs.subqueue_locks import AcquiredSubqueues

log = logging.getLogger(__name__)
_ANY_NUMBER = sys.maxsize
#: A limit that no number of heads reaches, and that Spark accepts.
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
            now_us: The moment for which the take is decided.
            leaving: The tasks that the same commit acks.
            unused: By sub-queue, the moment and the number of leases that earlier attempts have written and not begun.
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
        """Whether the tube has limits."""
        return self._counts or self._remembers

    @property
    def _remembers(self) -> bool:
        return self._rate is not None or self.by_turn

    @property
    def replace_locks(self) -> bool:
        """Whether a take may replace the locks of committed takes, because it counts their tasks."""
        return self._parallel > 1

    @property
    def hold_locks(self) -> bool:
        """Whether the take keeps its locks until its tasks are given back."""
        skew_us = limited_us(self._ctx.queue.config.skew)
        return self._ctx.record.holds_locks(self._now_us, skew_us)

    @property
    def have_ended(self) -> bool:
        """Whether leases of counted tasks have ended. Their ends must be written first."""
        return any(tasks.ended for tasks in self._taken.values())

    def look(self) -> set[str | None]:
        """Read the taken tasks and the moments of leases. No commit.

        Returns:
            The sub-queues of which no more tasks may be taken.
        """
        if self._remembers:
            begun = map(self._without_unused, self._ctx.utube_history.all())
            self._begun = {each.utube: each for each in begun}
        if not self._counts:
            return set()
        self._taken = self._ctx.subqueue_reader.taken(self._now_us)
        return {utube for utube in self._taken if self._free(utube) <= 0}

    def most_heads(self, wanted: int) -> int:
        """The number of heads that must be read to find `wanted` sub-queues that may give tasks."""
        if self.by_turn:
            return _ALL
        if self._rate is None:
            return wanted
        return wanted + sum(self._within_rate(utube) <= 0 for utube in self._begun)

    def cut(self, heads: list[SubqueueHead]) -> list[SubqueueHead]:
        """The sub-queues that may give tasks now, in their turn, each with the number of tasks that it may give.

        If some of them must wait because of their rate, the tube's context notes when the first of these may go on.
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
        """The number of sub-queues, in a fair tube and not busy, whose turn is before that of `utube`. No commit."""
        self.look()
        ctx = self._ctx
        heads = ctx.subqueue_reader.heads(
            self._now_us, ctx.max_attempts, busy, _ALL, with_created=True
        )
        turns = [head.utube for head in sorted(heads, key=self._turn)]
        return turns.index(utube) if utube in turns else 0

    def _turn(self, head: SubqueueHead) -> tuple[int, int, int, int]:
        """The sort key of a sub-queue: its priority, then the time since which it waits.

        It waits since its last lease, or since its first task was put, if that is later.
        """
        found = self._begun.get(head.utube) or UtubeMoments(head.utube)
        since_us = max(head.created_us, *found.moments[-1:], 0)
        return head.first.key, min(since_us, self._now_us), found.turn, head.first.task_id

    def begun(self, quota: Mapping[str | None, int]) -> list[NewMoments]:
        """The moments of leases that are written for some sub-queues before the leases begin."""
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
        """Cut the quotas to the tasks that the locked sub-queues may give. No commit.

        Raises:
            Stale: A sub-queue may give no task.
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
        """How many tasks of a sub-queue may begin now."""
        return min(self._free(utube), self._within_rate(utube))

    def _free(self, utube: str | None) -> int:
        """How many more tasks of a sub-queue may be taken."""
        if not self._counts:
            return _ANY_NUMBER
        found = self._taken.get(utube)
        taken = 0 if found is None else found.count - self._leaving[utube]
        if self._parallel == 1:
            # Takes that began under `parallel > 1` have tasks without a lock.
            return 0 if taken > 0 else _ANY_NUMBER
        return self._parallel - taken

    def _within_rate(self, utube: str | None) -> int:
        """How many leases of a sub-queue its rate lets begin now."""
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
        """The number of moments that are stored for a sub-queue."""
        return 1 if self._rate is None else self._rate.tasks

    def _without_unused(self, found: UtubeMoments) -> UtubeMoments:
        """Leave out the moments of leases that have not begun, because their MERGE failed."""
        at_us, count = self._unused.get(found.utube, (0, 0))
        moments = list(found.moments)
        for _ in range(min(count, moments.count(at_us))):
            moments.remove(at_us)
        return replace(found, moments=tuple(moments))


def forget_moments(ctx: TubeContext, now_us: int) -> None:
    """Remove moments of leases that no take needs any more. At most one commit.

    A moment that is further in the future than clocks differ is set to now: otherwise its sub-queue would wait
    until then.
    """
    rate, is_fair = ctx.record.options.rate, ctx.record.options.order == "fair"
    stored = ctx.utube_history.all()
    # The clock is read after the table, so that moments of this clock in the table are not in the future.
    clock_us = ctx.queue.now_us()
    try:
        # So are the tasks: if one came and was taken meanwhile, its sub-queue has another moment, which stays.
        kept = ctx.subqueue_reader.stored() if is_fair else set[str | None]()
    except DamagedFileError:
        log.warning("moments of leases of %s stay", ctx.record.name, exc_info=True)
        return
    ahead_us = clock_us + limited_us(ctx.queue.config.skew)
    ended, changed = [], []
    for each in stored:
        if each.utube not in kept and (
            # Never ahead of the clock: the moments would be removed while the rate still needs them.
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
