"""exchange: ack tasks and take the next ones, in one commit; the rest of their lease segments moves along.

In tubes with sub-queues it is one commit only if whole lease segments are acked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

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


class _Exchanged(NamedTuple):
    """What an exchange has acked, where the rest of its lease segments moved to, and what it has taken."""

    acked: NamedTasks
    moves: dict[int, int]
    took: TakenRows | None


def exchange(ctx: TubeContext, ids: Sequence[int], request: TakeRequest) -> list[Task]:
    """Ack tasks and take the next ones in one commit.

    When nothing can be taken at once, the ack is a commit of its own, and nothing is taken; in tubes
    with sub-queues also when the named tasks are not whole lease segments.
    """
    exchanged = _exchange(ctx, ids, request)
    if exchanged is None:
        ack(ctx, ids)
        return []
    found, moves, took = exchanged
    ctx.queue.held_tasks.left(ctx.record.id, (row.task_id for row in found.rows), moves)
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


def _exchange(ctx: TubeContext, ids: Sequence[int], request: TakeRequest) -> _Exchanged | None:
    """Ack tasks and take the next ones in one MERGE.

    Returns:
        What was done; `None`: nothing is ready, or the take must be a commit of its own. Then nothing
        was done.
    """
    memory, take = Memory(), begin_take(ctx, [request])

    def attempt() -> Plan[_Exchanged | None]:
        # The session's epoch may have ended, and with it what it held.
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        kept = take.kept(ids, found)
        choice = None if kept is None else take.choose(ChosenRows, kept)
        if choice is None:
            return Plan(None, lambda _: None)
        confirm(ctx, found)
        lease = new_lease(ctx, choice.owner)
        fresh = [] if found.whole else ctx.queue.session.segments(len(found.lease_segments))
        moves = dict(zip(found.lease_segments, fresh, strict=False))

        def finish(affected: Affected) -> _Exchanged:
            # The ack stands, also where the take is undone: what comes next is then taken by itself.
            took = replace(affected, updated=affected.updated - found.rest)
            taken = moved(choice, lease, took).values()
            rows = sorted((row for part in taken for row in part.rows), key=position_of)
            return _Exchanged(found, moves, TakenRows(rows, lease) if rows else None)

        return Plan(choice.exchange(found, moves, lease), finish)

    return run(ctx, take, "exchange", attempt)
