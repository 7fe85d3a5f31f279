"""After the commit of a take: its leases must last, and its tasks are handed out, or given back.

A lease begins at the take's decision, and the commit takes time. So after the commit a take reads
the clock. If less than three quarters of a ttr are left, it renews its leases by one more guarded commit
(`renew_if_slow`), before the tasks are returned. If it is interrupted before that, the tasks belong to
the session until their leases end. If another commit has written that some of the leases ended, and may
have taken the tasks, the call gives its other tasks back, and takes again. The session's own lease must last, too: if
the session is dead, the take gives all of its tasks back.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.changes import Due, Every, Remove, Renew
from tubeq_spark.model.takes import NewLease
from tubeq_spark.runtime.held_tasks import Taken
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.uninterrupted import if_interrupted
from tubeq_spark.task import QueueState, Task, TaskState
from tubeq_spark.verbs.expire import without_gone
from tubeq_spark.verbs.settle import GIVE_BACK, settlement

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)
#: If a take that no caller got cannot be undone, it is tried so often; then a thread of the session repeats it.
_UNDOES = 3


def renew_if_slow(ctx: TubeContext, calls: Sequence[Taken | None]) -> list[Taken | None]:
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


def _with_time_left(ctx: TubeContext, owner: str, held: dict[int, Taken]) -> dict[int, Taken]:
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


def _that_last(ctx: TubeContext, held: dict[int, Taken]) -> dict[int, Taken]:
    now_us = ctx.queue.now_us()
    return {n: taken for n, taken in held.items() if taken.lasts(now_us)}


def give_up_all(ctx: TubeContext, batches: Sequence[Taken]) -> None:
    """Undo takes that no caller gets, unless other commits have ended their leases."""
    for batch in batches:
        try:
            give_up(ctx, batch)
        except Exception:
            log.warning("tube %s: tasks are held that nobody has", ctx.record.name, exc_info=True)


def _renewed(ctx: TubeContext, late: dict[int, Taken]) -> dict[int, Taken]:
    """Renew the leases of some calls. A call that has lost one of its tasks is left out.

    Commits: one, or one for each batch; if tasks were lost, one for each call.
    """
    if len(late) == 1 or all(taken.rows is not None for taken in late.values()):
        renewed = _renewed_together(ctx, late)
        if renewed is not None or len(late) == 1:
            return renewed or {}
    apart = [_renewed(ctx, {n: taken}) for n, taken in late.items()]
    return {n: taken for renewed in apart for n, taken in renewed.items()}


def _renewed_together(ctx: TubeContext, held: dict[int, Taken]) -> dict[int, Taken] | None:
    """Renew all leases of some calls by one commit; `None` if a task of them is lost."""
    began_us, attempts = ctx.queue.now_us(), count()
    owner = next(iter(held.values())).lease.owner
    total = sum(taken.count for taken in held.values())
    all_held = ctx.table.is_held(owner, [taken.take_id for taken in held.values()])

    def attempt() -> Plan[dict[int, Taken] | None]:
        if next(attempts) and ctx.reader.count(all_held) < total:
            return Plan(None, lambda _: None)
        lease = NewLease(owner, ctx.queue.now_us(), ctx.headroom.last_us)
        gone, dest = ctx.queue.session.segments(2)
        # A task whose lease and ttl have ended is gone; no renewal brings it back.
        gone_ones = Due(lease.at_us, over=True), Remove(gone, "ttl")
        source = pa.concat_tables([taken.source() for taken in held.values()])
        statement = ctx.writer.settle(source, [gone_ones, (Every(), Renew(dest, lease))])

        def finish(affected: Affected) -> dict[int, Taken] | None:
            removed = without_gone(ctx, statement, affected, gone).deleted
            ctx.events.count("ttr", removed)
            ctx.events.count("ttl", removed)
            if affected.total < total:
                # A batch names its segment, from which another commit has taken tasks.
                return None
            after = {}
            for n, taken in held.items():
                if taken.rows is None:
                    left = taken.count - removed
                    after[n] = replace(taken, segment=dest, lease=lease, count=left)
                elif rows := rows_after(statement.changes, taken.rows):
                    after[n] = Taken.of_rows(rows, lease)
                _queue_ended(ctx, taken, after.get(n))
            return {n: taken for n, taken in after.items() if taken.count}

        return Plan(statement, finish, lease.at_us)

    renewed = ctx.queue.loop.run("renew", ctx.table_lock, attempt)
    ctx.headroom.renewed(ctx.queue.now_us() - began_us)
    return renewed


def _queue_ended(ctx: TubeContext, before: Taken, after: Taken | None) -> None:
    """Keep the ends of tasks that a renewal has removed for the callback."""
    lasting = {row.task_id for row in (after and after.rows) or ()}
    ended = [row for row in before.rows or () if row.task_id not in lasting]
    ctx.events.keep("ttl", [row.task(TaskState.DONE) for row in ended])


def handed_out(ctx: TubeContext, taken: Taken | None) -> list[Task]:
    """The tasks of a call. They are released if the call fails, or is interrupted before it returns."""
    if taken is None or taken.rows is None:
        return []
    undo_if_interrupted(ctx, taken)
    try:
        return ctx.events.record("take", taken.rows)
    except Exception:
        undo(ctx, taken)
        raise


def undo_if_interrupted(ctx: TubeContext, taken: Taken | None) -> None:
    """Release the tasks of a call if it is interrupted before it returns."""
    if taken is not None:
        if_interrupted(lambda: undo(ctx, taken))


def undo(ctx: TubeContext, taken: Taken) -> None:
    """Release tasks that no caller got.

    An interrupt may also cancel the statement of Spark that releases them. Then this tries again, and in the end
    the session's heart does.
    """
    given_back = 0
    for _ in range(_UNDOES):
        try:
            given_back = give_up(ctx, taken)
            break
        except Exception:
            log.info("tube %s: a take is undone once more", ctx.record.name, exc_info=True)
    else:
        ctx.queue.unknown_takes.add(lambda: give_up(ctx, taken) >= 0)
    # If nothing was given back, other commits have ended the leases, and count that.
    if given_back and taken.rows is not None:
        ctx.events.keep("release", [row.task(TaskState.READY) for row in taken.rows])
    ctx.events.count("release", given_back)
    ctx.table_lock.wake_takes()


def give_up(ctx: TubeContext, batch: Taken) -> int:
    """Undo a take before it returns; return the number of tasks."""
    return give_back(ctx, [batch.take_id], batch.lease.owner)


def give_back(ctx: TubeContext, take_ids: Collection[int], owner: str) -> int:
    """Undo a take before it returns, as if its tasks were never taken. One commit.

    The tasks of other calls in its lease segment stay taken. If it is interrupted before the commit, the leases end by
    their ttr. If other commits have ended them first, it does nothing.

    Returns:
        The number of tasks that were given back.
    """

    def attempt() -> Plan[int]:
        places = ctx.reader.places(ctx.table.is_held(owner, take_ids))
        if not places.num_rows:
            return Plan(None, lambda _: 0)
        now_us = ctx.queue.now_us()
        statement = settlement(ctx, places, GIVE_BACK.change(ctx, now_us, ()))
        return Plan(statement, lambda affected: affected.total, now_us)

    given_back = ctx.queue.loop.run("give_back", ctx.table_lock, attempt)
    ctx.queue.held_tasks.drop(take_ids)
    return given_back


def give_back_unknown(ctx: TubeContext, take_ids: Collection[int], owner: str) -> bool:
    """Undo a take whose commit is unknown, if it is found now; whether it was. Commits: that of `give_back`, or none."""
    is_found = give_back(ctx, take_ids, owner) > 0
    if is_found:
        log.warning("tube %s: what an unknown take has taken is given back", ctx.record.name)
    return is_found
