"""`tubeq take`: takes tasks for a shell.

A session ends with its process, and then its tasks are released. So a call that takes a task also acks it after
printing it, or it leaves the session alive, so that a later call can ack the task.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.call import Call, queue_of
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import TakenUtubes, seconds, whole
from tubeq_spark.errors import TubeqError
from tubeq_spark.model import validation

if TYPE_CHECKING:
    from uuid import UUID

    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube


def take(
    ctx: typer.Context,
    tube: str,
    count: Annotated[int, whole("Tasks at most", "-n", "--count", least=1)] = 1,
    timeout: Annotated[float, seconds("How long to wait for a task")] = 0,
    per_utube: Annotated[int, whole("Tasks of one sub-queue at most", least=1)] = 1,
    utube: TakenUtubes = None,
    keep: Annotated[
        float | None,
        seconds(
            "Leave them taken for this time (at most their ttr); ack or release them with the "
            "session that is printed"
        ),
    ] = None,
) -> None:
    """Take tasks, print them, and remove them (ack).

    With --keep a later call acks them. `tubeq work` calls a function or a command for each task.
    """
    with queue_of(ctx) as (call, queue):
        source = queue.tube(tube)
        kept_for = None if keep is None else validation.lease("keep", keep)
        tasks = source.take_many(count, timeout=timeout, per_utube=per_utube, utube=utube or None)
        if not tasks:
            raise typer.Exit(ExitCode.NO)
        if kept_for is None:
            call.show_tasks(tasks)
            source.ack_many([task.task_id for task in tasks])
            return
        try:
            # The session is handed over before its tasks are printed, so that a reader can settle them at once.
            call.show_tasks(tasks, queue.hand_over(kept_for))
        except BaseException:
            # The tasks were not printed, so no later call could know the session.
            _give_back(call, source, queue.session_uuid, tasks)
            raise


def _give_back(call: Call, source: Tube, session: UUID, tasks: list[Task]) -> None:
    """Release tasks that were handed over to a session. If that fails, they come back when it ends."""
    with suppress(TubeqError), call.queue(session) as queue:
        queue.tube(source.name).release_many([task.task_id for task in tasks])
