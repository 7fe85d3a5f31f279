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
        taken = ctx.reader.count(ctx.table.is_in(TaskState.TAKEN, now_us, over), skips=())
        if taken >= most_taken:
            return replace(known, taken=taken)
    if ctx.driver.subqueues:
        return _in_subqueue(ctx, row, known, now_us, over)
    before = ctx.table.up_to(position_of(row, ctx.table.order))
    ready = ctx.reader.count(ctx.table.is_in(TaskState.READY, now_us, over) & before, skips=())
    # The task itself is counted, too.
    return replace(known, ahead=max(0, ready - 1))


def _in_subqueue(
    ctx: TubeContext, row: StoredTask, known: Facts, now_us: int, over: Collection[str]
) -> Facts:
    """The facts of a ready task in a tube with sub-queues."""
    table, options = ctx.table, ctx.record.options
    is_taken = table.is_in(TaskState.TAKEN, now_us, over)
    taken = ctx.reader.counts("utube", is_taken, skips=())
    limits = read_limits(ctx, now_us)
    waiting = limits.waiting_for_rate()
    if taken.get(row.utube, 0) >= options.parallel:
        if options.parallel > 1:
            return replace(known, beside=taken[row.utube])
        for first in ctx.reader.of(is_taken & table.is_of([row.utube]), limit=1, skips=()):
            return replace(known, busy_with=first.task_id, busy_until=from_us(first.next_event))
    if row.utube in waiting:
        return replace(known, rate_until=from_us(waiting[row.utube]))
    before = table.up_to(position_of(row, table.order))
    ready = ctx.reader.counts(
        "utube", table.is_in(TaskState.READY, now_us, over) & before, skips=()
    )
    if ready.get(row.utube, 0) > 1:
        return replace(known, ahead=ready[row.utube] - 1)
    full = {utube for utube, count in taken.items() if count >= options.parallel}
    busy = full.union(waiting)
    if options.order == "fair":
        others = turns_before(ctx, limits, row.utube, busy)
    else:
        others = len(ready.keys() - busy - {row.utube})
    return replace(known, subqueues_ahead=others)
