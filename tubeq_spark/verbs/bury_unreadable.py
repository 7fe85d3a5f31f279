"""Buries, before a take, tasks whose payload Python cannot represent.

A put refuses such payloads, so they were written by SQL. They are buried
while they are candidates, before anything is taken, by a separate commit. If the take is
interrupted before this commit, nothing has changed; after it, the tasks are buried and nothing is
taken. If another commit moves one of them first, the take reads its candidates again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError, TaskNotFoundError
from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.settle import bury, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext

log = logging.getLogger(__name__)

#: If one task is unreadable, this many candidates are checked, so that one commit buries many.
_LOOK_AHEAD = 1_000


def buries_unreadable(
    ctx: TubeContext, rows: list[StoredTask], read: Callable[[int], list[StoredTask]]
) -> bool:
    """Bury unreadable candidates of a take; whether there were some.

    Commits: one for every 1,000 unreadable candidates, usually none.

    Args:
        ctx: The tube.
        rows: The candidates.
        read: Reads so many candidates again, in their order.

    Raises:
        Stale: Another commit, or the end of its ttl, has changed a task that was to be buried.
    """
    if not any(row.unreadable() for row in rows):
        return False
    _bury(ctx, read(max(len(rows), _LOOK_AHEAD)))
    return True


def _bury(ctx: TubeContext, rows: list[StoredTask]) -> None:
    reasons = {row.task_id: found.reason for row in rows if (found := row.unreadable())}
    # A consumer of batches may hold one by now: Spark can read what Python cannot represent.
    verb = replace(bury(), states=(TaskState.READY, TaskState.DELAYED))
    try:
        settle(ctx, verb, list(reasons))
    except (TaskNotFoundError, ConflictError) as error:
        raise Stale from error
    for task_id, reason in reasons.items():
        log.error("task %d of tube %s was buried: %s", task_id, ctx.record.name, reason)
