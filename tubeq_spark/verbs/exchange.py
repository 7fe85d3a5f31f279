"""exchange: ack tasks and take the next ones, in one commit."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from tubeq_spark.errors import ConflictError
from tubeq_spark.model.tube_types import position_of
from tubeq_spark.runtime.taken import TakenRows
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.ended import Ended
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.chosen import ChosenRows
from tubeq_spark.verbs.limits import limits_now
from tubeq_spark.verbs.renew import give_up_all, new_lease, outlast
from tubeq_spark.verbs.settle import Memory, ack, held
from tubeq_spark.verbs.take import (
    begin_take,
    look_for,
    moved,
    remember,
    run,
    take_group,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected
    from tubeq_spark.verbs.choose import TakeInOrder
    from tubeq_spark.verbs.take_subqueues import TakeSubqueues

log = logging.getLogger(__name__)


class _Exchanged(NamedTuple):
    """The acked tasks, and the taken tasks of each call.

    The first `found` calls found tasks. Such a call has none if other takes got them first.
    """

    acked: Sequence[StoredTask]
    took: list[TakenRows | None]
    found: int


def exchange(ctx: TubeContext, ids: Sequence[int], request: TakeRequest) -> TakenRows | None:
    """Ack tasks and take the next ones in one commit; return the taken tasks, which are not handed out yet.

    If nothing can be taken at once, the ack is a commit of its own, and nothing is taken. If other takes of sub-queues
    come first, the ack is a commit of its own, and the take another one.
    """
    take = begin_take(ctx, [request])
    exchanged = _exchange(ctx, ids, take, [request])
    if exchanged is not None:
        _acked(ctx, exchanged)
    else:
        ack(ctx, ids)
        if take.chosen is None:
            return None
    try:
        if exchanged is None:
            return _take_alone(ctx, request)
        (held,) = outlast(ctx, exchanged.took)
    except Exception:
        log.warning("tube %s: acked, and nothing taken", ctx.record.name, exc_info=True)
        return None
    remember(ctx, [held])
    return held


def _take_alone(ctx: TubeContext, request: TakeRequest) -> TakenRows | None:
    """Take after an ack that could not wait for the take."""
    (taken,) = take_group(ctx, [request])
    if isinstance(taken, Exception):
        raise taken
    return taken


def ack_and_take(
    ctx: TubeContext, acks: Sequence[Sequence[int]], takes: Sequence[TakeRequest]
) -> tuple[list[list[Task]], Sequence[TakenRows | Exception | None]] | None:
    """Ack for some calls and take for others in one commit, in a tube without sub-queues.

    Returns:
        The acked tasks of each call, and the taken ones; `None` if nothing was done, because no task is ready.

    Raises:
        CommitUnknownError: The acks and takes may have been committed.
        TubeqError: One of the calls is refused; nothing was done.
    """
    ids = [task_id for some in acks for task_id in some]
    exchanged = _exchange(ctx, ids, begin_take(ctx, takes), takes)
    if exchanged is None:
        return None
    tasks = iter(_acked(ctx, exchanged))
    return [list(islice(tasks, len(ids))) for ids in acks], _lasting(ctx, takes, exchanged)


def _acked(ctx: TubeContext, done: _Exchanged) -> list[Task]:
    """Count the acked tasks, and forget them. If that fails, no call gets the taken tasks."""
    places = ((row.segment, row.task_id) for row in done.acked)
    ctx.queue.held_tasks.left(ctx.record.id, places)
    try:
        tasks = ctx.record_event("ack", done.acked, TaskState.DONE)
    except Exception:
        give_up_all(ctx, [taken for taken in done.took if taken is not None])
        raise
    ctx.table_lock.wake_takes()
    return tasks


def _lasting(
    ctx: TubeContext, takes: Sequence[TakeRequest], done: _Exchanged
) -> Sequence[TakenRows | Exception | None]:
    """The taken tasks of each call. A call that has lost all tasks that it found takes again."""
    try:
        lasting = outlast(ctx, done.took)
    except Exception as error:  # noqa: BLE001  (the calls that take get it)
        # The acks are committed, so their calls must not fail.
        return [error if call < done.found else None for call in range(len(takes))]
    remember(ctx, lasting)
    results: list[TakenRows | Exception | None] = list(lasting)
    lost = [call for call in range(done.found) if results[call] is None]
    if not lost:
        return results
    again: Sequence[TakenRows | Exception | None]
    try:
        again = take_group(ctx, [takes[call] for call in lost])
    except Exception as error:  # noqa: BLE001  (the calls that take get it)
        again = [error] * len(lost)
    for call, taken in zip(lost, again, strict=True):
        results[call] = taken
    return results


def _exchange(
    ctx: TubeContext,
    ids: Sequence[int],
    take: TakeInOrder | TakeSubqueues,
    requests: Sequence[TakeRequest],
) -> _Exchanged | None:
    """Ack tasks and take the next ones in one MERGE.

    Returns:
        The result; `None` if nothing was done, because no task is ready or other takes of sub-queues came first.
    """
    memory = Memory()

    def attempt() -> Plan[_Exchanged | None]:
        # The session may have ended, and its tasks with it. Then this begins a new one.
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        # If other takes came first, the acks, which make room, do not wait for another choice.
        if ctx.driver.subqueues and take.chosen is not None:
            return Plan(None, lambda _: None)
        limits = limits_now(ctx, found)
        choice = None if limits.tasks == 0 else take.choose(ChosenRows, limits)
        if choice is None:
            return Plan(None, lambda _: None)
        lease = new_lease(ctx, choice.owner, choice.begins_us)
        raised = limits.raised(choice.quota)

        def finish(affected: Affected) -> _Exchanged:
            # The ack stays committed if the take is undone. Then the calls take again.
            count = raised.tasks(affected)
            try:
                taken = moved(choice, lease, count)
            except ConflictError:
                # The take had to be undone, and that failed: the session's heart tries it again.
                log.warning("tube %s: acked, and nothing taken", ctx.record.name, exc_info=True)
                look_for(ctx, choice)
                taken = {}
            calls = sum(take_id is not None for take_id in choice.take_ids)
            if len(requests) > 1:
                took = [None if t is None else taken.get(t) for t in choice.take_ids]
                return _Exchanged(found, took, calls)
            rows = [row for part in taken.values() for row in part.rows]
            rows.sort(key=lambda row: position_of(row, ctx.table.order))
            sizes = Counter(row.segment for row in rows)
            return _Exchanged(found, [TakenRows(rows, lease, sizes) if rows else None], calls)

        statement = choice.exchange(found, lease)
        statement = replace(statement, ended=Ended(ctx.record.id, len(found)))
        return Plan(ctx.gates.raising(statement, raised, choice.now_us), finish)

    return run(ctx, take, "exchange", attempt)
