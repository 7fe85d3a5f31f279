"""Closes a queue: gives back what its session holds, and does what it can where Spark is gone."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.verbs import expire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.engine import Engine

__all__ = ["Step", "give_back", "leave_for_good"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of closing.

    Attributes:
        leaves: What is left behind where it cannot be done; "": nothing that the log should tell.
        do: Does it; returns False where it was not done.
    """

    leaves: str
    do: Callable[[], bool | None]


def leave_for_good(engine: Engine, steps: Sequence[Step]) -> None:
    """Do the commits of closing; what a way to Spark that is gone keeps from them is logged."""
    left: list[str] = []
    for step in steps:
        # Spark that has not answered one step is not waited for again by each of the others.
        is_gone = bool(left) and engine.unreachable
        if is_gone or not _is_done(engine, step):
            left.append(step.leaves)
    if any(left):
        leaves = "; ".join(filter(None, left))
        log.warning("left behind until the session's lease ends: %s", leaves)


def _is_done(engine: Engine, step: Step) -> bool:
    """Do a step of closing, at the second try if need be; not so where Spark is gone."""
    for is_last in (False, True):
        if not engine.answers():
            return False
        try:
            if step.do() is not False:
                return True
        except (CommitUnknownError, StoreError):
            if is_last and not engine.unreachable:
                raise
    return False


def give_back(queue: QueueContext, may_hold: Callable[[], Iterable[TubeContext]]) -> bool:
    """Release what a queue object's session holds, unless others share the session and live.

    Args:
        queue: The queue object.
        may_hold: Finds the tubes that the session may hold tasks of.

    Returns:
        Whether nothing is left. Commits: a release for each tube with held tasks.
    """
    session = queue.session
    if not session.registered or session.others_alive():
        return True
    is_all = True
    for ctx in may_hold():
        try:
            expire.release_taken(ctx, session.owner)
            ctx.events.tell()
        except Exception:
            # The other tubes come first; what stays comes back when the lease ends.
            log.exception("tasks of tube %s were not released", ctx.record.name)
            is_all = False
            if queue.engine.unreachable:
                break
    queue.held_tasks.clear()
    return is_all
