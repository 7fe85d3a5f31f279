"""Waits until a take finds tasks, or a put finds room."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import StoreError
from tubeq_spark.runtime.waiting import looks
from tubeq_spark.storage.durability.arrivals import Arrivals
from tubeq_spark.verbs.expire import end_dead_sessions, end_lapsed_sessions

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tubeq_spark.runtime.context import TubeContext

log = logging.getLogger(__name__)
T = TypeVar("T")

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
    makes_room = ctx.driver.subqueues or ctx.record.options.most_taken is not None
    ends = _ENDS if for_tasks and not makes_room else ()
    arrivals = Arrivals(synced, (*moves, *ends))
    return lambda: (ctx.table_lock.changes, arrivals.count())


def wait_for(
    context: Callable[[], TubeContext],
    timeout: float | None,
    look: Callable[[], T | None],
    *,
    for_tasks: bool = True,
) -> T | None:
    """Call `look` until it finds something, or `timeout` seconds have passed.

    If it finds nothing, this also releases the tasks of dead sessions, and looks again. If the storage fails for a
    moment, the next look tries it again.

    Args:
        context: Returns the tube by its newest record.
        timeout: Seconds; `None` waits for ever, 0 looks once.
        look: Returns the result, or `None` if it found nothing.
        for_tasks: Whether the result is tasks. Then the tasks of ended sessions are released before each look,
            because they may come first.

    Raises:
        QueueStateError: The queue was closed meanwhile.
        StoreError: The storage failed at the last look, or in a way that does not pass.
    """
    failed: StoreError | None = None
    first = context()
    # Only looks after a wait have this patience; the first one belongs to the verb itself.
    patience: Callable[[], AbstractContextManager[None]] = nullcontext
    for _ in looks(
        timeout,
        clock=first.queue.clock,
        config=first.queue.config,
        changes=_changes(first, for_tasks=for_tasks) if timeout != 0 else lambda: 0,
        require_running=first.queue.require_running,
        next_change=lambda: first.next_begin.seconds(first.queue.now_us()) if for_tasks else None,
    ):
        try:
            with patience():
                found = _looked(context(), look, for_tasks=for_tasks)
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


def _looked(ctx: TubeContext, look: Callable[[], T | None], *, for_tasks: bool) -> T | None:
    """Look once, and again if tasks of dead sessions were released."""
    if for_tasks:
        ctx.next_begin.at_us = None
        end_lapsed_sessions(ctx)
    found = look()
    if found is None and end_dead_sessions(ctx):
        return look()
    return found
