"""`tubeq enqueue consume`: the programs of `tubeq_spark.jobs`, which need Spark."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.names import Strict, names
from tubeq_spark.cli.options import seconds, whole, with_options
from tubeq_spark.model.error_text import missing

_Tube = Annotated[str, typer.Option(help="Tube", autocompletion=names)]


_EXPRESSIONS = {
    name: Annotated[str | None, typer.Option(metavar="EXPR", help=text)]
    for name, text in {
        "where": "Condition for rows [default: all]",
        "data": "Payload as one value, instead of --select",
        "data_json": "Payload as JSON text, instead of --select",
        "pri": "Priority of the task",
        "ttl": "Its time to live, in seconds",
        "ttr": "Its time to run, in seconds",
        "delay": "Its delay, in seconds",
        "utube": "Its sub-queue",
    }.items()
}


@with_options(_EXPRESSIONS)
def enqueue(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="Path or URI of files or a folder, or a table")],
    tube: _Tube,
    create: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Create the tube if it does not exist")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="json, csv, parquet, delta or table [default: by the suffix]"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Option of Spark's reader, such as sep=;; may be repeated"
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Put key; a second put with it adds nothing")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPR",
            help="Field of the payload, such as url or 'depth + 1 AS depth'; may be repeated "
            "[default: all columns; of JSON lines the line as it is]",
        ),
    ] = None,
    **expressions: Any,
) -> None:
    """Put rows of files or of a table (Spark).

    All rows are put in one commit, or none. EXPR is an expression of Spark SQL over the columns of a row.
    """
    given = dict(locals()) | expressions
    _run(ctx, "producer", given, create=create is not None)


def consume(
    ctx: typer.Context,
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function that takes a DataFrame and returns one (the results) or None",
        ),
    ],
    tube: _Tube,
    once: Annotated[bool, typer.Option("--once", help="End when no task is ready")] = False,
    strict: Strict = False,
    results: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Table for the results: a path or a name")
    ] = None,
    path: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the module")] = Path(),
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
    _run(ctx, "consumer", dict(locals()))


def _run(ctx: typer.Context, name: str, options: dict[str, Any], *, create: bool = False) -> None:
    """Run a program, and end with its exit code.

    Args:
        ctx: The call.
        name: The module of the program, in `tubeq_spark.jobs`.
        options: The parameters of the command.
        create: Whether to create the queue if the location has none.
    """
    call: Call = ctx.obj
    with call.answering():
        try:
            # By its name, because the programs are above this package in the import order.
            program = importlib.import_module(f"tubeq_spark.jobs.{name}")
        except ModuleNotFoundError as error:
            raise BadUseError(str(missing(error, "spark"))) from None
    with call.program(create=create) as (spark, queue), call.logging(options["tube"]):
        raise typer.Exit(program.run(spark, queue, options, call.tell, call.show))
