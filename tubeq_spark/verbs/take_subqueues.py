"""Takes in tubes with sub-queues: lock sub-queues first, then take. Each has one holder, and strict order.

Steps: make sure of the session's lease, choose free sub-queues by their first tasks, fence orphans
among them, lock them (a commit to `_tubeq_taken_utubes`), read their first tasks again, one MERGE
that takes these. An exchange acks in the same MERGE. The sub-queues that it continues stay locked, and it frees the
others afterwards. If it is interrupted before the MERGE, locks without tasks are left; after it,
the locks of the sub-queues that are not continued.

Between the lock and the MERGE of the take no other take takes from these sub-queues, unless the
take id was fenced; then the MERGE fails, the sub-queues are freed, and the take starts again. If
the MERGE moves only some of several tasks of a sub-queue, because a compaction or a sweep moved
others, these tasks are released first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.storage.statement import ExchangedRow
from tubeq_spark.verbs import subqueue_locks
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.most_taken import within
from tubeq_spark.verbs.renew import give_back
from tubeq_spark.verbs.subqueue_limits import SubqueueLimits
from tubeq_spark.verbs.subqueue_locks import AcquiredSubqueues, shared_out, shares_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.changes import Remove
    from tubeq_spark.model.lease_times import NewLease
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SubqueueHead, UtubeLock
    from tubeq_spark.storage.statement import Statement
    from tubeq_spark.verbs.choose import ChosenTasks
    from tubeq_spark.verbs.locate import NamedTasks

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class _InTheWay:
    """The locks that a take may replace.

    Attributes:
        orphans: Locks without tasks. Their take ids are fenced first.
        landed: Locks of takes that have committed, and have not freed them.
    """

    orphans: Sequence[UtubeLock] = ()
    landed: Sequence[UtubeLock] = ()

    @property
    def locks(self) -> list[UtubeLock]:
        """All locks that a take may replace."""
        return [*self.orphans, *self.landed]


class Acquisition:
    """The utube locks of one take, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Lock for several calls at once. All of them name sub-queues, or none does."""
        self._ctx = ctx
        self._all_requests = requests
        #: The largest number of tasks for all calls together; `None` sets no limit.
        self.room: int | None = None
        addresses = {request.utubes for request in requests}
        named = [utubes for utubes in addresses if utubes is not None]
        #: The sub-queues that the calls name; `None` is all sub-queues.
        self._among = frozenset[str | None]().union(*named) if named else None
        #: The number of heads to read. One more than is wanted shows whether other sub-queues have ready tasks.
        self._most = sum(request.count for request in requests) + 1
        if self._among is not None and len(addresses) > 1:
            # All first heads may be in the sub-queues of one call, so the heads of all named ones are read.
            self._most = len(self._among)
        self._abandoned: list[int] = []
        self._limits = SubqueueLimits(ctx, 0)
        #: The tasks that an exchange acks. A take has none.
        self.leaving: list[StoredTask] = []
        #: By sub-queue, the moment and the number of leases that were written before a MERGE that has failed.
        self._unused: dict[str | None, tuple[int, int]] = {}
        #: Whether an attempt did not find a lock that the exchange keeps.
        self._has_lost = False
        self._is_first = True

    @property
    def _requests(self) -> Sequence[TakeRequest]:
        return within(self._all_requests, self.room)

    def free_abandoned(self) -> None:
        """Free the locks of an attempt that took no task."""
        subqueue_locks.free_locks(self._ctx, self._abandoned)
        self._abandoned = []

    def acquire(self, mine: Mapping[str | None, int] | None = None) -> AcquiredSubqueues | None:
        """Lock sub-queues for the calls; `None` if none is free.

        Args:
            mine: The take ids of held sub-queues that an exchange continues. These need no new lock.
        """
        ctx, mine = self._ctx, mine or {}
        self.free_abandoned()
        if self._is_fenced(mine):
            return None
        owner = ctx.queue.taker()
        now_us = ctx.queue.now_us()
        self._limits = limits = SubqueueLimits(ctx, now_us, self.leaving, self._unused)
        heads, in_the_way, none_busy = self._free(now_us, mine)
        quotas = shared_out(heads, self._requests)
        chosen = {utube for quota in quotas for utube in quota}
        if not chosen:
            return None
        met = [lock for lock in in_the_way.locks if lock.utube in chosen]
        orphans = [lock for lock in met if lock in in_the_way.orphans]
        if len(subqueue_locks.fence(ctx, orphans, now_us)) < len(orphans):
            raise Stale
        fresh = iter(ctx.queue.session.segments(sum(bool(quota) for quota in quotas)))
        take_ids = [next(fresh) if quota else None for quota in quotas]
        counts = {head.utube: head.count for head in heads}
        whole = all(n >= counts[utube] for quota in quotas for utube, n in quota.items())
        alone = whole and none_busy and len(take_ids) == 1 and len(chosen) == len(heads)
        # The heads of sub-queues that no call names were not read.
        alone = alone and self._among is None
        acquired = AcquiredSubqueues(owner, now_us, take_ids, mine, quotas, whole, alone)
        seen = {lock.utube: lock.take_id for lock in met}
        wanted = [(u, t, seen.get(u)) for u, t in acquired.take_id_of.items() if u not in mine]
        begun = limits.begun(acquired.quota)
        if not wanted and not begun:
            return limits.confirmed(acquired)
        # Recorded before the commit, so that a lock is also freed if its commit raised but
        # succeeded.
        self._abandoned = acquired.used_take_ids
        got = subqueue_locks.acquire(ctx, wanted, owner, now_us, begun)
        if got < len(wanted) + len(begun):
            if not got:
                self._abandoned = []
            raise Stale
        if begun:
            self._unused |= {utube: (now_us, n) for utube, n in acquired.quota.items()}
            acquired = replace(acquired, begins_us=now_us)
        return limits.confirmed(acquired)

    def _is_fenced(self, mine: Mapping[str | None, int]) -> bool:
        """Whether a take id that an exchange keeps is fenced, so that no MERGE with it can commit any more.

        Another take has fenced it because it saw the lock without tasks, just before the tasks were committed.
        This is checked only after a conflict.
        """
        is_first, self._is_first = self._is_first, False
        if is_first or not mine:
            return False
        return bool(
            self._ctx.subqueue_reader.fenced(mine.values()) & {(t, u) for u, t in mine.items()}
        )

    def _free(
        self, now_us: int, mine: Mapping[str | None, int]
    ) -> tuple[list[SubqueueHead], _InTheWay, bool]:
        """Find the sub-queues that can be locked.

        Returns:
            The heads of the sub-queues that may give tasks, at most one more than wanted; the locks that may be
            replaced; whether no sub-queue is held and the tube has no limits.
        """
        ctx, reader, limits = self._ctx, self._ctx.subqueue_reader, self._limits
        for _ in range(2):
            seen = subqueue_locks.lock_states(ctx, now_us)
            live = {lock.utube: lock.take_id for lock in seen.live}
            if any(live.get(utube) != take_id for utube, take_id in mine.items()):
                if self._has_lost:  # by a program that has seen `parallel` altered
                    return [], _InTheWay(), False
                self._has_lost = True
                raise Stale
            busy = {utube for utube, take_id in live.items() if mine.get(utube) != take_id}
            if limits.replace_locks:
                busy = set()
            busy.update(lock.utube for lock in seen.fresh)
            busy |= limits.look()
            heads = reader.heads(
                now_us,
                ctx.max_attempts,
                busy,
                limits.most_heads(self._most),
                self._among,
                with_created=limits.by_turn,
            )
            # A touch may still extend an ended lease, until its end is written.
            has_ended = seen.has_ended or limits.have_ended
            if not has_ended and not any(head.in_lease_segment for head in heads):
                in_the_way = _InTheWay(seen.orphans, seen.live if limits.replace_locks else [])
                none_busy = not live and not seen.fresh and not limits.matter
                return limits.cut(heads), in_the_way, none_busy
            end_due(ctx, now_us)
        raise Stale

    def incomplete(self, acquired: AcquiredSubqueues) -> bool:
        """Undo a MERGE that has moved fewer tasks than chosen, if the order could be wrong.

        If a take gets several tasks of a sub-queue, a compaction or a sweep may have moved the
        first one before the MERGE. Then the take must not return the later ones. No caller has
        these tasks yet; if the take is interrupted before it releases them, their leases end by their ttr. Tasks
        that other commits have deleted or buried meanwhile do not matter.

        Returns:
            Whether all tasks were given back.
        """
        ctx = self._ctx
        self._used(acquired)
        if max(acquired.quota.values()) == 1 or not ctx.reader.is_behind(
            acquired.used_take_ids, acquired.now_us, ctx.max_attempts
        ):
            return False
        # If this is interrupted, the locks must not be freed: they have tasks until these are given back.
        abandoned, self._abandoned = self._abandoned, []
        give_back(ctx, set(acquired.take_id_of.values()), acquired.owner)
        self._abandoned = abandoned
        return True

    def _used(self, acquired: AcquiredSubqueues) -> None:
        """Note that the leases whose moments were written have begun."""
        for utube in acquired.quota:
            self._unused.pop(utube, None)

    def landed(self, acquired: AcquiredSubqueues, utubes: Iterable[str | None]) -> None:
        """Free locks after a committed MERGE: those of sub-queues without taken tasks, or all with `parallel > 1`.

        Args:
            acquired: The locked sub-queues.
            utubes: The sub-queues with taken tasks.
        """
        self._abandoned = []
        self._used(acquired)
        ctx, limits = self._ctx, self._limits
        if limits.replace_locks:
            # No lock is kept, and the acked tasks may have locks of takes under `parallel=1`.
            subqueue_locks.given_back(ctx, self.leaving, whole=False)
        if not limits.hold_locks:
            subqueue_locks.free_locks(ctx, acquired.used_take_ids)
            return
        take_id_of = dict(acquired.kept) | acquired.take_id_of
        empty = set(take_id_of).difference(utubes)
        if empty:
            take_ids = {take_id_of[utube] for utube in empty}
            subqueue_locks.free_locks(ctx, take_ids, empty, whole=False)


class TakeSubqueues:
    """One take in a tube with sub-queues, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for several calls at once. Each call gets sub-queues of its own."""
        self._ctx = ctx
        self._acquisition = Acquisition(ctx, requests)
        #: The largest number of tasks for all calls together; `None` sets no limit.
        self.room: int | None = None
        #: The tasks chosen by the newest attempt.
        self.chosen: SubqueueChoice[Any] | None = None

    def give_up(self) -> None:
        """Undo preparations of failed attempts: free the sub-queues that they have locked."""
        self._acquisition.free_abandoned()

    def kept(self, ids: Sequence[int], found: NamedTasks) -> dict[str | None, int] | None:
        """The utube locks that an exchange keeps; `None` if the ack needs a commit of its own."""
        if not found.whole:
            return None
        self._acquisition.leaving = found.rows
        if self._ctx.record.options.parallel > 1:
            return {}
        if self._ctx.queue.held_tasks.find(self._ctx.record.id, ids) is None:
            # The tasks may be those of a batch. A batch finds its tasks by its take id, so no others may get that id.
            return None
        return {row.utube: row.take_id for row in found.rows if row.take_id is not None}

    def choose(
        self, kind: type[ChosenTasks[H]], kept: Mapping[str | None, int] | None = None
    ) -> SubqueueChoice[H] | None:
        """Lock sub-queues and choose their first tasks; `None` if none is free.

        Raises:
            Stale: Another commit came first, or a lease has ended.
        """
        self._acquisition.room = self.room
        acquired = self._acquisition.acquire(kept)
        if acquired is None:
            return None
        tasks = kind.of_subqueues(self._ctx, acquired)
        if not tasks.count or tasks.in_lease_segment:
            raise Stale
        choice = SubqueueChoice(self._ctx, tasks, self._acquisition, acquired)
        self.chosen = choice
        return choice


@dataclass(frozen=True, slots=True)
class SubqueueChoice(Generic[H]):
    """The tasks that one attempt moves."""

    ctx: TubeContext
    tasks: ChosenTasks[H]
    acquisition: Acquisition
    acquired: AcquiredSubqueues

    @property
    def owner(self) -> str:
        """The owner of the take."""
        return self.acquired.owner

    @property
    def now_us(self) -> int:
        """The time for which the sub-queues were chosen."""
        return self.acquired.now_us

    @property
    def begins_us(self) -> int | None:
        """The moment at which its leases begin, if it was written."""
        return self.acquired.begins_us

    @property
    def take_ids(self) -> Sequence[int | None]:
        """The take id of each call; `None` for a call without tasks."""
        return self.acquired.take_ids

    def destination(self, utube: str | None, _place: OrderPosition) -> tuple[int, int]:
        """The lease segment and the take id of a task."""
        return self.acquired.lease_segment_of[utube], self.acquired.take_id_of[utube]

    def take(self, lease: NewLease) -> Statement:
        """The statement that moves the tasks."""
        tasks, statements = self.tasks, self.ctx.subqueue_writer
        if tasks.is_all_that_is_ready:
            return statements.take_all(
                tasks.segments, self.acquired.used_take_ids[0], lease, self.now_us, tasks.count
            )
        shares = shares_of(tasks.places, self.acquired)
        return statements.take(tasks.segments, shares, lease, self.now_us, tasks.count)

    def exchange(
        self, found: NamedTasks, _moves: Mapping[int, int], lease: NewLease, removal: Remove
    ) -> Statement:
        """The statement that moves the tasks and removes the acked ones, which are whole lease segments."""
        return self.ctx.subqueue_writer.exchange(
            _acked(found),
            self.tasks.segments,
            shares_of(self.tasks.places, self.acquired),
            self.acquired.used_take_ids[0],
            lease,
            self.now_us,
            self.tasks.count + len(found.rows),
            removal,
        )

    def undone(self) -> bool:
        """Undo a statement that moved fewer tasks, if necessary; return whether it was undone."""
        return self.acquisition.incomplete(self.acquired)

    def landed(self, utubes: set[str | None]) -> None:
        """After the commit: free locked sub-queues without taken tasks."""
        self.acquisition.landed(self.acquired, utubes)


def _acked(found: NamedTasks) -> list[ExchangedRow]:
    """The source rows for the acked tasks. They name every task of remembered lease segments."""
    if found.remembered:
        return [ExchangedRow(row.segment, row.utube, row.task_id) for row in found.rows]
    return list(dict.fromkeys(ExchangedRow(row.segment, row.utube) for row in found.rows))
