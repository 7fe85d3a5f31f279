"""exchange: ack tasks and take the next ones, in one commit if whole lease segments are acked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import TubeqError
from tubeq_spark.model.tube_types import position_of
from tubeq_spark.runtime.taken import TakenRows
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.choose import ChosenRows
from tubeq_spark.verbs.locate import Memory, NamedTasks, confirm, held
from tubeq_spark.verbs.renew import new_lease, outlast
from tubeq_spark.verbs.settle import ack
from tubeq_spark.verbs.take import begin_take, handed_out, moved, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)


def exchange(ctx: TubeContext, ids: Sequence[int], request: TakeRequest) -> list[Task]:
    """Ack tasks and take the next ones in one commit.

    When the named tasks are not whole lease segments, or nothing can be taken at once, the ack is a
    commit of its own, and nothing is taken.
    """
    exchanged = _exchange(ctx, ids, request)
    if exchanged is None:
        ack(ctx, ids)
        return []
    found, took = exchanged
    ctx.queue.held_tasks.left(ctx.record.id, (row.task_id for row in found.rows), {})
    ctx.record_event("ack", found.rows, TaskState.DONE)
    ctx.table_lock.wake_takes()
    held = _lasting(ctx, took)
    if held is not None:
        ctx.queue.held_tasks.add(ctx.record.id, held.rows)
    return handed_out(ctx, held)


def _lasting(ctx: TubeContext, took: TakenRows | None) -> TakenRows | None:
    """The result of an exchange: its ack is done, also if a lease has ended."""
    try:
        (lasting,) = outlast(ctx, [took])
    except TubeqError:
        log.warning("tube %s: acked, and nothing taken", ctx.record.name, exc_info=True)
        return None
    return lasting


def _exchange(
    ctx: TubeContext, ids: Sequence[int], request: TakeRequest
) -> tuple[NamedTasks, TakenRows | None] | None:
    """Ack whole lease segments and take the next tasks in one MERGE.

    Returns:
        What was acked and what was taken; `None`: the tasks are not whole lease segments, or
        nothing is ready. Then nothing was done.
    """
    memory, take = Memory(), begin_take(ctx, [request])

    def attempt() -> Plan[tuple[NamedTasks, TakenRows | None] | None]:
        # The session's epoch may have ended, and with it what it held.
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        kept = take.kept(ids, found) if found.whole else None
        choice = None if kept is None else take.choose(ChosenRows, kept)
        if choice is None:
            return Plan(None, lambda _: None)
        confirm(ctx, found)
        lease = new_lease(ctx, choice.owner)

        def finish(affected: Affected) -> tuple[NamedTasks, TakenRows | None]:
            # The ack stands, also where the take is undone: what comes next is then taken by itself.
            taken = moved(choice, lease, affected).values()
            rows = [row for part in taken for row in part.rows]
            rows.sort(key=lambda row: position_of(row, ctx.table.order))
            return found, TakenRows(rows, lease) if rows else None

        return Plan(choice.exchange(found, lease), finish)

    return run(ctx, take, "exchange", attempt)
