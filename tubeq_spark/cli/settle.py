"""`tubeq take`, `ack release touch` for tasks that a kept session holds, `bury delete peek kick` for any.

A session ends with its process, and then its tasks are released. So a call that takes a task also acks it after
printing it, or it leaves the session alive, so that a later call can ack the task.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from tubeq_spark.cli.call import Call, print_line, queue_of, tube_of
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import (
    TakenUtubes,
    Where,
    Yes,
    flag,
    parser,
    seconds,
    task_id,
    whole,
    word,
)
from tubeq_spark.cli.values import seconds_of, whole_of
from tubeq_spark.errors import InvalidOptionError, TubeqError
from tubeq_spark.markup import plural, printable
from tubeq_spark.model import validation
from tubeq_spark.task import Task

#: The argument of commands for one task.
Id = Annotated[int, typer.Argument(metavar="TASK_ID", parser=task_id)]
#: A larger count of tasks is probably an id.
_MOST_KICKED = 10**12
_Ids = Annotated[list[int], typer.Argument(metavar="TASK_ID...", parser=task_id)]
_Session = Annotated[
    str,
    typer.Option(
        metavar="UUID",
        envvar="TUBEQ_SESSION",
        help="Session that holds them (printed by take --keep)",
    ),
]
_Error = Annotated[str | None, word("TEXT", "Error to store with the tasks", "--error")]


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
            # They were not printed, so no later call could know the session. If this fails, they come back when it ends.
            with suppress(TubeqError), call.queue(queue.session_uuid) as joined:
                joined.tube(tube).release_many([task.task_id for task in tasks])
            raise


def ack(ctx: typer.Context, tube: str, task_ids: _Ids, session: _Session) -> None:
    """Remove finished tasks, all or none."""
    with tube_of(ctx, tube, session) as (call, source):
        call.show_tasks(source.ack_many(task_ids))


def release(
    ctx: typer.Context,
    tube: str,
    task_ids: _Ids,
    session: _Session,
    delay: Annotated[
        float | None,
        seconds("Delay [default: the tube's backoff with --error, else 0]"),
    ] = None,
    error: _Error = None,
) -> None:
    """Release taken tasks, all or none."""
    with tube_of(ctx, tube, session) as (call, source):
        call.show_tasks(source.release_many(task_ids, delay=delay, error=error))


def touch(
    ctx: typer.Context,
    tube: str,
    task_id: Id,
    increment: Annotated[
        float,
        typer.Argument(parser=parser(seconds_of), metavar="TIME", help="Time to add"),
    ],
    session: _Session,
) -> None:
    """Give a taken task more time: its lease, ttl and ttr grow.

    The timeout of its session stays as it is.
    """
    with tube_of(ctx, tube, session) as (call, source):
        task = source.touch(task_id, increment)
        call.show_tasks([] if task is None else [task])


def bury(ctx: typer.Context, tube: str, task_ids: _Ids, error: _Error = None) -> None:
    """Set tasks aside until they are kicked, all or none."""
    with tube_of(ctx, tube) as (call, source):
        call.show_tasks(source.bury_many(task_ids, error=error))


def kick(
    ctx: typer.Context,
    tube: str,
    count: Annotated[
        int | None,
        typer.Argument(
            parser=parser(whole_of, 0),
            help="Tasks at most [default: 1, with --where all]",
        ),
    ] = None,
    ids: Annotated[
        list[int] | None,
        typer.Option(
            "--id", metavar="TASK_ID", parser=task_id, help="Kick this task; may be repeated"
        ),
    ] = None,
    where: Where = None,
    every: Annotated[bool, flag("--all", "All buried tasks")] = False,
) -> None:
    """Kick the first buried tasks, or those of --id (all or none).

    A kicked task is ready again, and its attempts begin at 0.
    """
    ways = {"a count": count is not None, "--all": every, "--id": bool(ids)}
    given = [name for name, is_given in (ways | {"--where": where is not None}).items() if is_given]
    with tube_of(ctx, tube) as (call, source):
        if sum(ways.values()) > 1 or (ids and where is not None):
            raise InvalidOptionError(f"{' and '.join(given)} exclude each other")
        if count is not None and count > _MOST_KICKED:
            msg = f"{count} looks like the id of a task, not like a number of tasks: use --id"
            raise InvalidOptionError(msg)
        if ids:
            kicked = len(source.kick_many(ids))
        else:
            one_by_default = 1 if where is None and not every else None
            kicked = source.kick(one_by_default if count is None else count, where=where)
        call.show({"tube": tube, "kicked": kicked}, f"kicked {plural(kicked, 'task')} of {tube}")


def peek(ctx: typer.Context, tube: str, task_ids: _Ids) -> None:
    """Show tasks and their errors, without taking them."""
    with tube_of(ctx, tube) as (call, source):
        for task in map(source.peek, task_ids):
            call.show_tasks([task])
            if task.error is not None and not call.json:
                print_line(printable(task.error, "\n"))


def delete(
    ctx: typer.Context,
    tube: str,
    task_ids: Annotated[
        list[int] | None, typer.Argument(metavar="[TASK_ID]...", parser=task_id)
    ] = None,
    where: Where = None,
    yes: Yes = False,
) -> None:
    """Remove tasks in any state, all or none.

    With --where it asks first, and removes 10,000 at a time.
    """
    with tube_of(ctx, tube) as (call, source):
        if (where is None) is not bool(task_ids):
            raise InvalidOptionError("name tasks by their ids, or by --where")
        if where is None:
            _show_deleted(call, tube, source.delete_many(task_ids or []))
            return
        from tubeq_spark.admin.tubes import perform_in  # noqa: PLC0415  as in call
        from tubeq_spark.verbs.read import count_matching  # noqa: PLC0415
        from tubeq_spark.verbs.settle import delete_where  # noqa: PLC0415

        found = perform_in(source, lambda ctx: count_matching(ctx, where))
        question = f"Delete {plural(found, 'task')} of {tube}?"
        call.require_yes(question, "nothing was deleted", yes=yes)
        while deleted := perform_in(source, lambda ctx: delete_where(ctx, where), name="delete"):
            _show_deleted(call, tube, deleted)


def _show_deleted(call: Call, tube: str, tasks: list[Task]) -> None:
    """Print the deleted tasks with `--json`, and else only their number: whoever deletes may not want the payloads."""
    if call.json:
        call.show_tasks(tasks)
    else:
        call.show({}, f"deleted {plural(len(tasks), 'task')} of {tube}")
