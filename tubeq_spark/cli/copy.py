"""`tubeq copy`: copies a queue to a new place."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.values import plural


def copy(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="Location of the queue, a path or URI")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="Empty target path or URI")],
    close: Annotated[
        bool, typer.Option("--close", help="Close the old place: it refuses changes")
    ] = False,
) -> None:
    """Copy a queue to a new place.

    Ids, put keys, unique keys, counts and times are kept. First stop all programs of the queue, or pass --close. An
    interrupted copy cannot be opened: remove its files, and copy again.
    """
    call: Call = ctx.obj
    settings = replace(call.settings, location=source, engine="native", remote=None)
    with replace(call, settings=settings).queue() as queue:
        report = queue.copy_to(target, close=close)
        for name, tasks in report.tubes.items():
            call.show({"tube": name, "tasks": tasks}, f"{name}: {plural(tasks, 'task')}")
        for name in report.left_out:
            call.tell(f"{name} is temporary and was left out")
        if not close:
            call.tell(f"{source} stays open: use only one of the two from now on")
