"""`tubeq consume`: the program of `tubeq_spark.jobs`, which needs Spark."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from tubeq_spark.cli.call import logged
from tubeq_spark.cli.options import Strict, flag, seconds, whole, word


def consume(
    ctx: typer.Context,
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function that takes a DataFrame and returns one (the results) or None",
        ),
    ],
    tube: Annotated[str, typer.Option(help="Tube")],
    once: Annotated[bool, flag("--once", "End when no task is ready")] = False,
    strict: Strict = False,
    results: Annotated[str | None, word("TABLE", "Table for the results: a path or a name")] = None,
    path: Annotated[Path, word("DIR", "Folder of the module")] = Path(),
    batch_size: Annotated[int, whole("Tasks of a batch", least=1)] = 1_000,
    per_utube: Annotated[int, whole("Tasks of one sub-queue in a batch", least=1)] = 1,
    max_failures: Annotated[
        int, whole("Stop after N failed batches in a row; 0 = never", least=0)
    ] = 3,
    lease: Annotated[
        float | None, seconds("Time until a dead consumer's tasks are released [default: 60]")
    ] = None,
) -> None:
    """Call a function with batches of tasks (Spark).

    A batch is acked when the function returns. If it raises, it is called with halves of the batch to find the
    failing tasks, which are released. SIGTERM and Ctrl-C end it after the batch in hand.
    """
    options, call = dict(locals()), ctx.obj
    # By its name, because the program is above this package in the import order.
    program = importlib.import_module("tubeq_spark.jobs.consumer")
    with call.program() as (spark, queue), logged(call, tube):
        raise typer.Exit(program.run(spark, queue, options, call.tell, call.show))
