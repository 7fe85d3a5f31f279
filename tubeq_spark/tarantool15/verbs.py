"""The verbs of Tarantool 1.5 that `Tube` does not have: urgent, requeue, release with a ttl, done.

Each verb makes one statement to the tube, as in `put` and `settle`. If it is interrupted before the
statement, nothing has changed. After the statement the change is done. If another commit
moves the task first, the guard fails, and the verb reads again. `urgent` only inserts, so it conflicts with
nothing. A task that is put ahead of it between its read and its statement stays ahead.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import plus
from tubeq_spark.model.arguments import PutCall
from tubeq_spark.model.changes import Become
from tubeq_spark.model.stored_task import StoredTask, after_giving_back
from tubeq_spark.storage.expression import integer
from tubeq_spark.storage.expression import row as columns
from tubeq_spark.storage.query import greatest, least
from tubeq_spark.tarantool15.tasks import (
    USUAL_FIRST,
    USUAL_LAST,
    priority_of,
    rank_before,
    rank_behind,
    stored_pri,
)
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs import put
from tubeq_spark.verbs.settle import Verb, fresh, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.runtime.context import TubeContext

#: Tasks that are not done.
_IS_LEFT = columns().state != TaskState.DONE.value


def urgent(ctx: TubeContext, data: Any, options: dict[str, Any]) -> Task | None:
    """Put a task before all existing tasks, unless it is delayed; `None` if the tube is full."""
    rows = put.prepare(ctx, PutCall([data], options, 0))
    # The rank is read within each attempt, under the table lock, so that it comes before urgent tasks of others.
    (tasks,) = put.put_group(ctx, [rows], name="urgent", changed=lambda row: _ahead(ctx, row))
    return tasks[0] if tasks else None


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
            state=after_giving_back(row.attempts, ctx.table.max_attempts),
            pri=stored_pri(priority_of(row.pri), rank),
            next_event=row.expires_at,
        )

    return _become(ctx, "requeue", task_id, after)


def release(ctx: TubeContext, task_id: int, delay_us: int | None, ttl_us: int | None) -> Task:
    """Release a held task with a new ttl, counted from now; the delay is added to it."""

    def after(row: StoredTask, now_us: int) -> StoredTask:
        state = after_giving_back(row.attempts, ctx.table.max_attempts)
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

    return _become(ctx, "release", task_id, after)


def done(ctx: TubeContext, task_id: int, data: Any) -> Task:
    """Keep a held task in state done, with other data; takes ignore it, and its ttl goes on."""
    encoded = ctx.codec.encode(data)
    put.require_small(ctx, [encoded])

    def after(row: StoredTask, _now_us: int) -> StoredTask:
        return replace(row, state=TaskState.DONE, data=encoded, next_event=row.expires_at)

    task = _become(ctx, "done", task_id, after, data=True)
    # The callback gets a copy, because the caller may change the payload.
    ctx.events.keep("done", [deepcopy(task)])
    return task


def _become(
    ctx: TubeContext,
    name: str,
    task_id: int,
    after: Callable[[StoredTask, int], StoredTask],
    *,
    data: bool = False,
) -> Task:
    """Change a task that this session holds; with `data` its payload, too, and that is no release.

    Raises:
        NotTakenError: This session does not hold it.
    """
    event = "done" if data else "release"

    def change(ctx: TubeContext, now_us: int, rows: Sequence[StoredTask]) -> Become:
        row = replace(after(rows[0], now_us), since=now_us)
        return Become(fresh(ctx), row, data=data, event=event)

    verb = Verb(name, change, "" if data else "release", by_holder=True)
    return settle(ctx, verb, [task_id])[0]
