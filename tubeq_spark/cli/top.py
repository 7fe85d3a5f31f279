"""`tubeq top`: a table of all tubes and how fast they move, every few seconds."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.live import Live

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.tables import console, rate_table
from tubeq_spark.queue import Queue, typed_statistics

__all__ = ["top"]


def top(
    ctx: typer.Context,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks")] = 2.0,
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
            _look_on(call, queue, interval, limit)
        except KeyboardInterrupt:
            return  # that is how it ends


def _look_on(call: Call, queue: Queue, interval: float, limit: int) -> None:
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
