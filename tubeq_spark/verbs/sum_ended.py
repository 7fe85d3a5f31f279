"""Adds up the tasks that commits of Spark have ended, from their notes, before these leave the log.

It is one append without rows, which conflicts only with another sum. If it is interrupted before
the append, the next sum adds up the notes; after it, they are in the total.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError
from tubeq_spark.storage.commit_loop import Plan

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext

__all__ = ["sum_ended"]


def sum_ended(ctx: TubeContext) -> None:
    """Add up the notes of a tube. At most one commit, none if there are no new ones.

    The notes of a tube that this engine must not write wait for a sweep of the other one.
    """
    # Most tubes have none, which is seen without the lock.
    if not ctx.queue.loop_without_retry.is_allowed or ctx.ended.sum() is None:
        return

    def attempt() -> Plan[None]:
        return Plan(ctx.ended.sum(), lambda _: None)

    try:
        ctx.queue.loop_without_retry.run("sum_ended", ctx.table_lock, attempt)
    except ConflictError:
        # Another sweep has added them up, or the next one will.
        return
