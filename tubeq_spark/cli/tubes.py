"""`tubeq create tubes stats sweep drop truncate release-all`: the commands about whole tubes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tubeq_spark.cli import options
from tubeq_spark.cli.call import Call
from tubeq_spark.cli.names import TubeName, names
from tubeq_spark.cli.options import plain_options
from tubeq_spark.cli.program import ExitCode

_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask")]


def create(
    ctx: typer.Context,
    tube: str,
    type_name: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="fifo, fifottl, limfifottl, utube or utubettl"),
    ] = "fifo",
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="One of this type may be there already")
    ] = False,
    pri: options.Pri = None,
    ttl: options.Ttl = None,
    ttr: options.Ttr = None,
    delay: options.Delay = None,
    capacity: options.Capacity = None,
    storage_mode: Annotated[str, typer.Option(help="default or ready_buffer")] = "default",
    schema: Annotated[
        str | None, typer.Option(help="DDL of a typed payload; takes a Spark session")
    ] = None,
    max_attempts: options.MaxAttempts = None,
    change_feed: Annotated[
        bool, typer.Option("--change-feed", help="Keep Delta's change data feed")
    ] = False,
    backoff: options.BackoffText = None,
    parallel: options.Parallel = None,
    rate: options.RateText = None,
    order: options.Order = None,
    most_taken: options.MostTaken = None,
    aging: options.Aging = None,
    unique_for: Annotated[
        float | None, typer.Option(help="Seconds that the key of a task stays in use after it")
    ] = None,
) -> None:
    """Create a tube, and a queue where there is none."""
    call: Call = ctx.obj
    with call.queue(create=True) as queue:
        made = queue.create_tube(
            tube,
            type_name,
            if_not_exists=if_not_exists,
            pri=pri,
            ttl=ttl,
            ttr=ttr,
            delay=delay,
            capacity=capacity,
            storage_mode=storage_mode,
            schema=schema,
            max_attempts=max_attempts,
            change_feed=change_feed,
            backoff=backoff,
            parallel=1 if parallel is None else parallel,
            rate=rate,
            order="fifo" if order is None else order,
            most_taken=most_taken,
            aging=aging,
            unique_for=unique_for,
        )
        shown = {"tube": made.name, "type": made.type, "options": plain_options(made.options)}
        call.show(shown, f"tube {made.name} of type {made.type}")


def tubes(ctx: typer.Context) -> None:
    """List the tubes, a name a line."""
    call: Call = ctx.obj
    with call.queue() as queue:
        for name in queue.tubes():
            call.show({"tube": name}, name)


def stats(
    ctx: typer.Context, tube: Annotated[str | None, typer.Argument(autocompletion=names)] = None
) -> None:
    """Count tasks by state, and calls of the verbs."""
    call: Call = ctx.obj
    with call.queue() as queue:
        from tubeq_spark.cli.top import print_table, statistics_table  # noqa: PLC0415  as in call
        from tubeq_spark.queue import typed_statistics  # noqa: PLC0415

        found = typed_statistics(queue, tube)
        if call.json:
            for name, counts in found.items():
                call.show({"tube": name, **counts}, "")
        else:
            print_table(statistics_table(found))


def sweep(ctx: typer.Context) -> None:
    """Write down what time has changed in all tubes, and tidy up: one pass of the sweeper."""
    call: Call = ctx.obj
    with call.queue() as queue:
        report = queue.sweep()
        for name, tube in report.tubes.items():
            counts = {"readied": tube.readied, "expired": tube.expired, "released": tube.released}
            text = ", ".join(f"{count:,} {what}" for what, count in counts.items())
            call.show({"tube": name, **asdict(tube)}, f"{name}: {text}, {tube.folded:,} folded")
            if tube.error is not None:
                call.tell(f"tube {name} failed: {tube.error}")
        if any(tube.error is not None for tube in report.tubes.values()):
            raise typer.Exit(ExitCode.FAILED)


def drop(
    ctx: typer.Context,
    tube: TubeName,
    yes: _Yes = False,
) -> None:
    """Remove a tube with all its tasks; on a terminal it asks before."""
    call: Call = ctx.obj
    with call.queue() as queue:
        dropped = queue.tube(tube)
        call.require_yes(f"Drop {tube} with all its tasks?", "nothing was dropped", yes=yes)
        dropped.drop()
        call.show({"tube": tube, "dropped": True}, f"dropped {tube}")


def truncate(ctx: typer.Context, tube: TubeName, yes: _Yes = False) -> None:
    """Remove all tasks of a tube; on a terminal it asks before."""
    call: Call = ctx.obj
    with call.queue(tube=tube) as queue:
        emptied = queue.tube(tube)
        call.require_yes(f"Remove all tasks of {tube}?", "nothing was removed", yes=yes)
        emptied.truncate()
        call.show({"tube": tube, "truncated": True}, f"removed all tasks of {tube}")


def release_all(ctx: typer.Context, tube: TubeName, yes: _Yes = False) -> None:
    """Give back what all consumers of a tube have taken; on a terminal it asks before.

    Those that go on with their tasks can no longer ack them.
    """
    call: Call = ctx.obj
    with call.queue(tube=tube) as queue:
        source = queue.tube(tube)
        call.require_yes(
            f"Give back what all consumers of {tube} hold?", "nothing was released", yes=yes
        )
        before = queue.statistics(tube)["calls"]["release"]
        source.release_all()
        released = queue.statistics(tube)["calls"]["release"] - before
        call.show({"tube": tube, "released": released}, f"released {released:,} tasks of {tube}")
