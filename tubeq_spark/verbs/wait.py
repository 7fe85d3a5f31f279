"""Waits until a take finds tasks, or a put finds room."""

from __future__ import annotations

import logging
import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.durability.synced_log import Arrivals
from tubeq_spark.storage.uninterrupted import is_interrupted
from tubeq_spark.verbs.expire import end_dead_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube

log = logging.getLogger(__name__)
T = TypeVar("T")

#: The longest nap of a blocking take, in seconds. After it the take sees a put of its own host.
_NAP = 0.02
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
        begins = ctx.next_begin.seconds(queue.now_us()) if for_tasks else None
        until = clock.monotonic() + min(pause, rest, math.inf if begins is None else begins)
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
        ctx.next_begin.at_us = None
        end_dead_sessions_if_news(ctx)
    found = look(ctx)
    if found is None and end_dead_sessions(ctx):
        return look(ctx)
    return found


def end_dead_sessions_if_news(ctx: TubeContext) -> None:
    """Release tasks of ended sessions before a take, because they may come first in the order.

    Usually it makes no commit, and reads only newer commits to the table of sessions. If a session is over, it
    does what `end_dead_sessions` does.
    """
    queue = ctx.queue
    now_us = queue.now_us()
    # A session that ends during the search is left to the next one.
    over = queue.lapsed.over(now_us)
    if not over <= queue.lapsed.looked[ctx.record.id]:
        end_dead_sessions(ctx, now_us, there=False)
        queue.lapsed.looked[ctx.record.id] = over
