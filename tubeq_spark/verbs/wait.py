"""Waits until a take finds tasks, or a put finds room; makes sure that the tasks last, and hands them out.

A lease begins at the take's decision, and the commit takes time. So after the commit a take reads the clock. If less
than three quarters of a ttr are left, it renews all of its leases by one more guarded commit, before the tasks are
returned. If a lease has ended by then, or the session is dead, all of its tasks are given back, and it takes again. If
it is interrupted before that, the tasks belong to the session until their leases end.
"""

from __future__ import annotations

import logging
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tubeq_spark.clock import US
from tubeq_spark.errors import StoreError
from tubeq_spark.model.changes import Every, Renew
from tubeq_spark.model.takes import NewLease
from tubeq_spark.runtime.held_tasks import Taken
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.durability.synced_log import Arrivals
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.uninterrupted import if_interrupted, is_interrupted
from tubeq_spark.task import QueueState, Task, TaskState
from tubeq_spark.verbs.expire import end_dead_sessions, release_dead_owners
from tubeq_spark.verbs.settle import GIVE_BACK, settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)
T = TypeVar("T")

#: The longest nap of a blocking take, in seconds. After it the take sees a put of its own host.
_NAP = 0.02
#: A wait for the moment of a rate ends so many seconds late, so that no clock's rounding ends it before.
_LATER = 0.001
#: Fewer seconds than this count as none, because a clock may not be able to sleep so short.
_INSTANT = 1e-6

#: Operations that make no task ready, and free no capacity.
_MOVES = ("take", "touch", "renew", "fold", "gone")
#: After these operations a take finds more only if they free a sub-queue, or a place within `most_taken`.
_ENDS = ("ack", "bury", "delete", "truncate")


def _changes(ctx: TubeContext, *, for_tasks: bool) -> Callable[[], object]:
    """Return a function whose value changes when a commit on this host may have ended the wait."""
    synced = ctx.table_lock.synced
    if synced is None:
        return lambda: ctx.table_lock.changes
    moves = (*_MOVES, "put") if not for_tasks else _MOVES
    ends = _ENDS if for_tasks and not ctx.has_limits else ()
    arrivals = Arrivals(synced, (*moves, *ends))
    return lambda: (ctx.table_lock.changes, arrivals.count())


def wait_for(
    current: CurrentTube,
    timeout: float | None,
    look: Callable[[TubeContext], T | None],
    *,
    for_tasks: bool = True,
) -> T | None:
    """Call `look` until it finds something, or `timeout` seconds have passed.

    If it finds nothing, this also releases the tasks of dead sessions, and looks again. If the storage fails for a
    moment, the next look tries it again.

    Args:
        current: The tube.
        timeout: Seconds; `None` waits forever, 0 looks once.
        look: Returns the result, or `None` if it found nothing; called with the tube by its newest record.
        for_tasks: Whether the result is tasks. Then the tasks of ended sessions are released before each look,
            because they may come first.

    Raises:
        QueueStateError: The queue was closed meanwhile.
        StoreError: The storage failed at the last look, or in a way that does not pass.
    """
    failed: StoreError | None = None
    first = current.newest()
    # Only looks after a wait have this patience; the first one belongs to the verb itself.
    patience: Callable[[], AbstractContextManager[None]] = nullcontext
    for _ in _looks(first, timeout, for_tasks=for_tasks):
        try:
            with patience():
                found = _looked(current.newest(), look, for_tasks=for_tasks)
        except StoreError as error:
            if not error.passes:
                raise
            log.warning(
                "%s: waiting goes on, though the storage failed: %s", first.record.name, error
            )
            failed = error
        else:
            if found is not None:
                return found
            failed = None
        patience = first.queue.engine.patience
    if failed is not None:
        raise failed
    return None


def _looks(ctx: TubeContext, timeout: float | None, *, for_tasks: bool) -> Iterator[None]:
    """Yield the times to look, until `timeout` seconds have passed by the clock of the queue.

    It yields at once, whenever the tube has changed, when a task may begin by time, and otherwise at growing intervals.
    It ends if the verb was interrupted.
    """
    queue, clock, config = ctx.queue, ctx.queue.clock, ctx.queue.config
    changes = _changes(ctx, for_tasks=for_tasks) if timeout != 0 else lambda: 0
    deadline = math.inf if timeout is None else clock.monotonic() + timeout
    pause = config.poll_first
    while True:
        queue.require_running()
        seen = changes()
        yield
        rest = deadline - clock.monotonic()
        if rest < _INSTANT or is_interrupted():
            return
        begins, next_us = math.inf, ctx.times.next_us
        if for_tasks and next_us is not None:
            begins = max(0, next_us - queue.now_us()) / US + _LATER
        until = clock.monotonic() + min(pause, rest, begins)
        while changes() == seen:
            queue.require_running()
            rest = until - clock.monotonic()
            if rest < _INSTANT:
                break
            if is_interrupted():
                return
            clock.sleep(min(_NAP, rest))
        pause = config.poll_first if changes() != seen else min(pause * 2, config.poll_most)


def _looked(
    ctx: TubeContext, look: Callable[[TubeContext], T | None], *, for_tasks: bool
) -> T | None:
    """Look once, and again if tasks of dead sessions were released."""
    if for_tasks:
        ctx.times.next_us = None
        end_dead_sessions_if_news(ctx)
    found = look(ctx)
    if found is None and end_dead_sessions(ctx):
        return look(ctx)
    return found


def end_dead_sessions_if_news(ctx: TubeContext) -> None:
    """Release tasks of ended sessions before a take, because they may come first in the order.

    Usually it makes no commit, and reads only newer commits to the table of sessions.
    """
    queue = ctx.queue
    now_us = queue.now_us()
    # A session that ends during the search is left to the next one.
    over = queue.lapsed.over(now_us)
    if not over <= queue.lapsed.looked[ctx.record.id]:
        release_dead_owners(ctx, now_us)
        queue.lapsed.looked[ctx.record.id] = over


# -- after the commit of a take -----------------------------------------------------------------------


def with_time_left(
    current: CurrentTube, ctx: TubeContext, calls: Sequence[Taken | None]
) -> Sequence[Taken | None] | None:
    """Make sure that new leases have enough time left, and remember the tasks. Usually no commit, one if the take was slow.

    A process that was suspended may have taken by a record that was too old: the tube is paused by now, or has limits.

    Args:
        current: The tube.
        ctx: The tube by the record by which the calls have taken.
        calls: The tasks of each call; `None` for a call that found none.

    Returns:
        The same with leases that last; `None` if one has ended, or the record has changed. Then no call keeps its tasks.
    """
    held = [taken for taken in calls if taken is not None]
    if not held:
        return calls
    lease, took_us = held[0].lease, ctx.queue.now_us() - held[0].lease.at_us
    ctx.times.took(took_us)
    kept: Sequence[Taken] | None = None
    is_same = False
    try:
        # A closed queue has released the tasks, so other consumers may get them, too.
        is_open = ctx.queue.life.state is QueueState.RUNNING
        is_same = current.newest().record == ctx.record
        if is_open and is_same and ctx.queue.session.hold() == lease.owner:
            kept = _renewed_if_slow(ctx, held)
    except Exception:
        # A renewal may have been committed or not. In both cases, leases that have not ended are valid.
        if not (is_same and _last(ctx, held)):
            give_up(ctx, held)
            raise
        log.warning("tube %s: leases were not renewed", ctx.record.name, exc_info=True)
        kept = held
    if kept is None or not _last(ctx, kept):
        give_up(ctx, held)
        # The next take follows at once, and may be as slow.
        ctx.times.took(took_us)
        return None
    for taken in kept:
        if taken.rows is None:
            ctx.queue.held_tasks.add_batch(taken.take_id, taken.until)
            ctx.events.count("take", taken.count)
        else:
            ctx.queue.held_tasks.add(ctx.record.id, taken.rows, taken.size)
    lasting = iter(kept)
    return [None if taken is None else next(lasting) for taken in calls]


def _last(ctx: TubeContext, held: Sequence[Taken]) -> bool:
    now_us = ctx.queue.now_us()
    return all(taken.lasts(now_us) for taken in held)


def _renewed_if_slow(ctx: TubeContext, held: Sequence[Taken]) -> Sequence[Taken] | None:
    """Renew the leases of some calls by one commit if necessary; `None` if one has ended, or a task of them is lost."""
    began_us = ctx.queue.now_us()
    if all(taken.is_fresh(began_us) for taken in held):
        return held
    attempts, owner = count(), held[0].lease.owner
    total = sum(taken.count for taken in held)
    all_held = ctx.table.is_held(owner, [taken.take_id for taken in held])

    def attempt() -> Plan[list[Taken] | None]:
        is_again = next(attempts) > 0
        # The commit may have waited for the table's lock.
        if not _last(ctx, held) or (is_again and ctx.reader.count(all_held) < total):
            return Plan(None, lambda _: None)
        lease = NewLease(owner, ctx.queue.now_us(), ctx.times.last_us)
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

    renewed = ctx.queue.loop.run("renew", ctx.table_lock, attempt)
    ctx.times.renewed(ctx.queue.now_us() - began_us)
    return renewed


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
    """Release the tasks of a call that fails or is interrupted."""
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
