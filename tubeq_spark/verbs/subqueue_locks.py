"""Locks sub-queues before their tasks are taken, frees them afterwards, and distributes them among calls.

A take fences the take ids of orphans among the chosen sub-queues and reads these again, locks the sub-queues,
*then* reads their first tasks, and takes these. A verb that gives tasks back changes the tube first. If it then
finds no task with the take id, it removes the lock, by its take id. An interruption leaves at most an orphan,
a lock without tasks. The next take of that sub-queue takes it over, or a sweep removes it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError, TubeqError
from tubeq_spark.model.times import US
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.log.commit_text import DamagedFileError
from tubeq_spark.storage.statement import SubqueueShare
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.limits import NewMoments
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SubqueueHead, UtubeLock

log = logging.getLogger(__name__)
#: A queue object that sees a lock for the first time leaves it alone for this many times
#: `claim_grace`.
_UNSEEN = 60


@dataclass(frozen=True, slots=True)
class LockStates:
    """All utube locks of a tube, grouped by whether tasks have their take ids.

    Attributes:
        live: Locks whose take ids stored tasks have. It does not matter whether their leases have ended: clocks
            differ, and a touch that was decided before the end may still commit.
        fresh: Locks without tasks whose takes may be about to commit. Other takes leave them alone.
        orphans: Locks without tasks that any take may replace.
        has_ended: Whether all leases of one of the live locks have ended, and their ends are not written yet.
    """

    live: list[UtubeLock]
    fresh: list[UtubeLock]
    orphans: list[UtubeLock]
    has_ended: bool


def lock_states(ctx: TubeContext, now_us: int) -> LockStates:
    """Read all utube locks. No commit."""
    everything = ctx.utube_locks.all()
    stored = _stored_under(ctx, everything, now_us)
    live = [lock for lock in everything if (lock.take_id, lock.utube) in stored]
    empty = [lock for lock in everything if (lock.take_id, lock.utube) not in stored]
    # With an exclusive table lock no other take is between its two commits.
    fresh = set() if ctx.table_lock.is_exclusive else _fresh(ctx, empty, now_us)
    return LockStates(
        live,
        [lock for lock in empty if lock.take_id in fresh],
        [lock for lock in empty if lock.take_id not in fresh],
        any(stored.values()),
    )


def _stored_under(
    ctx: TubeContext, everything: Sequence[UtubeLock], now_us: int
) -> dict[tuple[int, str | None], bool]:
    """The locks with stored taken tasks, and for each whether all leases of these have ended.

    A lock whose tasks may be in a data file that cannot be read counts as one with tasks.
    """
    try:
        return ctx.subqueue_reader.stored_under({lock.take_id for lock in everything}, now_us)
    except DamagedFileError:
        stored = dict[tuple[int, str | None], bool]()
    for lock in everything:
        try:
            stored |= ctx.subqueue_reader.stored_under([lock.take_id], now_us)
        except DamagedFileError:
            stored[lock.take_id, lock.utube] = False
    return stored


def _fresh(ctx: TubeContext, empty: Sequence[UtubeLock], now_us: int) -> set[int]:
    """The take ids of fresh locks without tasks, which others leave alone for a while.

    A take commits its tasks some time after its lock; how long after depends on the storage. So others wait for
    `claim_grace`, counted from when this queue object first saw the lock. A queue object that sees the lock for
    the first time, such as a sweep that runs once, does not wait if the take began much longer ago by its clock.
    """
    grace = round(ctx.queue.config.claim_grace * US)
    for take_id in set(ctx.sightings).difference(lock.take_id for lock in empty):
        ctx.sightings.pop(take_id, None)
    fresh = set()
    for lock in empty:
        # If the clock was set back since the first look, the time counts from now.
        seen = ctx.sightings[lock.take_id] = min(ctx.sightings.get(lock.take_id, now_us), now_us)
        if now_us < min(seen + grace, lock.taken_at + _UNSEEN * grace):
            fresh.add(lock.take_id)
    return fresh


def fence(ctx: TubeContext, orphans: Sequence[UtubeLock], now_us: int) -> list[UtubeLock]:
    """Fence the take ids of orphans, so that no take with one of them can commit. One commit, or none.

    Returns:
        The locks that are still orphans, because their takes did not commit before the fence.
    """
    if not orphans:
        return []

    def attempt() -> Plan[list[UtubeLock]]:
        # A sweep has read the orphans without the table's lock, which a take holds during both of its commits.
        there = {(lock.take_id, lock.utube) for lock in ctx.utube_locks.all()}
        left = _without_tasks(ctx, [o for o in orphans if (o.take_id, o.utube) in there])
        if not left:
            return Plan(None, lambda _: [])
        pairs = [(orphan.take_id, orphan.utube) for orphan in left]
        return Plan(ctx.subqueue_writer.fence(pairs, now_us), lambda _: left)

    fenced = ctx.queue.loop.run("burn", ctx.table_lock, attempt)
    return _without_tasks(ctx, fenced)


def _without_tasks(ctx: TubeContext, locks: Sequence[UtubeLock]) -> list[UtubeLock]:
    if not locks:
        return []
    stored = ctx.subqueue_reader.taken_under({lock.take_id for lock in locks})
    return [lock for lock in locks if (lock.take_id, lock.utube) not in stored]


def acquire(
    ctx: TubeContext,
    wanted: Sequence[tuple[str | None, int, int | None]],
    owner: str,
    now_us: int,
    begun: Sequence[NewMoments] = (),
) -> int:
    """Lock sub-queues, each with a take id and the lock that it replaces. One commit.

    Args:
        ctx: The tube.
        wanted: For each sub-queue: its name, the take id, and the take id of the lock to replace, or `None`.
        owner: The session that locks.
        now_us: The moment of the take.
        begun: The moments of leases that the same commit writes.

    Returns:
        The number of written rows. It is less than wanted if other takes have locked the rest first, and 0 after
        a conflict. With `begun` it is all or 0.
    """
    operation_id = ctx.queue.session.segments(1)[0]
    if begun:
        statement = ctx.utube_history.acquire(wanted, begun, owner, now_us, operation_id)
    else:
        statement = ctx.utube_locks.acquire(wanted, owner, now_us, operation_id)
    table_lock = ctx.utube_locks.table_lock
    plan = Plan(statement, lambda affected: affected.total)
    try:
        return ctx.queue.loop_without_retry.run("claim", table_lock, lambda: plan)
    except ConflictError:
        return 0


def free_locks(
    ctx: TubeContext,
    take_ids: Collection[int],
    utubes: Collection[str | None] | None = None,
    *,
    whole: bool = True,
) -> None:
    """Remove utube locks whose tasks were given back or never taken. One commit.

    A failure is logged, and leaves orphans.

    Args:
        ctx: The tube.
        take_ids: The take ids of the locks.
        utubes: The sub-queues of the locks, if they are known.
        whole: Whether to remove all locks with these take ids, or only those of `utubes`.
    """
    if not take_ids:
        return

    def attempt() -> Plan[None]:
        operation_id = ctx.queue.session.segments(1)[0]
        if whole or utubes is None:
            statement = ctx.utube_locks.free_all(take_ids, utubes, operation_id)
        else:
            statement = ctx.utube_locks.free(take_ids, utubes, operation_id)
        return Plan(statement, lambda _: None)

    try:
        ctx.queue.loop.run("free", ctx.utube_locks.table_lock, attempt)
    except TubeqError:
        log.warning("utube locks of %s are left to others", ctx.record.name, exc_info=True)


def given_back(ctx: TubeContext, rows: Iterable[StoredTask], *, whole: bool) -> None:
    """Free the sub-queues of tasks that were just given back or removed.

    Args:
        ctx: The tube.
        rows: The tasks before the change.
        whole: Whether their takes have no other tasks left.
    """
    if not ctx.driver.subqueues:
        return
    taken = [row for row in rows if row.state is TaskState.TAKEN and row.take_id is not None]
    pairs = {(row.take_id, row.utube) for row in taken if row.take_id is not None}
    if whole and ctx.record.options.parallel == 1:
        _free_pairs(ctx, pairs, whole=True)
    else:
        free_ended(ctx, pairs)


def held_in(ctx: TubeContext, segments: Collection[int]) -> set[tuple[int, str | None]]:
    """The take ids and sub-queues of taken tasks in some segments, read before their leases are ended."""
    if not ctx.driver.subqueues or not segments:
        return set()
    return ctx.subqueue_reader.taken_in(segments)


def free_ended(ctx: TubeContext, pairs: set[tuple[int, str | None]]) -> None:
    """Remove the locks among these that have no tasks. One commit, or none.

    Their takes have committed, so no take id need be fenced. A task with an ended lease counts as a task of the
    lock, because a touch that was decided before the end may still commit.
    """
    if pairs and ctx.record.options.parallel > 1:
        # Takes free their locks themselves, so only locks of takes under `parallel=1` are left.
        pairs = pairs & {(lock.take_id, lock.utube) for lock in ctx.utube_locks.all()}
    if pairs:
        try:
            stored = ctx.subqueue_reader.taken_under({take_id for take_id, _ in pairs})
        except DamagedFileError:
            log.warning("utube locks of %s stay", ctx.record.name, exc_info=True)
            return
        _free_pairs(ctx, pairs - stored, whole=False)


def _free_pairs(ctx: TubeContext, pairs: set[tuple[int, str | None]], *, whole: bool) -> None:
    if pairs:
        take_ids, utubes = {take_id for take_id, _ in pairs}, {utube for _, utube in pairs}
        free_locks(ctx, take_ids, utubes, whole=whole)


def free_held(ctx: TubeContext, take_id: int, *, whole: bool) -> None:
    """Free the sub-queues that a take no longer holds, after some of its tasks were released."""
    if not ctx.driver.subqueues:
        return
    if whole and ctx.record.options.parallel == 1:
        free_locks(ctx, [take_id])
        return
    try:
        stored = ctx.subqueue_reader.taken_under([take_id])
    except DamagedFileError:
        log.warning("utube locks of %s stay", ctx.record.name, exc_info=True)
        return
    everything = ctx.utube_locks.all()
    left = [t for t in everything if t.take_id == take_id and (take_id, t.utube) not in stored]
    if left:
        free_locks(ctx, [take_id], [lock.utube for lock in left], whole=False)


def free_orphans(ctx: TubeContext, now_us: int) -> None:
    """Remove utube locks without tasks. Two commits, none if all have tasks."""
    if not ctx.driver.subqueues:
        return
    orphans = fence(ctx, lock_states(ctx, now_us).orphans, now_us)
    _free_pairs(ctx, {(lock.take_id, lock.utube) for lock in orphans}, whole=False)


def free_dropped(ctx: TubeContext) -> None:
    """Remove all utube locks of an emptied tube, in which no take commits any more. One commit, or none."""
    if ctx.driver.subqueues:
        free_locks(ctx, {lock.take_id for lock in ctx.utube_locks.all()})


@dataclass(frozen=True)
class AcquiredSubqueues:
    """Locked sub-queues, distributed among some calls.

    Attributes:
        owner: The session that holds them.
        now_us: The moment for which the sub-queues were chosen.
        take_ids: The take id of each call; `None` for a call that found no task.
        kept: The take ids of sub-queues that were held before.
        quotas: For each call, the number of tasks to take from each sub-queue.
        whole: Whether the quotas include all ready tasks of these sub-queues.
        alone: Whether there is one call with all ready tasks of the tube, and no sub-queue was held.
        begins_us: The moment at which its leases begin, if it was written; `None`: when the MERGE is decided.
    """

    owner: str
    now_us: int
    take_ids: list[int | None]
    kept: Mapping[str | None, int]
    quotas: list[dict[str | None, int]]
    whole: bool
    alone: bool
    begins_us: int | None = None

    @property
    def used_take_ids(self) -> list[int]:
        """The take ids of calls that get tasks."""
        return [take_id for take_id in self.take_ids if take_id is not None]

    @property
    def quota(self) -> dict[str | None, int]:
        """The number of tasks of each sub-queue. Each sub-queue goes to one call."""
        return {utube: n for quotas in self.quotas for utube, n in quotas.items()}

    @cached_property
    def lease_segment_of(self) -> dict[str | None, int]:
        """The lease segment for the tasks of each sub-queue."""
        pairs = zip(self.take_ids, self.quotas, strict=True)
        return {u: take_id for take_id, quotas in pairs if take_id is not None for u in quotas}

    @cached_property
    def take_id_of(self) -> dict[str | None, int]:
        """The take id of each sub-queue: the kept one, or its new lease segment."""
        fresh = self.lease_segment_of
        return fresh | {u: take_id for u, take_id in self.kept.items() if u in fresh}


def shared_out(
    heads: Sequence[SubqueueHead], requests: Sequence[TakeRequest]
) -> list[dict[str | None, int]]:
    """Distribute sub-queues in the order of their first tasks; each goes to one call that takes from it."""
    left = heads
    quotas: list[dict[str | None, int]] = []
    for call in requests:
        quota: dict[str | None, int] = {}
        room = call.count
        others = []
        for head in left:
            if room > 0 and (call.utubes is None or head.utube in call.utubes):
                quota[head.utube] = min(call.per_utube, head.count, room)
                room -= quota[head.utube]
            else:
                others.append(head)
        left = others
        quotas.append(quota)
    return quotas


def shares_of(
    places: Iterable[tuple[str | None, OrderPosition]], acquired: AcquiredSubqueues
) -> list[SubqueueShare]:
    """The shares of a take: for each sub-queue all tasks up to its last position."""
    last: dict[str | None, OrderPosition] = {}
    for utube, position in places:
        if utube not in last or position > last[utube]:
            last[utube] = position
    take_id_of = acquired.take_id_of
    return [SubqueueShare(utube, position, take_id_of[utube]) for utube, position in last.items()]
