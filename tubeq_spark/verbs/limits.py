"""The limits of a tube's takes: how many tasks may begin, of the tube and of each sub-queue, and which comes first.

All are decided from the gates and the taken tasks: that a sub-queue has one holder (`parallel=1`),
`parallel`, `rate`, `order="fair"`, and `most_taken`. The take's statement fails if another take has raised its gates
since, so the limits hold exactly.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError
from tubeq_spark.model.takes import UtubeMoments, begun, moments_text
from tubeq_spark.model.times import limited_us
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.gate import GatesSeen, Raise
from tubeq_spark.storage.log.commit_text import DamagedFileError
from tubeq_spark.verbs.expire import end_due

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SubqueueHead

log = logging.getLogger(__name__)
_ANY_NUMBER = sys.maxsize
#: A limit that no number of heads reaches, and that Spark accepts.
_ALL = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a tube at one moment.

    Attributes:
        options: The options of the tube.
        now_us: The moment.
        seen: The gates, the moments of leases and the taken tasks of each sub-queue.
        leaving: The tasks that the same commit acks, by sub-queue.
    """

    options: TubeOptions
    now_us: int = 0
    seen: GatesSeen = field(default_factory=GatesSeen)
    leaving: Counter[str | None] = field(default_factory=Counter)

    @property
    def tasks(self) -> int | None:
        """How many more tasks of the tube may be taken; `None` sets no limit."""
        if self.options.most_taken is None:
            return None
        taken = sum(tasks.count for tasks in self.seen.taken.values())
        return max(0, self.options.most_taken - taken + self.leaving.total())

    @property
    def by_turn(self) -> bool:
        """Whether the sub-queue that was served longest ago comes first."""
        return self.options.order == "fair"

    @property
    def begins_us(self) -> int | None:
        """The moment at which the leases begin, if it is remembered; `None`: when the statement is decided."""
        return self.now_us if remembers(self.options) else None

    @property
    def have_ended(self) -> bool:
        """Whether taken tasks have ended leases. A touch may extend these until their ends are written."""
        return any(tasks.ended for tasks in self.seen.taken.values())

    @property
    def closed(self) -> set[str | None]:
        """The sub-queues of which no task may begin now."""
        full = {utube for utube in self.seen.taken if self._free(utube) <= 0}
        return full.union(self.waiting_for_rate())

    def most_heads(self, wanted: int | None) -> int:
        """The number of heads that must be read to find so many sub-queues that may give tasks; `None` is all."""
        return _ALL if self.by_turn or wanted is None else wanted

    def cut(self, heads: Iterable[SubqueueHead]) -> list[SubqueueHead]:
        """The sub-queues that may give tasks now, in their turn, each with the number of tasks that it may give."""
        found = [
            replace(head, count=min(head.count, room))
            for head in heads
            if (room := self._room(head.utube)) > 0
        ]
        return sorted(found, key=self.turn) if self.by_turn else found

    def next_us(self) -> int | None:
        """The moment at which the first sub-queue that waits because of its rate may go on."""
        return min(self.waiting_for_rate().values(), default=None)

    def waiting_for_rate(self) -> dict[str | None, int]:
        """The sub-queues that have used up their rate, with the moment at which each may begin its next task."""
        rate = self.options.rate
        if rate is None:
            return {}
        return {
            utube: rate.next_us(found.moments, self.now_us)
            for utube, found in self.seen.moments.items()
            if self._within_rate(utube) <= 0
        }

    def turn(self, head: SubqueueHead) -> tuple[int, int, int, int]:
        """The sort key of a sub-queue: its priority, then the time since which it waits.

        It waits since its last lease, or since its first task was put, if that is later.
        """
        found = self._found(head.utube)
        since_us = max(head.created_us, *found.moments[-1:], 0)
        return head.first.key, min(since_us, self.now_us), found.turn, head.first.task_id

    def raised(self, quota: Mapping[str | None, int]) -> Raise:
        """The gates that a take of these sub-queues raises, and the moments of the leases that it begins."""
        if not self.seen.numbers:
            return Raise()
        texts: dict[str | None, str | None] = {}
        if remembers(self.options):
            kept = 1 if self.options.rate is None else self.options.rate.tasks
            last = max((found.turn for found in self.seen.moments.values()), default=0)
            for turn, (utube, count) in enumerate(quota.items(), last + 1):
                moments = begun(self._found(utube).moments, self.now_us, count, kept)
                texts[utube] = moments_text(turn, moments)
        return self.seen.raised(quota, texts, all_takes=self.options.most_taken is not None)

    def _room(self, utube: str | None) -> int:
        """How many tasks of a sub-queue may begin now."""
        return min(self._free(utube), self._within_rate(utube))

    def _free(self, utube: str | None) -> int:
        """How many more tasks of a sub-queue may be taken."""
        found = self.seen.taken.get(utube)
        taken = 0 if found is None else found.count - self.leaving[utube]
        if self.options.parallel == 1:
            # One take holds it, with any number of tasks.
            return 0 if taken > 0 else _ANY_NUMBER
        return self.options.parallel - taken

    def _within_rate(self, utube: str | None) -> int:
        """How many leases of a sub-queue its rate lets begin now."""
        rate = self.options.rate
        return _ANY_NUMBER if rate is None else rate.room(self._found(utube).moments, self.now_us)

    def _found(self, utube: str | None) -> UtubeMoments:
        return self.seen.moments.get(utube) or UtubeMoments(utube)


def remembers(options: TubeOptions) -> bool:
    """Whether the moments of leases are remembered."""
    return options.rate is not None or options.order == "fair"


def read_limits(ctx: TubeContext, now_us: int, leaving: Iterable[StoredTask] = ()) -> Limits:
    """Read the gates and the taken tasks. No commit; one query."""
    options = ctx.record.options
    # A sub-queue with tasks in an unreadable file gives none. But no number of tasks is known then.
    skips = ctx.driver.subqueues and options.most_taken is None
    seen = ctx.gates.read_with_taken(now_us, with_rows=remembers(options), skips=skips)
    return Limits(options, now_us, seen, Counter(row.utube for row in leaving))


def limits_now(ctx: TubeContext, leaving: Sequence[StoredTask] = ()) -> Limits | None:
    """The limits for one decision of a take; `None` if something had to be written first.

    Usually no commit; one for the first gates, or for ended leases.

    Args:
        ctx: The tube.
        leaving: The tasks that the same commit acks.
    """
    now_us = ctx.queue.now_us()
    if not ctx.driver.subqueues and ctx.record.options.most_taken is None:
        return Limits(ctx.record.options, now_us)
    limits = read_limits(ctx, now_us, leaving)
    if not limits.seen.numbers:
        _begin(ctx, now_us)
        return None
    if limits.have_ended:
        end_due(ctx, now_us)
        return None
    if remembers(limits.options):
        # A sweep may have removed moments that were over while the table was read, so leases begin after that.
        return replace(limits, now_us=ctx.queue.now_us())
    return limits


def _begin(ctx: TubeContext, now_us: int) -> None:
    """Write the gates before the first take. One commit."""
    # Where one lock keeps all takes apart, more gates would only be more rows. Without Spark, commits conflict by rows.
    several = ctx.driver.subqueues and not ctx.table_lock.is_exclusive
    apart = ctx.queue.engine.committer() is not None

    def attempt() -> Plan[None]:
        # Another program, perhaps with other gates, may have been faster.
        if ctx.gates.read(with_rows=False).numbers:
            return Plan(None, lambda _: None)
        begin = ctx.gates.begin(now_us, several=several, apart=apart)
        return Plan(begin, lambda _: None)

    ctx.queue.loop.run("begin", ctx.table_lock, attempt)


def within(requests: Sequence[TakeRequest], tasks: int | None) -> Sequence[TakeRequest]:
    """The requests of some calls, cut to so many tasks together. The first calls get their tasks first."""
    if tasks is None:
        return requests
    cut = []
    for request in requests:
        cut.append(replace(request, count=min(request.count, tasks)))
        tasks -= cut[-1].count
    return cut


def shared_out(
    heads: Iterable[SubqueueHead], requests: Sequence[TakeRequest], parallel: int
) -> list[dict[str | None, int]]:
    """Distribute sub-queues among calls, in the order of their first tasks.

    Args:
        heads: The sub-queues, each with the number of tasks that it may give.
        requests: The requests of the calls.
        parallel: With 1, each sub-queue goes to one call that takes from it.

    Returns:
        For each call, the number of tasks to take from each sub-queue.
    """
    left = {head.utube: head.count for head in heads}
    quotas: list[dict[str | None, int]] = [{} for _ in requests]
    # Calls that may take from any sub-queue leave the named ones to the others.
    named_first = sorted(
        zip(requests, quotas, strict=True), key=lambda pair: pair[0].utubes is None
    )
    for request, quota in named_first:
        room = request.count
        for utube in list(left):
            if room > 0 and (request.utubes is None or utube in request.utubes):
                quota[utube] = min(request.per_utube, left[utube], room)
                room -= quota[utube]
                left[utube] -= quota[utube]
                if parallel == 1 or not left[utube]:
                    del left[utube]
    return quotas


def turns_before(
    ctx: TubeContext, limits: Limits, utube: str | None, busy: Collection[str | None]
) -> int:
    """The number of sub-queues, in a fair tube and not busy, whose turn is before that of `utube`. No commit."""
    ready = ctx.table.is_ready(limits.now_us) & ctx.table.is_of(None, busy)
    heads = ctx.reader.heads(ready, _ALL, with_created=True)
    turns = [head.utube for head in sorted(heads, key=limits.turn)]
    return turns.index(utube) if utube in turns else 0


def forget_moments(ctx: TubeContext, now_us: int) -> None:
    """Remove moments of leases that no take needs any more. At most one commit.

    A moment that is further in the future than clocks differ is set to now: otherwise its sub-queue would wait
    until then.
    """
    options = ctx.record.options
    seen = ctx.gates.read(with_rows=True)
    if not seen.moments:
        return
    # The clock is read after the table, so that moments of this clock in the table are not in the future.
    clock_us = ctx.queue.now_us()
    try:
        kept = set(ctx.reader.counts("utube")) if options.order == "fair" else set[str | None]()
    except DamagedFileError:
        log.warning("moments of leases of %s stay", ctx.record.name, exc_info=True)
        return
    ahead_us = clock_us + limited_us(ctx.queue.config.skew)
    rate = options.rate
    texts: dict[str | None, str | None] = {}
    for utube, found in seen.moments.items():
        if utube not in kept and (
            # Never ahead of the clock: the moments would be removed while the rate still needs them.
            rate is None or rate.room(found.moments, min(now_us, clock_us)) == rate.tasks
        ):
            texts[utube] = None
        elif max(found.moments, default=0) > ahead_us:
            texts[utube] = moments_text(found.turn, begun(found.moments, clock_us, 0, 0))
    _tidy(ctx, seen, texts)


def _tidy(ctx: TubeContext, seen: GatesSeen, texts: Mapping[str | None, str | None]) -> None:
    """Change taken-utube rows; if a take comes first, the next sweep does."""
    if texts:
        change = seen.raised(texts, texts, all_takes=False)
        plan = Plan(ctx.take_writer.tidy(change, ctx.queue.now_us()), lambda _: None)
        with contextlib.suppress(ConflictError):
            ctx.queue.loop.impatient().run("forget", ctx.table_lock, lambda: plan)
