"""exchange: ack tasks and take the next ones, in one commit.

Acks and takes of threads wait in one group while a commit runs (`together`). One commit then holds acks and takes if
commits are native, and the tube has neither sub-queues nor a change feed. Otherwise acks, takes and takes of batches
commit separately. The acks come first. If one of the calls is refused, nothing was done, and
acks and takes are decided separately, so that only this call fails. If the commit is unknown, it is unknown to all calls.
"""

from __future__ import annotations

import logging
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import CommitUnknownError, TubeqError
from tubeq_spark.model.takes import TakeRequest
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.after_take import give_up_all
from tubeq_spark.verbs.settle import ack, ack_group, held
from tubeq_spark.verbs.take import Take, take_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.held_tasks import Taken

log = logging.getLogger(__name__)
Request = TypeVar("Request")
#: After this many lost conflicts of an exchange its acks commit alone.
TRIES = 2


def exchange(ctx: TubeContext, ids: Sequence[int], request: TakeRequest) -> Taken | None:
    """Ack tasks and take the next ones in one commit; return the taken tasks, which are not handed out yet.

    If nothing can be taken at once, the ack is a commit of its own, and nothing is taken. If other takes
    come first, the ack is a commit of its own, and the take another one.
    """
    take = Take(ctx, [request])
    acked, took = _exchange(ctx, ids, take)
    if acked is None:
        ack(ctx, ids)
        if not take.take_ids:
            return None
    try:
        (taken,) = take_group(ctx, [request], took)
    except Exception:
        log.warning("tube %s: acked, and nothing taken", ctx.record.name, exc_info=True)
        return None
    return taken


def _exchange(
    ctx: TubeContext, ids: Sequence[int], take: Take
) -> tuple[list[Task], list[Taken | None]] | tuple[None, None]:
    """Ack tasks and take the next ones by one statement.

    Returns:
        The acked tasks, and the taken ones of each call; `None` if nothing was done, because no task is ready or other
        commits came first.
    """
    attempts, found = count(1), list["StoredTask"]()

    def decide() -> Plan[list[Taken | None] | None]:
        nonlocal found
        nothing: Plan[list[Taken | None] | None] = Plan(None, lambda _: None)
        attempt = next(attempts)
        if attempt > TRIES:
            # The acks, which make room, do not wait for another choice.
            return nothing
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=attempt == 1)
        return take.plan(found) or nothing

    took = take.commit("exchange", decide)
    if took is None:
        return None, None
    ctx.queue.held_tasks.left(ctx.record.id, found)
    try:
        acked = ctx.events.record("ack", found, TaskState.DONE)
    except Exception:
        # No call gets the taken tasks.
        give_up_all(ctx, [taken for taken in took if taken is not None])
        raise
    ctx.table_lock.wake_takes()
    return acked, took


# -- acks and takes of threads ---------------------------------------------------------------------


def together(ctx: TubeContext, requests: Sequence[list[int] | TakeRequest]) -> list[Any]:
    """Ack and take for several calls, by as few commits as possible; the tasks or the error of each call."""
    acks = [request for request in requests if isinstance(request, list)]
    takes = [request for request in requests if isinstance(request, TakeRequest)]
    batches = [request for request in takes if request.as_batch]
    takes = [request for request in takes if not request.as_batch]
    done = _as_one(ctx, acks, takes) or (
        _apart(ctx, ack_group, acks),
        _apart(ctx, take_group, takes),
    )
    acked, taken, leased = map(iter, (*done, _apart(ctx, take_group, batches)))
    return [
        next(acked if isinstance(request, list) else leased if request.as_batch else taken)
        for request in requests
    ]


def _as_one(
    ctx: TubeContext, acks: list[list[int]], takes: list[TakeRequest]
) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Commit acks and takes at once; `None` if nothing was done."""
    ids = [task_id for some in acks for task_id in some]
    if not acks or not takes or len(set(ids)) < len(ids):
        return None
    if (
        ctx.tube_type.subqueues
        or ctx.table.change_feed
        or ctx.queue.engine.committing_jvm() is not None
    ):
        return None
    try:
        acked, took = _exchange(ctx, ids, Take(ctx, takes))
    except CommitUnknownError:
        raise
    except TubeqError:
        return None
    if acked is None:
        return None
    tasks = iter(acked)
    # The acks are committed, so their calls must not fail.
    taken = _apart(ctx, lambda ctx, takes: take_group(ctx, takes, took), takes)
    return [list(islice(tasks, len(some))) for some in acks], taken


def _apart(
    ctx: TubeContext,
    run: Callable[[TubeContext, list[Request]], Sequence[Any]],
    requests: list[Request],
) -> Sequence[Any]:
    """Run the calls of one kind. An error is the result of all of them, and of no call of the other kind."""
    if not requests:
        return []
    try:
        return run(ctx, requests)
    except Exception as error:  # noqa: BLE001  (each call gets it)
        return [error] * len(requests)
