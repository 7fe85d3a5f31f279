"""`tubeq report`: the contents of the dashboard as one file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tubeq_spark.cli.call import queue_of
from tubeq_spark.cli.options import seconds
from tubeq_spark.errors import TubeNotFoundError

#: The number of commits of each tube in which conflicts are counted.
_COMMITS = 200


def report(
    ctx: typer.Context,
    html: Annotated[Path, typer.Option(metavar="FILE", help="File to write")],
    over: Annotated[
        float,
        seconds("Time over which throughput is measured; 0 = not measured"),
    ] = 2.0,
) -> None:
    """Write an HTML page about the queue to a file.

    The page has no payloads and loads nothing from the network.
    """
    with queue_of(ctx) as (call, queue):
        from tubeq_spark.observe.pages import document, overview  # noqa: PLC0415  as in call
        from tubeq_spark.observe.snapshot import take_snapshot  # noqa: PLC0415
        from tubeq_spark.tube import details_of  # noqa: PLC0415

        found = take_snapshot(queue)
        if over:
            call.outside.clock.sleep(over)
            found = take_snapshot(queue, before=found, health=found.health)
        title = f"tubeq: {found.location}"
        details = {}
        for name in found.tubes:
            with suppress(TubeNotFoundError):  # the tube was dropped meanwhile
                details[name] = details_of(queue.tube(name), _COMMITS)
        html.write_text(document(title, overview(found, details=details)), encoding="utf-8")
        shown = {"file": str(html), "problems": len(found.health.problems)}
        call.show(shown, f"wrote {html}")
