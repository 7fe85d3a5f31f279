"""The verbs of Tarantool 1.5 that `Tube` does not have: urgent, requeue, release with a ttl, done.

Each verb makes one statement to the tube, as in `put` and `settle`. If it is interrupted before the
statement, nothing has changed. After the statement the change is done. If another commit
moves the task first, the guard fails, and the verb reads again. `urgent` only inserts, so it conflicts with
nothing. A task that is put ahead of it between its read and its statement stays ahead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.model.arguments import PutCall
from tubeq_spark.model.changes import Become
from tubeq_spark.model.states import after_giving_back
from tubeq_spark.model.times import plus
from tubeq_spark.storage.expression import integer
from tubeq_spark.storage.expression import row as columns
from tubeq_spark.storage.query import greatest, least
from tubeq_spark.tarantool15.tasks import (
    USUAL_FIRST,
    USUAL_LAST,
    old_verb,
    priority_of,
    rank_before,
    rank_behind,
    stored_pri,
)
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs import locate, put, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.commit_loop import Plan

#: Tasks that are not done.
_IS_LEFT = columns().state != TaskState.DONE.value


def urgent(ctx: TubeContext, data: Any, options: dict[str, Any]) -> Task | None:
    """Put a task before all existing tasks, unless it is delayed; `None` if the tube is full."""
    rows = put.prepare(ctx, PutCall([data], options, 0))
    # The rank is read within each attempt, under the table lock, so that it comes before urgent tasks of others.
    (tasks,) = put.put_group(ctx, [rows], name="urgent", changed=lambda row: _ahead(ctx, row))
    if not tasks:
        return None
    ctx.count(old_verb("urgent"), 1)
    return tasks[0]


def _ahead(ctx: TubeContext, row: StoredTask) -> StoredTask:
    if row.state is TaskState.DELAYED:
        return row
    urgent = _IS_LEFT & (columns().pri < integer(USUAL_FIRST))
    rank = rank_before(ctx.reader.one(least(columns().pri), urgent, skips=()))
    return replace(row, pri=stored_pri(priority_of(row.pri), rank))


def requeue(ctx: TubeContext, task_id: int) -> Task:
    """Release a held task behind all existing tasks, or bury it if its attempts are used up."""

    def after(row: StoredTask, _now_us: int) -> StoredTask:
        others = _IS_LEFT & (columns().pri > integer(USUAL_LAST)) & (columns().task_id != task_id)
        rank = rank_behind(ctx.reader.one(greatest(columns().pri), others, skips=()))
        return replace(
            row,
            state=after_giving_back(row.attempts, ctx.max_attempts),
            pri=stored_pri(priority_of(row.pri), rank),
            next_event=row.expires_at,
        )

    def tell(row: StoredTask) -> list[Task]:
        ctx.count(old_verb("requeue"), 1)
        return ctx.events.released([row])

    return _held(ctx, "requeue", task_id, after, tell)


def release(ctx: TubeContext, task_id: int, delay_us: int | None, ttl_us: int | None) -> Task:
    """Release a held task with a new ttl, counted from now; the delay is added to it."""

    def after(row: StoredTask, now_us: int) -> StoredTask:
        state = after_giving_back(row.attempts, ctx.max_attempts)
        delayed = delay_us != 0 and state is TaskState.READY
        life = plus(ttl_us, delay_us if delayed else 0)
        ends = plus(now_us, life)
        return replace(
            row,
            state=TaskState.DELAYED if delayed else state,
            ttl=plus(now_us - row.created, life),
            next_event=plus(now_us, delay_us) if delayed else ends,
            expires_at=ends,
        )

    tell = lambda row: ctx.events.released([row])  # noqa: E731
    return _held(ctx, "release", task_id, after, tell)


def done(ctx: TubeContext, task_id: int, data: Any) -> Task:
    """Keep a held task in state done, with other data; takes ignore it, and its ttl goes on."""
    encoded = ctx.codec.encode(data)
    put.require_small(ctx, [encoded])

    def after(row: StoredTask, _now_us: int) -> StoredTask:
        return replace(row, state=TaskState.DONE, data=encoded, next_event=row.expires_at)

    def tell(row: StoredTask) -> list[Task]:
        ctx.count(old_verb("done"), 1)
        ctx.queue_event("done", [row.task()])
        return [row.task()]

    return _held(ctx, "done", task_id, after, tell, "done", data=True)


def _held(
    ctx: TubeContext,
    name: str,
    task_id: int,
    after: Callable[[StoredTask, int], StoredTask],
    tell: Callable[[StoredTask], list[Task]],
    event: str = "release",
    *,
    data: bool = False,
) -> Task:
    """Change a task that this session holds.

    Raises:
        NotTakenError: This session does not hold it.
    """

    def attempt(memory: locate.Memory) -> Plan[list[Task]]:
        now_us = ctx.queue.now_us()
        found = locate.held(ctx, [task_id], now_us, remembered=memory.once())
        row = after(found[0], now_us)
        return settle.changed(
            ctx,
            found,
            lambda dest: Become(dest, row, data=data, event=event, max_attempts=ctx.max_attempts),
            lambda _: tell(row),
        )

    return settle.run(ctx, name, attempt)[0]


def look(ctx: TubeContext, task_id: int) -> StoredTask | None:
    """A task with its effective state; `None` if it is not in this tube."""
    rows = ctx.reader.by_ids([task_id])
    return next(iter(ctx.seen(rows, ctx.queue.now_us())), None)
