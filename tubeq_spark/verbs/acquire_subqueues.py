"""Claiming sub-queues for a take, before it takes: choose, burn orphans, claim, and undo.

Between the claim and the MERGE that takes nobody else takes from these sub-queues, unless the token
was burnt; then the MERGE fails. When it does, the claims are freed and all begins anew. When it
moves only some of several tasks of a sub-queue, because a fold or a sweep moved others, these go
back first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import ConflictError, NotTakenError
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.subqueues import locks
from tubeq_spark.subqueues.shares import Claimed, shared_out
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.renew_leases import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark.rules.arguments import Wanted
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.spark.subqueue_reads import SubqueueHead
    from tubeq_spark.storage.spark.utube_locks import TakenUtube

__all__ = ["Take"]

T = TypeVar("T")


class Take:
    """One take, over all its attempts."""

    def __init__(self, ctx: TubeContext, wanted: Sequence[Wanted]) -> None:
        """Take for some calls at once."""
        self.ctx = ctx
        self._wanted = wanted
        self._abandoned: list[int] = []

    def run(self, attempt: Callable[[Take], Plan[T]], operation: str = "take") -> T:
        """Commit what `attempt` decides; what was claimed in vain is freed."""
        try:
            result = self.ctx.queue.loop.run(operation, self.ctx.lane, lambda: attempt(self))
        except (ConflictError, NotTakenError):
            self._free_abandoned()
            raise
        # Of an attempt that was repeated, and then found nothing to do.
        self._free_abandoned()
        return result

    def _free_abandoned(self) -> None:
        # Their MERGE has failed for good: nothing was, or will be, taken under these tokens.
        locks.free_tokens(self.ctx, self._abandoned)
        self._abandoned = []

    def claimed(self, mine: Mapping[str | None, int] | None = None) -> Claimed | None:
        """Claim sub-queues for the calls; `None` when none is free.

        Args:
            mine: Tokens of sub-queues that are held, and about to be free: these need no claim.
        """
        ctx, mine = self.ctx, mine or {}
        self._free_abandoned()
        owner = ctx.queue.taker()
        now_us = ctx.queue.now_us()
        heads, orphans, none_busy = self._free(now_us, mine)
        quotas = shared_out(heads, self._wanted)
        chosen = {utube for quota in quotas for utube in quota}
        if not chosen:
            return None
        met = [orphan for orphan in orphans.values() if orphan.utube in chosen]
        if len(locks.burn(ctx, met, now_us)) < len(met):
            raise Stale
        fresh = iter(ctx.queue.session.segments(sum(bool(quota) for quota in quotas)))
        tokens = [next(fresh) if quota else None for quota in quotas]
        counts = {head.utube: head.count for head in heads}
        whole = all(n >= counts[utube] for quota in quotas for utube, n in quota.items())
        alone = whole and none_busy and len(tokens) == 1 and len(chosen) == len(heads)
        claimed = Claimed(owner, now_us, tokens, mine, quotas, whole, alone)
        seen = {orphan.utube: orphan.claim for orphan in met}
        wanted = [(u, t, seen.get(u)) for u, t in claimed.token_of().items() if u not in mine]
        if not wanted:
            return claimed
        # Before the commit: one that was made, though it raised, is freed with the others.
        self._abandoned = claimed.claims
        got = locks.claim(ctx, wanted, owner, now_us)
        if got < len(wanted):
            if not got:
                self._abandoned = []
            raise Stale
        return claimed

    def _free(
        self, now_us: int, mine: Mapping[str | None, int]
    ) -> tuple[list[SubqueueHead], dict[str | None, TakenUtube], bool]:
        """Sub-queues that can be claimed.

        Returns:
            The heads of those that nobody holds, one more than is wanted; the orphaned claims among
            these; whether nobody holds any.
        """
        ctx = self.ctx
        most = sum(wanted.count for wanted in self._wanted)
        for _ in range(2):
            seen = locks.claims(ctx, now_us)
            live = {taken.utube: taken.claim for taken in seen.live}
            if any(live.get(utube) != token for utube, token in mine.items()):
                raise Stale
            busy = {utube for utube, token in live.items() if mine.get(utube) != token}
            busy.update(taken.utube for taken in seen.fresh)
            heads = ctx.subqueues.heads(now_us, ctx.max_attempts, busy, most + 1)
            # A lease that has ended may not be ready any more: written down, no touch revives it.
            if not seen.has_ended and not any(head.in_claim for head in heads):
                orphans = {orphan.utube: orphan for orphan in seen.orphans}
                return heads, orphans, not live and not seen.fresh
            end_due(ctx, now_us)
        raise Stale

    def incomplete(self, claimed: Claimed) -> bool:
        """The MERGE has moved fewer tasks than were chosen: undo what could be out of order.

        Of a sub-queue that gave several tasks the first may have been moved away, by a fold or a
        sweep, before the MERGE: what came after it must not be handed out now. Nobody has seen
        these tasks; stopped before they are back, their leases end. What rivals have deleted or
        buried is nobody's next task, and undoes nothing.

        Returns:
            Whether it has given all tasks back.
        """
        ctx = self.ctx
        if max(claimed.quota.values()) == 1 or not ctx.tasks.is_behind(
            claimed.claims, claimed.now_us, ctx.max_attempts
        ):
            return False
        # There are tasks under them, until they are given back.
        abandoned, self._abandoned = self._abandoned, []
        give_back(ctx, set(claimed.token_of().values()), claimed.owner)
        self._abandoned = abandoned
        return True

    def taken(self, claimed: Claimed, utubes: Iterable[str | None]) -> None:
        """The MERGE has committed: free what was claimed for nothing."""
        self._abandoned = []
        token_of = dict(claimed.kept) | claimed.token_of()
        empty = set(token_of).difference(utubes)
        if empty:
            tokens = {token_of[utube] for utube in empty}
            locks.free_tokens(self.ctx, tokens, empty, whole=False)
