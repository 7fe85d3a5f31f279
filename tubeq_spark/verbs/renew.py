"""Renews the leases of a slow take, and undoes a take that would be out of order.

A lease begins at the take's decision, and the commit takes time. So after the commit a take reads
the clock. If less than most of a ttr is left, it renews its leases by one more guarded commit
(`outlast`), before the tasks are returned. If it is interrupted before that, the tasks belong to
the session until their leases end. If another commit has written that the leases ended, and may
have taken the tasks, the guard fails; then the take reads which tasks remain, and renews their
leases. The session's own lease must last, too: if the session is dead, the take releases all of its
tasks.

If other commits moved tasks away between the read and the statement, and these tasks are still
ready, the taken tasks would come before them. The take releases its tasks (`give_back`) and starts
again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.model.changes import Due, Every, Remove, Renew
from tubeq_spark.model.lease_times import NewLease
from tubeq_spark.model.states import QueueState
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import row
from tubeq_spark.verbs.expire import removed_by
from tubeq_spark.verbs.settle import GIVE_BACK, Decision, named, settlement, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected, SettleRow

log = logging.getLogger(__name__)
T = TypeVar("T", LeasedBatch, TakenRows)
#: A take renews its leases at most so often, and then gives the tasks back.
_RENEWALS = 3


def new_lease(ctx: TubeContext, owner: str, begins_us: int | None = None) -> NewLease:
    """Make the leases for the next statement. They begin at `begins_us`, or now (`None`)."""
    begins_us = ctx.queue.now_us() if begins_us is None else begins_us
    return NewLease(owner, begins_us, ctx.headroom.expected_us)


def outlast(ctx: TubeContext, batches: Sequence[T | None]) -> list[T | None]:
    """Make sure that new leases have enough time left. Usually no commit, one if the take was slow.

    Returns:
        The tasks that each call still holds; `None` for a call that has lost its tasks, or had none.
    """
    calls = list(batches)
    taken = [batch for batch in batches if batch is not None]
    if not taken:
        return calls
    owner = taken[0].lease.owner
    ctx.headroom.took(ctx.queue.now_us() - min(batch.lease.at_us for batch in taken))
    try:
        for _ in range(_RENEWALS):
            if not _is_held(ctx, owner):
                give_up_all(ctx, taken)
                return [None] * len(calls)
            late = _late(calls, ctx.queue.now_us())
            if not late:
                return calls
            renewed = _renew(ctx, owner, [batch for i in late if (batch := calls[i]) is not None])
            for i, batch in zip(late, renewed, strict=True):
                calls[i] = batch
    except Exception:
        # The renewal may have been committed or not. In both cases, leases that have not ended are valid.
        lasting = _that_last(ctx, calls)
        if all(batch is None for batch in lasting):
            raise
        log.warning("tube %s: leases were not renewed", ctx.record.name, exc_info=True)
        return lasting
    return _that_last(ctx, calls)


def _late(calls: Sequence[T | None], now_us: int) -> list[int]:
    """The calls that need longer leases."""
    return [i for i, batch in enumerate(calls) if batch is not None and not batch.is_fresh(now_us)]


def _that_last(ctx: TubeContext, calls: Sequence[T | None]) -> list[T | None]:
    """Undo the takes of calls whose leases have ended; return the others."""
    now_us = ctx.queue.now_us()
    lasting = [batch if batch is None or batch.lasts(now_us) else None for batch in calls]
    pairs = zip(calls, lasting, strict=True)
    give_up_all(ctx, [batch for batch, left in pairs if batch is not None and left is None])
    return lasting


def give_up_all(ctx: TubeContext, batches: Sequence[LeasedBatch | TakenRows]) -> None:
    """Undo takes that no caller gets, unless other commits have ended their leases."""
    for batch in batches:
        try:
            give_up(ctx, batch)
        except Exception:
            log.warning("tube %s: tasks are held that nobody has", ctx.record.name, exc_info=True)


def _is_held(ctx: TubeContext, owner: str) -> bool:
    """Whether the session of the taken tasks is alive, and the queue is open. At most two commits."""
    # A closed queue has released the tasks, so other consumers may get them, too.
    return ctx.queue.state is QueueState.RUNNING and ctx.queue.session.hold() == owner


def _renew(ctx: TubeContext, owner: str, batches: list[T]) -> list[T | None]:
    """Renew the leases of all tasks that these calls still hold: one commit, or one for each batch."""
    groups: list[list[T]] = (
        [batches] if batches[0].shares_segments else [[batch] for batch in batches]
    )
    return [batch for group in groups for batch in _renew_group(ctx, owner, group)]


def _renew_group(ctx: TubeContext, owner: str, batches: list[T]) -> list[T | None]:
    began_us = ctx.queue.now_us()
    first = True

    def attempt() -> Plan[tuple[list[T | None], int]]:
        nonlocal first
        calls = list[T | None](batches)
        if not first:
            # A row was not found, so some tasks are lost.
            calls = [batch.found(ctx) for batch in batches]
        first = False
        return _renewal(ctx, owner, calls)

    renewed, removed = ctx.queue.loop.run("renew", ctx.table_lock, attempt)
    ctx.headroom.renewed(ctx.queue.now_us() - began_us)
    before = sum(batch.count for batch in batches)
    after = sum(batch.count for batch in renewed if batch is not None)
    # Tasks whose ttl has ended are not lost to others.
    return _in_order(ctx, owner, renewed) if after + removed < before else renewed


def _renewal(
    ctx: TubeContext, owner: str, calls: Sequence[T | None]
) -> Plan[tuple[list[T | None], int]]:
    """Plan a renewal: the tasks that each call still holds, and the number of tasks that it removes."""
    lease = NewLease(owner, ctx.queue.now_us(), ctx.headroom.last_us)
    gone, dest = ctx.queue.session.segments(2)
    rows = [row for batch in calls if batch is not None for row in batch.source()]
    if not rows:
        return Plan(None, lambda _: ([None] * len(calls), 0))
    # A task whose lease and ttl have ended is gone; no renewal brings it back.
    gone_ones = Due(lease.at_us, over=True), Remove(gone, "ttl")
    statement = ctx.writer.settle(rows, [gone_ones, (Every(), Renew(dest, lease))])

    def finish(affected: Affected) -> tuple[list[T | None], int]:
        removed = removed_by(ctx, statement, affected, gone)
        results = [
            None if batch is None else batch.renewed(ctx, dest, lease, statement.clauses)
            for batch in calls
        ]
        if removed:
            ctx.count("ttr", removed)
            ctx.count("ttl", removed)
        return results, removed

    return Plan(statement, finish)


def out_of_order(
    ctx: TubeContext,
    segments: Sequence[int],
    take_ids: Sequence[int],
    owner: str,
    now_us: int,
) -> bool:
    """Undo a take that moved fewer tasks than chosen, if it has skipped a ready one.

    Tasks that other sessions have taken, deleted or buried do not matter. But tasks that a sweep or a compaction
    has moved come before the taken ones, and a single consumer gets all tasks in order.

    Args:
        ctx: The tube.
        segments: The lease segments that the take has just made.
        take_ids: The take ids of the take.
        owner: The session that took the tasks.
        now_us: The moment for which the tasks were chosen. Tasks that became ready later do not count.

    Returns:
        Whether the take was undone.
    """
    if not ctx.reader.is_behind(segments, now_us):
        return False
    give_back(ctx, take_ids, owner)
    return True


def _in_order(ctx: TubeContext, owner: str, batches: list[T | None]) -> list[T | None]:
    """Return the remaining tasks of some takes; if an earlier task is ready again, undo the takes and return none."""
    left = [batch for batch in batches if batch is not None]
    if not left:
        return batches
    segments = list(dict.fromkeys(segment for batch in left for segment in batch.segments))
    take_ids = list(dict.fromkeys(take_id for batch in left for take_id in batch.take_ids))
    if not out_of_order(ctx, segments, take_ids, owner, left[0].lease.at_us):
        return batches
    return [None] * len(batches)


def give_up(ctx: TubeContext, batch: LeasedBatch | TakenRows) -> int:
    """Undo a take before it returns; return the number of tasks."""
    return give_back(ctx, batch.take_ids, batch.lease.owner)


def give_back(ctx: TubeContext, take_ids: Collection[int], owner: str) -> int:
    """Undo a take before it returns, as if its tasks were never taken. One commit.

    The tasks of other calls in its lease segment stay taken. If it is interrupted before the commit, the leases end by
    their ttr. If other commits have ended them first, it does nothing.

    Returns:
        The number of tasks that were given back.
    """

    def attempt() -> Plan[int]:
        rows = _under(ctx, take_ids, owner)
        if not rows:
            return Plan(None, lambda _: 0)
        statement = settlement(ctx, rows, GIVE_BACK.change(Decision(ctx, ctx.queue.now_us())))

        def finish(affected: Affected) -> int:
            places = [(row.segment, row.task_id) for row in rows if row.task_id is not None]
            ctx.queue.held_tasks.left(ctx.record.id, places)
            if not places:
                ctx.queue.held_tasks.gone({row.segment for row in rows})
            return affected.total

        return Plan(statement, finish)

    return ctx.queue.loop.run("give_back", ctx.table_lock, attempt)


def _under(ctx: TubeContext, take_ids: Collection[int], owner: str) -> list[SettleRow]:
    """The tasks with some take ids: whole lease segments, or some rows of them."""
    held = ctx.table.is_held(owner, take_ids)
    found = ctx.reader.counts("segment", held)
    if not found or found == ctx.reader.counts("segment", row().segment.is_in(found)):
        return whole(sorted(found))
    return named(ctx.reader.of(held))


def give_back_unknown(ctx: TubeContext, lease_segments: Collection[int], owner: str) -> bool:
    """Undo a take whose commit is unknown, if it is found now.

    Args:
        ctx: The tube.
        lease_segments: The lease segments that the take would have made.
        owner: The session of the take.

    Returns:
        Whether the take was found. Commits: that of `give_back`; none if it was not found.
    """
    # The take id is the number of the lease segment, unless calls share the segment.
    numbers = sorted(lease_segments)
    named_so = row().segment.is_in(numbers) | row().claim.is_in(numbers)
    take_ids = set(ctx.reader.counts("claim", ctx.table.is_held(owner) & named_so))
    if not take_ids:
        return False
    log.warning("tube %s: what an unknown take has taken is given back", ctx.record.name)
    give_back(ctx, take_ids, owner)
    return True
