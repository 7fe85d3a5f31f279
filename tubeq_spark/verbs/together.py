"""Acks and takes of threads share commits: calls that wait while one commit runs share the next one.

An exchange can put acks and takes into one commit. It does so in tubes without sub-queues and without a change
feed, if statements run in this process. The acks come first. If one of the calls is refused, nothing
was done, and acks and takes are decided separately, so that only this call fails. If the commit is unknown, it is
unknown to all calls. Nothing is prepared before the commit, so an interruption has the effects of an interrupted
exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import CommitUnknownError, TubeqError
from tubeq_spark.model.arguments import TakeRequest
from tubeq_spark.runtime.group_commit import GroupCommit
from tubeq_spark.verbs.exchange import ack_and_take
from tubeq_spark.verbs.settle import ack_group
from tubeq_spark.verbs.take import take_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.taken import TakenRows
    from tubeq_spark.task import Task

Request = TypeVar("Request")


class AcksAndTakes:
    """The acks and takes of one tube, of all threads."""

    def __init__(self, context: Callable[[], TubeContext]) -> None:
        """Commit them in the tube that `context` returns."""
        self.group = GroupCommit[list[int] | TakeRequest, Any](
            lambda requests: _run(context(), requests)
        )

    def ack(self, ids: list[int]) -> list[Task]:
        """Remove tasks that this session holds."""
        tasks: list[Task] = self.group.submit(ids)
        return tasks

    def take(self, request: TakeRequest) -> TakenRows | None:
        """Take the next tasks; `None` if none is ready."""
        taken: TakenRows | None = self.group.submit(request)
        return taken


def _run(ctx: TubeContext, requests: list[list[int] | TakeRequest]) -> list[Any]:
    """Ack and take for several calls, in one commit if possible."""
    acks = [request for request in requests if isinstance(request, list)]
    takes = [request for request in requests if isinstance(request, TakeRequest)]
    done = _as_one(ctx, acks, takes) or (
        _apart(ctx, ack_group, acks),
        _apart(ctx, take_group, takes),
    )
    acked, taken = map(iter, done)
    return [next(acked if isinstance(request, list) else taken) for request in requests]


def _as_one(
    ctx: TubeContext, acks: list[list[int]], takes: list[TakeRequest]
) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Commit acks and takes at once; `None` if nothing was done."""
    named = [task_id for ids in acks for task_id in ids]
    if not acks or not takes or len(set(named)) < len(named):
        return None
    if ctx.driver.subqueues or ctx.table.change_feed or ctx.queue.engine.committer() is not None:
        return None
    try:
        return ack_and_take(ctx, acks, takes)
    except CommitUnknownError:
        raise
    except TubeqError:
        return None


def _apart(
    ctx: TubeContext,
    run: Callable[[TubeContext, list[Request]], Sequence[Any]],
    requests: list[Request],
) -> Sequence[Any]:
    """Run the calls of one kind. An error is the result of all of them, and of no call of the other kind."""
    if not requests:
        return []
    try:
        return run(ctx, requests)
    except Exception as error:  # noqa: BLE001  (each call gets it)
        return [error] * len(requests)
