"""Locks sub-queues before a take: choose, fence orphans, lock; and undoes this.

Between the lock and the MERGE of the take no other take takes from these sub-queues, unless the
take id was fenced; then the MERGE fails, the sub-queues are freed, and the take starts again. If
the MERGE moves only some of several tasks of a sub-queue, because a compaction or a sweep moved
others, these tasks are released first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.subqueues import locks
from tubeq_spark.subqueues.shares import AcquiredSubqueues, shared_out
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.renew_leases import give_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.segment_facts import SubqueueHead, UtubeLock

__all__ = ["Acquisition"]


class Acquisition:
    """The utube locks of one take, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Lock for some calls at once."""
        self._ctx = ctx
        self._requests = requests
        self._abandoned: list[int] = []

    def free_abandoned(self) -> None:
        """Free the locks for a MERGE that has failed: no task was taken."""
        locks.free_locks(self._ctx, self._abandoned)
        self._abandoned = []

    def acquire(self, mine: Mapping[str | None, int] | None = None) -> AcquiredSubqueues | None:
        """Lock sub-queues for the calls; `None` if none is free.

        Args:
            mine: Take ids of sub-queues that are held, and about to be free: these need no
                lock.
        """
        ctx, mine = self._ctx, mine or {}
        self.free_abandoned()
        owner = ctx.queue.taker()
        now_us = ctx.queue.now_us()
        heads, orphans, none_busy = self._free(now_us, mine)
        quotas = shared_out(heads, self._requests)
        chosen = {utube for quota in quotas for utube in quota}
        if not chosen:
            return None
        met = [orphan for orphan in orphans.values() if orphan.utube in chosen]
        if len(locks.fence(ctx, met, now_us)) < len(met):
            raise Stale
        fresh = iter(ctx.queue.session.segments(sum(bool(quota) for quota in quotas)))
        take_ids = [next(fresh) if quota else None for quota in quotas]
        counts = {head.utube: head.count for head in heads}
        whole = all(n >= counts[utube] for quota in quotas for utube, n in quota.items())
        alone = whole and none_busy and len(take_ids) == 1 and len(chosen) == len(heads)
        acquired = AcquiredSubqueues(owner, now_us, take_ids, mine, quotas, whole, alone)
        seen = {orphan.utube: orphan.take_id for orphan in met}
        wanted = [(u, t, seen.get(u)) for u, t in acquired.take_id_of.items() if u not in mine]
        if not wanted:
            return acquired
        # Recorded before the commit, so that a lock is also freed if its commit raised but
        # succeeded.
        self._abandoned = acquired.used_take_ids
        got = locks.acquire(ctx, wanted, owner, now_us)
        if got < len(wanted):
            if not got:
                self._abandoned = []
            raise Stale
        return acquired

    def _free(
        self, now_us: int, mine: Mapping[str | None, int]
    ) -> tuple[list[SubqueueHead], dict[str | None, UtubeLock], bool]:
        """Sub-queues that can be locked.

        Returns:
            The heads of those that nobody holds, one more than is wanted; the orphaned locks
            among these; whether nobody holds any.
        """
        ctx = self._ctx
        most = sum(request.count for request in self._requests)
        for _ in range(2):
            seen = locks.lock_states(ctx, now_us)
            live = {lock.utube: lock.take_id for lock in seen.live}
            if any(live.get(utube) != take_id for utube, take_id in mine.items()):
                raise Stale
            busy = {utube for utube, take_id in live.items() if mine.get(utube) != take_id}
            busy.update(lock.utube for lock in seen.fresh)
            heads = ctx.subqueue_reader.heads(now_us, ctx.max_attempts, busy, most + 1)
            # A lease that has ended may not be ready any more: written down, no touch revives it.
            if not seen.has_ended and not any(head.in_lease_segment for head in heads):
                orphans = {orphan.utube: orphan for orphan in seen.orphans}
                return heads, orphans, not live and not seen.fresh
            end_due(ctx, now_us)
        raise Stale

    def incomplete(self, acquired: AcquiredSubqueues) -> bool:
        """After a MERGE that moved fewer tasks: undo it if the order could be wrong.

        If a take gets several tasks of a sub-queue, a compaction or a sweep may have moved the
        first one before the MERGE. Then the take must not return the later ones. No caller has
        these tasks yet; if it is interrupted before it releases them, their leases end. Tasks that
        others have deleted or buried meanwhile do not matter.

        Returns:
            Whether it has given all tasks back.
        """
        ctx = self._ctx
        if max(acquired.quota.values()) == 1 or not ctx.reader.is_behind(
            acquired.used_take_ids, acquired.now_us, ctx.max_attempts
        ):
            return False
        # There are tasks under them, until they are given back.
        abandoned, self._abandoned = self._abandoned, []
        give_back(ctx, set(acquired.take_id_of.values()), acquired.owner)
        self._abandoned = abandoned
        return True

    def landed(self, acquired: AcquiredSubqueues, utubes: Iterable[str | None]) -> None:
        """After a committed MERGE: free the locked sub-queues without taken tasks.

        Args:
            acquired: What was locked.
            utubes: The sub-queues that it took from.
        """
        self._abandoned = []
        take_id_of = dict(acquired.kept) | acquired.take_id_of
        empty = set(take_id_of).difference(utubes)
        if empty:
            take_ids = {take_id_of[utube] for utube in empty}
            locks.free_locks(self._ctx, take_ids, empty, whole=False)
