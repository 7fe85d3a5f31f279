"""`tubeq alter pause resume`: the commands that change tubes that are there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tubeq_spark.cli import options
from tubeq_spark.cli.call import Call
from tubeq_spark.cli.names import TubeName
from tubeq_spark.cli.options import plain_options
from tubeq_spark.cli.program import BadUseError
from tubeq_spark.model.options import ALTERABLE

_ALTERABLE = tuple(sorted(ALTERABLE))


def _resettable(text: str) -> str:
    name = text.replace("-", "_")
    if name not in _ALTERABLE:
        msg = f"{text!r} must be one of {', '.join(_ALTERABLE)}"
        raise typer.BadParameter(msg)
    return name


def alter(
    ctx: typer.Context,
    tube: TubeName,
    pri: options.Pri = None,
    ttl: options.Ttl = None,
    ttr: options.Ttr = None,
    delay: options.Delay = None,
    capacity: options.Capacity = None,
    max_attempts: options.MaxAttempts = None,
    backoff: options.BackoffText = None,
    parallel: options.Parallel = None,
    rate: options.RateText = None,
    order: options.Order = None,
    most_taken: options.MostTaken = None,
    aging: options.Aging = None,
    reset: Annotated[
        list[str] | None,
        typer.Option(
            parser=_resettable,
            metavar="OPTION",
            help="Give this option the default of a new tube; may be repeated",
        ),
    ] = None,
) -> None:
    """Change options of a tube; all programs see it within five seconds."""
    call: Call = ctx.obj
    given: dict[str, Any] = {
        "pri": pri,
        "ttl": ttl,
        "ttr": ttr,
        "delay": delay,
        "capacity": capacity,
        "max_attempts": max_attempts,
        "backoff": backoff,
        "parallel": parallel,
        "rate": rate,
        "order": order,
        "most_taken": most_taken,
        "aging": aging,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    with call.queue(tube=tube) as queue:
        for name in reset or ():
            if name in changes:
                msg = f"{name} cannot be set and reset at once"
                raise BadUseError(msg)
        changes |= dict.fromkeys(reset or ())
        if not changes:
            msg = "nothing to alter: give an option, or --reset OPTION"
            raise BadUseError(msg)
        altered = queue.tube(tube)
        altered.alter(**changes)
        found = altered.options
        shown = {"tube": tube, "type": altered.type, "options": plain_options(found)}
        call.show(shown, f"altered {', '.join(changes)} of {tube}")


def pause(ctx: typer.Context, tube: TubeName) -> None:
    """Let takes of all programs find nothing, from at most five seconds later on; all else goes on."""
    call: Call = ctx.obj
    with call.queue(tube=tube) as queue:
        queue.tube(tube).pause()
        call.show({"tube": tube, "paused": True}, f"paused {tube}")


def resume(ctx: typer.Context, tube: TubeName) -> None:
    """End a pause; takes of all programs find tasks again within five seconds."""
    call: Call = ctx.obj
    with call.queue(tube=tube) as queue:
        queue.tube(tube).resume()
        call.show({"tube": tube, "paused": False}, f"resumed {tube}")
