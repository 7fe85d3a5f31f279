"""exchange: ack tasks and take the next ones, in one commit.

Acks and takes of threads wait in one group while a commit runs (`together`). One commit then holds acks and takes if
commits are native, and the tube has neither sub-queues nor a change feed. Otherwise acks and takes commit separately,
and each take of a batch always does. The acks come first. If one of the calls is refused, nothing was done, and
acks and takes are decided separately, so that only this call fails. If the commit is unknown, it is unknown to all calls.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import CommitUnknownError, StoreError, TubeqError
from tubeq_spark.model.takes import TakeRequest
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.settle import ack, ack_group, held
from tubeq_spark.verbs.take import Take, take_group
from tubeq_spark.verbs.wait import with_time_left

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.runtime.held_tasks import Taken
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)
Request = TypeVar("Request")
#: After this many lost conflicts of an exchange its acks commit alone.
_TRIES = 2


def exchange(current: CurrentTube, ids: Sequence[int], request: TakeRequest) -> Taken | None:
    """Ack tasks and take the next ones in one commit; return the taken tasks, which are not handed out yet.

    If nothing can be taken at once, or other commits come first, the ack is a commit of its own, and nothing is taken.
    """
    done = _as_one(current, [[*ids]], [request], fails=StoreError)
    if done is None:
        ack(current.ctx, ids)
        return None
    _, (taken,) = done
    if isinstance(taken, Exception):
        log.warning("tube %s: acked, and nothing taken", current.ctx.record.name, exc_info=taken)
        return None
    return taken


# -- acks and takes of threads ---------------------------------------------------------------------


def together(current: CurrentTube, requests: Sequence[list[int] | TakeRequest]) -> list[Any]:
    """Ack and take for several calls, by as few commits as possible; the tasks or the error of each call."""
    ctx, take = current.ctx, partial(take_group, current)
    acks = [request for request in requests if isinstance(request, list)]
    takes = [request for request in requests if isinstance(request, TakeRequest)]
    batches = [request for request in takes if request.as_batch]
    takes = [request for request in takes if not request.as_batch]
    may_be_one = not (
        ctx.tube_type.subqueues
        or ctx.table.change_feed
        or ctx.record.paused
        or ctx.queue.engine.committing_jvm() is not None
    )
    done = _as_one(current, acks, takes) if acks and takes and may_be_one else None
    if done is None:
        done = _apart(partial(ack_group, ctx), acks), _apart(take, takes)
    leased = chain.from_iterable(_apart(take, [batch]) for batch in batches)
    acked, taken = map(iter, done)
    return [
        next(acked if isinstance(request, list) else leased if request.as_batch else taken)
        for request in requests
    ]


def _as_one(
    current: CurrentTube,
    acks: Sequence[list[int]],
    takes: Sequence[TakeRequest],
    *,
    fails: type[TubeqError] = CommitUnknownError,
) -> tuple[Sequence[list[Task]], Sequence[Taken | Exception | None]] | None:
    """Ack tasks and take the next ones by one statement. Raises `CommitUnknownError`, and errors of the type `fails`.

    Returns:
        The acked tasks of each ack, and the taken ones of each take, or its error; `None` if nothing was done, because
        no task is ready, other commits came first, or a call is refused.
    """
    ctx, ids = current.ctx, [task_id for some in acks for task_id in some]
    if len(set(ids)) < len(ids):
        return None
    take, attempts = Take(ctx, takes), count(1)

    def decide() -> Plan[tuple[list[Task], Sequence[Taken | None]] | None]:
        nothing: Plan[tuple[list[Task], Sequence[Taken | None]] | None] = Plan(None, lambda _: None)
        attempt = next(attempts)
        if attempt > _TRIES:
            # The acks, which make room, do not wait for another choice.
            return nothing
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=attempt == 1)
        plan = take.plan(found)
        if plan is None:
            return nothing

        def finish(affected: Affected) -> tuple[list[Task], Sequence[Taken | None]]:
            took = plan.finish(affected)
            ctx.queue.held_tasks.left(ctx.record.id, found)
            return ctx.events.record("ack", found, TaskState.DONE), took

        return Plan(plan.statement, finish, plan.at_us, plan.asked)

    try:
        done = take.commit("exchange", decide)
    except (CommitUnknownError, fails):
        raise
    except TubeqError:
        return None
    if done is None:
        return None
    ctx.table_lock.wake_takes()
    tasks, took = iter(done[0]), done[1]

    def lasting(takes: Sequence[TakeRequest]) -> Sequence[Taken | None]:
        return with_time_left(current, ctx, took) or take_group(current, takes)

    # The acks are committed, so their calls must not fail.
    taken = _apart(lasting, takes)
    return [list(islice(tasks, len(some))) for some in acks], taken


def _apart(
    run: Callable[[Sequence[Request]], Sequence[Any]], requests: Sequence[Request]
) -> Sequence[Any]:
    """Run the calls of one kind. An error is the result of all of them, and of no call of the other kind."""
    if not requests:
        return []
    try:
        return run(requests)
    except Exception as error:  # noqa: BLE001  (each call gets it)
        return [error] * len(requests)
