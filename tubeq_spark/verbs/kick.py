"""kick: makes buried tasks ready by their number, or by a condition. `settle` kicks named tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import TRUE
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.settle import KICK, Decision, settlement

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Affected


def kick(ctx: TubeContext, count: int | None, where: str | None = None) -> int:
    """Make up to `count` (`None`: all) buried tasks ready, in the tube's order, with 0 attempts.

    Args:
        ctx: The tube.
        count: The most tasks.
        where: A program's condition; `None` is every buried task.
    """
    condition: Expression = TRUE
    if where is not None:
        from tubeq_spark.storage.user_condition import condition_of  # noqa: PLC0415  (needs an extra)

        condition = condition_of(where, ctx.table.shown)
    if count == 0:
        return 0
    if ctx.table.max_attempts is not None:
        # Tasks whose ended lease was their last attempt count as buried, but are stored as taken.
        end_due(ctx, ctx.queue.now_us())

    def attempt() -> Plan[int]:
        now_us = ctx.queue.now_us()
        buried = ctx.table.is_buried(now_us) & condition
        places = ctx.reader.places(buried, order=ctx.table.order, limit=count, skips=())
        if not places.num_rows:
            return Plan(None, lambda _: 0)
        change = KICK.change(Decision(ctx, now_us))
        statement = settlement(ctx, places, change)
        rows = []
        if ctx.events.callback is not None:
            ids = places.column("task_id").to_pylist()
            rows = ctx.reader.of(ctx.table.has_id(ids), order=ctx.table.order, skips=())

        def finish(affected: Affected) -> int:
            ctx.events.count("kick", affected.updated)
            after = rows_after(statement.changes, rows)
            ctx.events.keep("kick", [row.task() for row in after])
            return affected.updated

        return Plan(statement, finish, now_us)

    kicked = ctx.queue.loop.run("kick", ctx.table_lock, attempt)
    if kicked:
        ctx.table_lock.wake_takes()
    return kicked
