"""`tubeq alter pause resume`: the commands that change tubes that are there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tubeq_spark.cli.call import tube_of
from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.names import TubeName
from tubeq_spark.cli.options import ALTERED, plain_options, with_options


def _resettable(text: str) -> str:
    name = text.replace("-", "_")
    if name not in ALTERED:
        raise typer.BadParameter(f"{text!r} must be one of {', '.join(sorted(ALTERED))}")
    return name


@with_options(ALTERED)
def alter(
    ctx: typer.Context,
    tube: TubeName,
    reset: Annotated[
        list[str] | None,
        typer.Option(
            parser=_resettable,
            metavar="OPTION",
            help="Reset this option to the default of a new tube; may be repeated",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Change options of a tube.

    All programs see it within five seconds.
    """
    changes = {name: value for name, value in options.items() if value is not None}
    with tube_of(ctx, tube) as (call, altered):
        for name in reset or ():
            if name in changes:
                raise BadUseError(f"{name} cannot be set and reset at once")
        changes |= dict.fromkeys(reset or ())
        if not changes:
            raise BadUseError("nothing to alter: give an option, or --reset OPTION")
        altered.alter(**changes)
        shown = {"tube": tube, "type": altered.type, "options": plain_options(altered.options)}
        call.show(shown, f"altered {', '.join(changes)} of {tube}")


def pause(ctx: typer.Context, tube: TubeName) -> None:
    """Stop all takes within five seconds; puts and acks go on."""
    with tube_of(ctx, tube) as (call, source):
        source.pause()
        call.show({"tube": tube, "paused": True}, f"paused {tube}")


def resume(ctx: typer.Context, tube: TubeName) -> None:
    """End a pause; takes go on within five seconds."""
    with tube_of(ctx, tube) as (call, source):
        source.resume()
        call.show({"tube": tube, "paused": False}, f"resumed {tube}")
