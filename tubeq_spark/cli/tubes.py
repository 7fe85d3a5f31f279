"""`tubeq create alter tubes stats pause resume drop truncate release-all`: the commands about whole tubes."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

import typer

from tubeq_spark.cli.call import queue_of, tube_of
from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.options import (
    ALTERED,
    CREATED,
    Yes,
    flag,
    plain_options,
    with_options,
)
from tubeq_spark.cli.table import show_each
from tubeq_spark.markup import plural
from tubeq_spark.observe.columns import STATES, Column, Columns


def _counted(kind: str, name: str) -> Column:
    """A column with one of the counts of a tube: its `tasks` by state, or its `calls` by verb."""
    return lambda row: row[kind][name]


#: The columns of `tubeq stats`. `tubeq show` has the calls of all verbs.
_COUNTS: Columns = {
    "tube": itemgetter("tube"),
    "type": itemgetter("type"),
    **{state: _counted("tasks", state) for state in (*STATES, "done", "total")},
    **{
        verb: _counted("calls", verb)
        for verb in ("put", "take", "ack", "release", "bury", "kick", "delete")
    },
    "paused": lambda row: "paused" if row["paused"] else "",
}


@with_options(CREATED)
def create(
    ctx: typer.Context,
    tube: str,
    type_name: Annotated[
        str,
        typer.Argument(
            metavar="TYPE",
            help="fifo; fifottl, also with priorities, delays, ttl and ttr; limfifottl, also with a capacity; "
            "utube and utubettl, as fifo and fifottl with sub-queues",
        ),
    ] = "fifo",
    if_not_exists: Annotated[
        bool, flag("--if-not-exists", "Accept an existing tube of this type")
    ] = False,
    if_same: Annotated[
        bool, flag("--if-same", "Accept an existing tube only with the given options")
    ] = False,
    **options: Any,
) -> None:
    """Create a tube, and the queue if the location has none."""
    given = {name: value for name, value in options.items() if value is not None}
    with queue_of(ctx, create=True) as (call, queue):
        # An existing tube with other options is a warning in the log.
        made = queue.create_tube(
            tube, type_name, if_not_exists="same" if if_same else if_not_exists, **given
        )
        shown = {"tube": made.name, "type": made.type, "options": plain_options(made.options)}
        call.show(shown, f"tube {made.name} of type {made.type}")


def _resettable(text: str) -> str:
    name = text.replace("-", "_")
    if name not in ALTERED:
        raise typer.BadParameter(f"{text!r} must be one of {', '.join(sorted(ALTERED))}")
    return name


@with_options(ALTERED)
def alter(
    ctx: typer.Context,
    tube: str,
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


def pause(ctx: typer.Context, tube: str) -> None:
    """Stop all takes within five seconds; puts and acks go on."""
    with tube_of(ctx, tube) as (call, source):
        source.pause()
        call.show({"tube": tube, "paused": True}, f"paused {tube}")


def resume(ctx: typer.Context, tube: str) -> None:
    """End a pause; takes go on within five seconds."""
    with tube_of(ctx, tube) as (call, source):
        source.resume()
        call.show({"tube": tube, "paused": False}, f"resumed {tube}")


def tubes(ctx: typer.Context) -> None:
    """List the tubes."""
    with queue_of(ctx) as (call, queue):
        for name in queue.tubes():
            call.show({"tube": name}, name)


def stats(ctx: typer.Context, tube: Annotated[str | None, typer.Argument()] = None) -> None:
    """Count tasks by state, and calls of verbs."""
    with queue_of(ctx) as (call, queue):
        from tubeq_spark.queue import typed_statistics  # noqa: PLC0415  as in call

        found = typed_statistics(queue, tube)
        show_each(call, [{"tube": name, **of} for name, of in found.items()], _COUNTS, dict)


def drop(
    ctx: typer.Context,
    tube: str,
    yes: Yes = False,
) -> None:
    """Remove a tube with all its tasks (asks first)."""
    with tube_of(ctx, tube) as (call, dropped):
        call.require_yes(f"Drop {tube} with all its tasks?", "nothing was dropped", yes=yes)
        dropped.drop()
        call.show({"tube": tube, "dropped": True}, f"dropped {tube}")


def truncate(ctx: typer.Context, tube: str, yes: Yes = False) -> None:
    """Remove all tasks of a tube (asks first)."""
    with tube_of(ctx, tube) as (call, emptied):
        call.require_yes(f"Remove all tasks of {tube}?", "nothing was removed", yes=yes)
        emptied.truncate()
        call.show({"tube": tube, "truncated": True}, f"removed all tasks of {tube}")


def release_all(ctx: typer.Context, tube: str, yes: Yes = False) -> None:
    """Release the taken tasks of all consumers (asks first).

    Consumers that still work on them can no longer ack them.
    """
    with queue_of(ctx) as (call, queue):
        source = queue.tube(tube)
        call.require_yes(f"Release the taken tasks of {tube}?", "nothing was released", yes=yes)
        before = queue.statistics(tube)["calls"]["release"]
        source.release_all()
        released = queue.statistics(tube)["calls"]["release"] - before
        call.show(
            {"tube": tube, "released": released}, f"released {plural(released, 'task')} of {tube}"
        )
