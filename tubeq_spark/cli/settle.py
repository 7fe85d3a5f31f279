"""`tubeq ack release touch` for tasks that a kept session holds, `bury delete peek kick` for any."""

from __future__ import annotations

from typing import Annotated

import typer

from tubeq_spark.cli.call import tube_of
from tubeq_spark.cli.names import TubeName
from tubeq_spark.errors import InvalidOptionError


def _task_id(text: str) -> int:
    """Parse an id, as it is printed, or in the quotes that it has in JSON."""
    return int(text.strip().removeprefix('"').removesuffix('"'))


#: The argument of commands for one task.
Id = Annotated[int, typer.Argument(metavar="TASK_ID", show_default=False, parser=_task_id)]
_Ids = Annotated[
    list[int], typer.Argument(metavar="TASK_ID...", show_default=False, parser=_task_id)
]
_Session = Annotated[
    str,
    typer.Option(
        metavar="UUID",
        envvar="TUBEQ_SESSION",
        help="Which holds them: printed by take --keep, and alive for as long as that said",
    ),
]
_Error = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Why; the tasks keep it")
]


def ack(ctx: typer.Context, tube: TubeName, task_ids: _Ids, session: _Session) -> None:
    """Remove tasks that are done, all or none."""
    with tube_of(ctx, tube, session) as (call, source):
        call.show_tasks(source.ack_many(task_ids))


def release(
    ctx: typer.Context,
    tube: TubeName,
    task_ids: _Ids,
    session: _Session,
    delay: Annotated[
        float | None,
        typer.Option(
            help="Seconds before they are ready again [default: the tube's backoff with --error, else 0]",
            show_default=False,
        ),
    ] = None,
    error: _Error = None,
) -> None:
    """Give tasks back, all or none."""
    with tube_of(ctx, tube, session) as (call, source):
        call.show_tasks(source.release_many(task_ids, delay=delay, error=error))


def touch(
    ctx: typer.Context,
    tube: TubeName,
    task_id: Id,
    increment: Annotated[float, typer.Argument(help="Seconds")],
    session: _Session,
) -> None:
    """Give a task more time; its session's lease stays as it was."""
    with tube_of(ctx, tube, session) as (call, source):
        task = source.touch(task_id, increment)
        call.show_tasks([] if task is None else [task])


def bury(ctx: typer.Context, tube: TubeName, task_ids: _Ids, error: _Error = None) -> None:
    """Set tasks aside until they are kicked, all or none."""
    with tube_of(ctx, tube) as (call, source):
        call.show_tasks(source.bury_many(task_ids, error=error))


def kick(
    ctx: typer.Context,
    tube: TubeName,
    count: Annotated[
        int | None, typer.Argument(min=0, help="How many at most [default: 1]", show_default=False)
    ] = None,
    ids: Annotated[
        list[int] | None,
        typer.Option(
            "--id", metavar="TASK_ID", parser=_task_id, help="This buried task; may be repeated"
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help='Only those of a condition, such as "attempts > 3"'),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All, not only the first")] = False,
) -> None:
    """Make buried tasks ready again: the first in order, or those named by --id, all or none."""
    ways = {"a count": count is not None, "--all": every, "--id": bool(ids)}
    given = [name for name, is_given in (ways | {"--where": where is not None}).items() if is_given]
    with tube_of(ctx, tube) as (call, source):
        if sum(ways.values()) > 1 or (ids and where is not None):
            msg = f"{' and '.join(given)} exclude each other"
            raise InvalidOptionError(msg)
        if ids:
            kicked = len(source.kick_many(ids))
        else:
            most = 1 if count is None else count
            kicked = source.kick(None if every else most, where=where)
        call.show({"tube": tube, "kicked": kicked}, f"kicked {kicked:,} tasks of {tube}")


def peek(ctx: typer.Context, tube: TubeName, task_ids: _Ids) -> None:
    """Look at tasks without taking them."""
    with tube_of(ctx, tube) as (call, source):
        call.show_tasks([source.peek(task_id) for task_id in task_ids])


def delete(ctx: typer.Context, tube: TubeName, task_ids: _Ids) -> None:
    """Remove tasks, whatever their state, all or none."""
    with tube_of(ctx, tube) as (call, source):
        call.show_tasks(source.delete_many(task_ids))
