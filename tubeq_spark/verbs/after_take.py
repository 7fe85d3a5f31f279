"""After the commit of a take: its leases must last, and its tasks are remembered and handed out, or given back.

A lease begins at the take's decision, and the commit takes time. So after the commit a take reads
the clock. If less than most of a ttr is left, it renews its leases by one more guarded commit
(`outlast`), before the tasks are returned. If it is interrupted before that, the tasks belong to
the session until their leases end. If another commit has written that some of the leases ended, and may
have taken the tasks, the call gives its other tasks back. The session's own lease must last, too: if
the session is dead, the take gives all of its tasks back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.model.changes import Due, Every, Remove, Renew
from tubeq_spark.model.states import QueueState
from tubeq_spark.model.takes import NewLease
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.uninterrupted import if_interrupted
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.expire import removed_by
from tubeq_spark.verbs.settle import GIVE_BACK, Decision, named, settlement, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected, SettleRow
    from tubeq_spark.task import Task

log = logging.getLogger(__name__)
T = TypeVar("T", LeasedBatch, TakenRows)
#: A call that has lost tasks that it took takes again at once; it takes so often in all.
_ROUNDS = 3
#: A failed undo of a take that no caller got is tried so often in all; then the session's heart repeats it.
_UNDOES = 3


def take_again_if_lost(
    ctx: TubeContext,
    requests: Sequence[TakeRequest],
    take: Callable[[Sequence[TakeRequest]], Sequence[T | None]],
    taken: Sequence[T | None] | None = None,
) -> list[T | None]:
    """Take for several calls. A call that loses tasks before it returns takes again.

    Args:
        ctx: The tube.
        requests: The requests of the calls.
        take: Takes for some calls by one commit.
        taken: What an earlier commit has taken for the calls; `None` takes for all of them.

    Returns:
        The tasks of each call; `None` for a call that found none.
    """
    results: list[T | None] = [None] * len(requests)
    asking = list(range(len(requests)))
    for _ in range(_ROUNDS):
        try:
            if taken is None:
                taken = take([requests[call] for call in asking])
            lasting = outlast(ctx, taken)
        except Exception:
            if not any(results):
                raise
            # The other calls keep their tasks.
            log.warning("tube %s: not taken again", ctx.record.name, exc_info=True)
            break
        for call, found in zip(asking, lasting, strict=True):
            results[call] = found
        pairs = zip(asking, taken, lasting, strict=True)
        asking = [call for call, before, after in pairs if before is not None and after is None]
        taken = None
        if not asking:
            break
    return results


def outlast(ctx: TubeContext, calls: Sequence[T | None]) -> list[T | None]:
    """Make sure that new leases have enough time left. Usually no commit, one if the take was slow.

    Returns:
        The tasks of each call; `None` for a call that has lost some of its tasks, or had none.
    """
    held = {n: taken for n, taken in enumerate(calls) if taken is not None}
    if held:
        first = next(iter(held.values()))
        ctx.headroom.took(ctx.queue.now_us() - first.lease.at_us)
        lasting = _with_time_left(ctx, first.lease.owner, held)
        give_up_all(ctx, [taken for n, taken in held.items() if n not in lasting])
        held = lasting
    return [held.get(n) for n in range(len(calls))]


def _with_time_left(ctx: TubeContext, owner: str, held: dict[int, T]) -> dict[int, T]:
    """The calls whose leases last, if necessary after a renewal."""
    try:
        # A closed queue has released the tasks, so other consumers may get them, too.
        if ctx.queue.life.state is not QueueState.RUNNING or ctx.queue.session.hold() != owner:
            return {}
        now_us = ctx.queue.now_us()
        late = {n: taken for n, taken in held.items() if not taken.is_fresh(now_us)}
        if late:
            held = {n: taken for n, taken in held.items() if n not in late} | _renewed(ctx, late)
    except Exception:
        # The renewal may have been committed or not. In both cases, leases that have not ended are valid.
        if not _that_last(ctx, held):
            give_up_all(ctx, list(held.values()))
            raise
        log.warning("tube %s: leases were not renewed", ctx.record.name, exc_info=True)
    return _that_last(ctx, held)


def _that_last(ctx: TubeContext, held: dict[int, T]) -> dict[int, T]:
    now_us = ctx.queue.now_us()
    return {n: taken for n, taken in held.items() if taken.lasts(now_us)}


def give_up_all(ctx: TubeContext, batches: Sequence[LeasedBatch | TakenRows]) -> None:
    """Undo takes that no caller gets, unless other commits have ended their leases."""
    for batch in batches:
        try:
            give_up(ctx, batch)
        except Exception:
            log.warning("tube %s: tasks are held that nobody has", ctx.record.name, exc_info=True)


def _renewed(ctx: TubeContext, late: dict[int, T]) -> dict[int, T]:
    """Renew the leases of some calls. A call that has lost one of its tasks is left out.

    Commits: one, or one for each batch; if tasks were lost, one for each call.
    """
    if len(late) > 1 and not next(iter(late.values())).shares_segments:
        return _renewed_apart(ctx, late)
    began_us, is_first = ctx.queue.now_us(), True

    def attempt() -> Plan[dict[int, T] | None]:
        nonlocal is_first
        if not is_first and _are_lost(ctx, late):
            return Plan(None, lambda _: None)
        is_first = False
        return _renewal(ctx, late)

    renewed = ctx.queue.loop.run("renew", ctx.table_lock, attempt)
    ctx.headroom.renewed(ctx.queue.now_us() - began_us)
    if renewed is None:
        return _renewed_apart(ctx, late) if len(late) > 1 else {}
    return renewed


def _renewed_apart(ctx: TubeContext, late: dict[int, T]) -> dict[int, T]:
    renewed: dict[int, T] = {}
    for n, taken in late.items():
        renewed |= _renewed(ctx, {n: taken})
    return renewed


def _are_lost(ctx: TubeContext, held: dict[int, T]) -> bool:
    """Whether some tasks of takes are no longer held. If not, only the renewal was disturbed."""
    owner = next(iter(held.values())).lease.owner
    take_ids = {take_id for taken in held.values() for take_id in taken.take_ids}
    return ctx.reader.count(ctx.table.is_held(owner, take_ids)) < sum(
        taken.count for taken in held.values()
    )


def _renewal(ctx: TubeContext, held: dict[int, T]) -> Plan[dict[int, T] | None]:
    """Plan a renewal of all tasks of some calls, which fails if one of them is lost."""
    owner = next(iter(held.values())).lease.owner
    lease = NewLease(owner, ctx.queue.now_us(), ctx.headroom.last_us)
    gone, dest = ctx.queue.session.segments(2)
    # A task whose lease and ttl have ended is gone; no renewal brings it back.
    gone_ones = Due(lease.at_us, over=True), Remove(gone, "ttl")
    rows = [row for taken in held.values() for row in taken.source()]
    statement = ctx.writer.settle(rows, [gone_ones, (Every(), Renew(dest, lease))])

    def finish(affected: Affected) -> dict[int, T] | None:
        removed = removed_by(ctx, statement, affected, gone)
        if removed:
            ctx.events.count("ttr", removed)
            ctx.events.count("ttl", removed)
        if affected.total < sum(taken.count for taken in held.values()):
            # A batch names its segment, from which another commit has taken tasks.
            return None
        renewed: dict[int, T] = {}
        for n, taken in held.items():
            after = taken.renewed(dest, lease, statement.clauses, removed)
            _queue_ended(ctx, taken, after)
            if after.count:
                renewed[n] = after
        return renewed

    return Plan(statement, finish)


def remember(ctx: TubeContext, lasting: Sequence[TakenRows | None]) -> None:
    """Remember the tasks of calls."""
    for taken in lasting:
        if taken is not None:
            ctx.queue.held_tasks.add(ctx.record.id, taken.rows, taken.sizes)


def handed_out(ctx: TubeContext, taken: TakenRows | None) -> list[Task]:
    """The tasks of a call. They are released if the call fails, or is interrupted before it returns."""
    if taken is None:
        return []
    undo_if_interrupted(ctx, taken)
    try:
        return ctx.events.record("take", taken.rows)
    except Exception:
        undo(ctx, taken)
        raise


def undo_if_interrupted(ctx: TubeContext, taken: TakenRows | LeasedBatch | None) -> None:
    """Release the tasks of a call if it is interrupted before it returns."""
    if taken is not None:
        if_interrupted(lambda: undo(ctx, taken))


def undo(ctx: TubeContext, taken: TakenRows | LeasedBatch) -> None:
    """Release tasks that no caller got.

    An interrupt may also cancel the statement of Spark that releases them. Then this tries again, and in the end
    the session's heart does.
    """
    count, is_undone = 0, False
    for _ in range(_UNDOES):
        try:
            count, is_undone = give_up(ctx, taken), True
            break
        except Exception:
            log.info("tube %s: a take is undone once more", ctx.record.name, exc_info=True)
    else:
        ctx.queue.unknown_takes.add(lambda: give_up(ctx, taken) >= 0)
    if isinstance(taken, LeasedBatch):
        ctx.queue.held_tasks.drop_batch(taken.take_id)
    else:
        # If nothing was given back, other commits have ended the leases, and count that.
        places = [(row.segment, row.task_id) for row in taken.rows]
        ctx.queue.held_tasks.left(ctx.record.id, places, are_known=is_undone)
        ctx.events.keep("release", [row.task(TaskState.READY) for row in taken.rows if count])
    ctx.events.count("release", count)
    ctx.table_lock.wake_takes()


def _queue_ended(
    ctx: TubeContext, before: LeasedBatch | TakenRows, after: LeasedBatch | TakenRows
) -> None:
    """Keep the ends of tasks that a renewal has removed for the callback."""
    if isinstance(before, TakenRows) and isinstance(after, TakenRows):
        left = {row.task_id for row in after.rows}
        ended = [row.task(TaskState.DONE) for row in before.rows if row.task_id not in left]
        ctx.events.keep("ttl", ended)


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
