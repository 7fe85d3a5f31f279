"""exchange: ack tasks and take the next, in one commit where whole lease segments are acked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import TubeqError
from tubeq_spark.rules.order import position_of
from tubeq_spark.rules.row_changes import InSegments, Remove, Take, Takeable, taken
from tubeq_spark.runtime.taken import TakenRows
from tubeq_spark.storage.chosen import Chosen
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs import take_subqueues
from tubeq_spark.verbs.expire import write_down
from tubeq_spark.verbs.locate import Located, Memory, confirm, held
from tubeq_spark.verbs.renew_leases import new_lease, out_of_order, outlast
from tubeq_spark.verbs.settle import ack
from tubeq_spark.verbs.take import ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.rules.row_changes import Change, Which
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected

__all__ = ["exchange"]

log = logging.getLogger(__name__)


def exchange(ctx: TubeContext, ids: Sequence[int], request: TakeRequest) -> list[Task]:
    """Ack tasks and take the next ones in one commit.

    When the named tasks are not whole lease segments, or nothing can be taken at once, the ack is a
    commit of its own, and nothing is taken.
    """
    done = take_subqueues.exchange if ctx.driver.subqueues else _exchange
    exchanged = done(ctx, ids, request)
    if exchanged is None:
        ack(ctx, ids)
        return []
    found, took = exchanged
    ctx.queue.holdings.left(ctx.record.id, (row.task_id for row in found.rows), {})
    ctx.happened("ack", found.rows, TaskState.DONE)
    ctx.table_lock.changed()
    held = _lasting(ctx, took)
    ctx.queue.holdings.add(ctx.record.id, held)
    return ctx.happened("take", held)


def _lasting(ctx: TubeContext, took: TakenRows | None) -> list[StoredTask]:
    """What an exchange hands out: its ack stands, whatever becomes of the leases."""
    try:
        (lasting,) = outlast(ctx, [took])
    except TubeqError:
        log.warning("tube %s: acked, and nothing taken", ctx.record.name, exc_info=True)
        return []
    return [] if lasting is None else lasting.rows


def _exchange(
    ctx: TubeContext, ids: Sequence[int], request: TakeRequest
) -> tuple[Located, TakenRows | None] | None:
    memory = Memory()

    def attempt() -> Plan[tuple[Located, TakenRows | None] | None]:
        owner = ctx.queue.taker()
        now_us = ctx.queue.now_us()
        found = held(ctx, ids, now_us, remembered=memory.once())
        rows = ready(ctx, now_us, request.count) if found.whole else []
        if not rows or any(row.state is TaskState.TAKEN for row in rows):
            return Plan(None, lambda _: None)
        return _exchange_plan(ctx, found, rows, owner, now_us)

    return ctx.queue.loop.run("exchange", ctx.table_lock, attempt)


def _exchange_plan(
    ctx: TubeContext, found: Located, rows: list[StoredTask], owner: str, now_us: int
) -> Plan[tuple[Located, TakenRows | None] | None]:
    confirm(ctx, found)
    lease_segment, lease = ctx.queue.session.segments(1)[0], new_lease(ctx, owner)
    last = position_of(rows[-1])
    changes: list[tuple[Which, Change]] = [
        (InSegments(found.segments), Remove()),
        (Takeable(last, now_us), Take([(last, lease_segment)], lease)),
    ]
    source = found.source()
    source += [Chosen(segment, None) for segment in sorted({row.segment for row in rows})]

    def finish(affected: Affected) -> tuple[Located, TakenRows | None]:
        moved = [taken(row, lease_segment, lease) for row in rows]
        if affected.updated != len(rows):
            moved = ctx.tasks.held_under([lease_segment], owner)
        had = {row.task_id for row in moved}
        write_down(ctx, [row for row in rows if row.task_id in had], now_us)
        if 0 < len(had) < len(rows) and out_of_order(ctx, [lease_segment], owner, now_us):
            # The ack stands; what comes next is taken by a commit of its own.
            had.clear()
        return found, TakenRows(moved, lease) if had else None

    return Plan(ctx.statements.settle(source, changes, {}), finish)
