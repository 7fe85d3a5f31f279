"""Reads the facts from which `model.reasons` explains why a task is not handed out. No commits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.model import refusals
from tubeq_spark.model.reasons import Facts
from tubeq_spark.model.stored_task import session_of
from tubeq_spark.model.times import from_us
from tubeq_spark.model.tube_types import position_of
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.limits import read_limits, turns_before

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext


def facts(ctx: TubeContext, task_id: int) -> Facts:
    """The facts about a task.

    Raises:
        TaskNotFoundError: No task has this id.
    """
    found = ctx.reader.by_ids([task_id])
    if not found:
        raise refusals.no_task(task_id)
    now_us = ctx.queue.now_us()
    over = ctx.queue.lapsed.owners(now_us)
    (row,) = ctx.seen(found, now_us, over)
    if row is None:
        return Facts(task_id=task_id, state=None, until=from_us(found[0].expires_at))
    known = Facts(
        task_id=task_id,
        state=row.state,
        until=from_us(row.next_event),
        session=session_of(row.owner),
        error=row.error,
        is_paused=ctx.record.paused,
        has_subqueues=ctx.driver.subqueues,
        utube=row.utube,
    )
    if row.state is not TaskState.READY or known.is_paused:
        return known
    most_taken = ctx.record.options.most_taken
    if most_taken is not None:
        held = ctx.subqueue_reader.in_state(TaskState.TAKEN, now_us, ctx.max_attempts, over)
        taken = sum(held.values())
        if taken >= most_taken:
            return replace(known, taken=taken)
    if ctx.driver.subqueues:
        return _in_subqueue(ctx, row, known, now_us, over)
    ahead = ctx.reader.ready_before(
        position_of(row, ctx.table.order), now_us, ctx.max_attempts, over
    )
    return replace(known, ahead=ahead)


def _in_subqueue(
    ctx: TubeContext, row: StoredTask, known: Facts, now_us: int, over: Collection[str]
) -> Facts:
    """The facts of a ready task in a tube with sub-queues."""
    most, options = ctx.max_attempts, ctx.record.options
    taken = ctx.subqueue_reader.in_state(TaskState.TAKEN, now_us, most, over)
    limits = read_limits(ctx, now_us)
    waiting = limits.waiting_for_rate()
    if taken.get(row.utube, 0) >= options.parallel:
        if options.parallel > 1:
            return replace(known, beside=taken[row.utube])
        first = ctx.reader.first_taken(row.utube, now_us, most, over)
        if first is not None:
            return replace(known, busy_with=first.task_id, busy_until=from_us(first.next_event))
    if row.utube in waiting:
        return replace(known, rate_until=from_us(waiting[row.utube]))
    place = position_of(row, ctx.table.order)
    ahead = ctx.reader.ready_before(place, now_us, most, over, [row.utube])
    if ahead:
        return replace(known, ahead=ahead)
    full = {utube for utube, count in taken.items() if count >= options.parallel}
    busy = full.union(waiting)
    if options.order == "fair":
        others = turns_before(ctx, limits, row.utube, busy)
    else:
        others = ctx.subqueue_reader.heads_up_to(place, now_us, most, over, busy | {row.utube})
    return replace(known, subqueues_ahead=others)
