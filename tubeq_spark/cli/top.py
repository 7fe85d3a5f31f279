"""`tubeq top`: a live table of the tubes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import queue_of, until_stopped
from tubeq_spark.cli.options import flag, seconds, whole
from tubeq_spark.cli.table import lines_of, show_each
from tubeq_spark.observe import columns

if TYPE_CHECKING:
    from tubeq_spark.observe.snapshot import TubeSnapshot

#: Seconds between two reads. A read takes some milliseconds natively, and nearly a second on Spark.
_INTERVAL = {"native": 0.5, "spark": 2.0}
_COLUMNS: columns.Columns = {
    **columns.KIND,
    **columns.DEPTH,
    **columns.WAITING,
    **columns.FLOW,
    **columns.PAUSED,
}


def top(
    ctx: typer.Context,
    interval: Annotated[
        float | None,
        seconds("Time between refreshes [default: 0.5, on Spark 2]", least=0.1),
    ] = None,
    refreshes: Annotated[int, whole("Number of refreshes; 0 = until stopped", least=0)] = 0,
    once: Annotated[bool, flag("--once", "Print the table once")] = False,
) -> None:
    """Show a live table of the tubes, until Ctrl-C.

    Rates count what all processes do; they appear after the first refresh.
    """
    # Only this command needs these imports.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with queue_of(ctx) as (call, queue), until_stopped():
        from tubeq_spark.observe.snapshot import with_flows  # noqa: PLC0415  as in call

        screen, before = Console(highlight=False), None
        is_live = screen.is_terminal and not call.json
        with Live(console=screen, auto_refresh=False) if is_live else nullcontext() as live:
            for number in count(1):
                found = queue.metrics()
                tubes = [*with_flows(found, before).values()]
                if live is None:
                    show_each(call, tubes, _COLUMNS, partial(_as_dict, number))
                else:
                    live.update(Text("\n".join(lines_of(tubes, _COLUMNS))), refresh=True)
                if number == (1 if once else refreshes):
                    return
                before = found
                call.outside.clock.sleep(interval or _INTERVAL[queue.engine])


def _as_dict(look: int, tube: TubeSnapshot) -> dict[str, Any]:
    flow = None if tube.flow is None else asdict(tube.flow)
    return {"look": look, "tube": tube.name, "flow": flow, **asdict(tube.metrics)}
