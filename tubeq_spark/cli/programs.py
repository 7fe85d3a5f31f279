"""`tubeq enqueue consume sweeper`: the programs of `tubeq_spark.jobs`, with options of their own."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from tubeq_spark.cli.call import NAME, Call
from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.model.error_text import missing

#: The settings of these commands: the program itself parses all arguments, also `--help`.
SETTINGS: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}
_SHARED = ("location", "remote", "engine", "config")


def enqueue(ctx: typer.Context) -> None:
    """Put the rows of files or of a table, in one commit; needs Spark. Options: enqueue --help."""
    _run(ctx, "producer", "spark", _shared(ctx))


def consume(ctx: typer.Context) -> None:
    """Hand tasks to a function of yours, in batches; needs Spark. Options: consume --help."""
    _run(ctx, "consumer", "spark", _shared(ctx))


def sweeper(ctx: typer.Context) -> None:
    """Sweep until it is stopped, by a stream of Spark, or --once. Options: sweeper --help."""
    _run(ctx, "sweeping", "spark", _shared(ctx))


def _shared(ctx: typer.Context) -> dict[str, object]:
    given = ctx.find_root().params
    return {name: given[name] for name in _SHARED}


def _run(ctx: typer.Context, folder: str, extras: str, options: dict[str, object]) -> None:
    """Run a program, and end with its exit code.

    Args:
        ctx: The call. Options before the command's name also apply to the program.
        folder: The folder of the program, in `tubeq_spark.jobs`.
        extras: The extras with the packages that it needs.
        options: The options from before the command's name. The program's own options take precedence.
    """
    call: Call = ctx.obj
    flags = {"--verbose": call.verbose, "--json": call.json}
    before = [f"--{name}={value}" for name, value in options.items() if value is not None]
    before += [flag for flag, is_given in flags.items() if is_given]
    try:
        # The module is imported by its name, because the programs are above this package in the import order, and
        # other calls do not need them.
        program = importlib.import_module(f"tubeq_spark.jobs.{folder}.command")
    except ModuleNotFoundError as error:
        call.fail(BadUseError(missing(error, extras)))
    raise typer.Exit(program.main([*before, *ctx.args], f"{NAME} {ctx.info_name}"))
