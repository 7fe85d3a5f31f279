"""After the commit of a take: its leases must last, and its tasks are handed out, or given back.

A lease begins at the take's decision, and the commit takes time. So after the commit a take reads the clock. If less
than three quarters of a ttr are left, it renews all of its leases by one more guarded commit, before the tasks are
returned. If a lease has ended by then, or the session is dead, all of its tasks are given back, and it takes again. If
it is interrupted before that, the tasks belong to the session until their leases end.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.changes import Every, Renew
from tubeq_spark.model.takes import NewLease
from tubeq_spark.runtime.held_tasks import Taken
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.uninterrupted import if_interrupted
from tubeq_spark.task import QueueState, Task, TaskState
from tubeq_spark.verbs.settle import GIVE_BACK, settlement

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)


def with_time_left(
    ctx: TubeContext, calls: Sequence[Taken | None]
) -> Sequence[Taken | None] | None:
    """Make sure that new leases have enough time left. Usually no commit, one if the take was slow.

    Args:
        ctx: The tube.
        calls: The tasks of each call; `None` for a call that found none.

    Returns:
        The same with leases that last; `None` if one has ended. Then no call keeps its tasks.
    """
    held = [taken for taken in calls if taken is not None]
    if not held:
        return calls
    lease, took_us = held[0].lease, ctx.queue.now_us() - held[0].lease.at_us
    ctx.headroom.took(took_us)
    kept: Sequence[Taken] | None = None
    try:
        # A closed queue has released the tasks, so other consumers may get them, too.
        if ctx.queue.life.state is QueueState.RUNNING and ctx.queue.session.hold() == lease.owner:
            kept = _renewed_if_slow(ctx, held)
    except Exception:
        # A renewal may have been committed or not. In both cases, leases that have not ended are valid.
        if not _last(ctx, held):
            give_up(ctx, held)
            raise
        log.warning("tube %s: leases were not renewed", ctx.record.name, exc_info=True)
        return calls
    if kept is None or not _last(ctx, kept):
        give_up(ctx, held)
        # The next take follows at once, and may be as slow.
        ctx.headroom.took(took_us)
        return None
    lasting = iter(kept)
    return [None if taken is None else next(lasting) for taken in calls]


def _last(ctx: TubeContext, held: Sequence[Taken]) -> bool:
    now_us = ctx.queue.now_us()
    return all(taken.lasts(now_us) for taken in held)


def _renewed_if_slow(ctx: TubeContext, held: Sequence[Taken]) -> Sequence[Taken] | None:
    """Renew the leases of some calls if necessary; `None` if one has ended. Commits: one, or one for each batch."""
    now_us = ctx.queue.now_us()
    if all(taken.is_fresh(now_us) for taken in held):
        return held
    # Each batch has a lease segment of its own.
    groups = [held] if held[0].rows is not None else [[taken] for taken in held]
    after: list[Taken] = []
    for group in groups:
        renewed = _renewed(ctx, group) if _last(ctx, group) else None
        if renewed is None:
            return None
        after += renewed
    ctx.headroom.renewed(ctx.queue.now_us() - now_us)
    return after


def _renewed(ctx: TubeContext, held: Sequence[Taken]) -> list[Taken] | None:
    """Renew all leases of some calls by one commit; `None` if a task of them is lost."""
    attempts, owner = count(), held[0].lease.owner
    total = sum(taken.count for taken in held)
    all_held = ctx.table.is_held(owner, [taken.take_id for taken in held])

    def attempt() -> Plan[list[Taken] | None]:
        if next(attempts) and ctx.reader.count(all_held) < total:
            return Plan(None, lambda _: None)
        lease = NewLease(owner, ctx.queue.now_us(), ctx.headroom.last_us)
        (dest,) = ctx.queue.session.segments(1)
        source = pa.concat_tables([taken.source() for taken in held])
        statement = ctx.writer.settle(source, [(Every(), Renew(dest, lease))])

        def finish(affected: Affected) -> list[Taken] | None:
            if affected.total < total:
                # A batch names its segment, from which another commit has taken tasks.
                return None
            return [
                replace(taken, segment=dest, lease=lease)
                if taken.rows is None
                else Taken.of_rows(rows_after(statement.changes, taken.rows), lease)
                for taken in held
            ]

        return Plan(statement, finish, lease.at_us)

    return ctx.queue.loop.run("renew", ctx.table_lock, attempt)


# -- tasks that a caller gets, or nobody -------------------------------------------------------------


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
    """Release the tasks of a call that has counted them as taken."""
    given_back = give_up(ctx, [taken])
    # If nothing was given back, other commits have ended the leases, and count that.
    if given_back and taken.rows is not None:
        ctx.events.keep("release", [row.task(TaskState.READY) for row in taken.rows])
    ctx.events.count("release", given_back)
    ctx.table_lock.wake_takes()


def give_up(ctx: TubeContext, held: Sequence[Taken]) -> int:
    """Give back tasks that no caller gets, and return their number. If that fails, a thread of the session does it."""
    take_ids, owner = [taken.take_id for taken in held], held[0].lease.owner
    try:
        return give_back(ctx, take_ids, owner)
    except Exception:
        log.warning("tube %s: tasks are held that nobody has", ctx.record.name, exc_info=True)
        ctx.queue.unknown_takes.add(lambda: give_back(ctx, take_ids, owner) >= 0)
        # An interrupt may have cancelled the statement of Spark.
        ctx.queue.session.heart.beat_soon()
        return 0


def give_back(ctx: TubeContext, take_ids: Collection[int], owner: str) -> int:
    """Undo takes before they return, as if their tasks were never taken. One commit.

    The tasks of other calls in their lease segments stay taken. If it is interrupted before the commit, the leases end
    by their ttr. If other commits have ended them first, it does nothing.

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
