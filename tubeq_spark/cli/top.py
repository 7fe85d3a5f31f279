"""`tubeq top`: a table of all tubes and how fast they move, every few seconds."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import Call

if TYPE_CHECKING:
    from tubeq_spark.queue import Queue

__all__ = ["top"]

#: Seconds from one look to the next: some milliseconds of work natively, near a second on Spark.
_INTERVAL = {"native": 0.5, "spark": 2.0}


def top(
    ctx: typer.Context,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds from one look to the next [default: 0.5, on Spark 2]",
            show_default=False,
        ),
    ] = None,
    looks: Annotated[int, typer.Option(min=0, help="How often to look; 0 is for ever")] = 0,
    once: Annotated[bool, typer.Option("--once", help="Look once")] = False,
) -> None:
    """Show the tubes and how fast they move, until Ctrl-C.

    Calls of other processes show with their heartbeats, so rates lag behind by some seconds.
    """
    call: Call = ctx.obj
    with call.queue() as queue:
        limit = 1 if once else looks
        try:
            _look_on(call, queue, interval or _INTERVAL[queue.engine], limit)
        except KeyboardInterrupt:
            return  # that is how it ends


def _look_on(call: Call, queue: Queue, interval: float, limit: int) -> None:
    # What only this command needs, no other call waits for.
    from rich.live import Live  # noqa: PLC0415

    from tubeq_spark.cli.tables import console, rate_table  # noqa: PLC0415
    from tubeq_spark.queue import typed_statistics  # noqa: PLC0415

    clock, screen = call.outside.clock, console()
    before: dict[str, Any] | None = None
    since, number = clock.monotonic(), 0
    on_screen = screen.is_terminal and not call.json
    live = Live(console=screen, auto_refresh=False) if on_screen else None
    with live or nullcontext():
        while True:
            found, now = typed_statistics(queue), clock.monotonic()
            number += 1
            if call.json:
                for name, counts in found.items():
                    call.show({"look": number, "tube": name, **counts}, "")
            else:
                table = rate_table(found, before, now - since)
                live.update(table, refresh=True) if live else screen.print(table)
            if number == limit:
                return
            before, since = found, now
            clock.sleep(interval)
