"""The commands of `tubeq`, and the options before their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tubeq_spark.cli import (
    change,
    check,
    copy,
    dashboard,
    look,
    programs,
    put,
    report,
    settle,
    take,
    top,
    tubes,
    verify,
    work,
)
from tubeq_spark.cli.call import NAME, Call, Outside
from tubeq_spark.cli.exit_codes import EPILOG, BadUseError
from tubeq_spark.cli.program import report_error
from tubeq_spark.cli.settings_file import read_defaults
from tubeq_spark.errors import InvalidOptionError

#: The error of typer for a bad command line, which has no public name.
_UsageError: Any = typer.BadParameter.__bases__[0]


class _Group(TyperGroup):
    """Accepts `--json` anywhere in the command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        options = [argument for argument in args[:end] if argument != "--json"]
        if len(options) < end:
            options.insert(0, "--json")
        return super().parse_args(ctx, options + args[end:])

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        # For bad options before the command's name.
        with _as_json(asked="--json" in args):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        # For bad options after it.
        with _as_json(asked=bool(ctx.params["json"])):
            return super().invoke(ctx)


@contextmanager
def _as_json(*, asked: bool) -> Iterator[None]:
    """End with a JSON object, where typer would print a sentence and the usage of the command."""
    try:
        yield
    except _UsageError as error:
        if not asked:
            raise
        raise typer.Exit(
            report_error(NAME, BadUseError(error.format_message()), as_json=True)
        ) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
)


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415  most calls do not ask

        typer.echo(f"tubeq {version('tubeq-spark')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    location: Annotated[
        str | None,
        typer.Option(help="Of the queue: a path, a URI, or catalog.schema [env: TUBEQ_LOCATION]"),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Spark Connect server, sc://host:15002, for calls that need Spark [env: TUBEQ_REMOTE]",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who commits: auto, native or spark. auto is the committer of the location; a new "
            "one is native, without a JVM, on local files and object stores, else spark. A Spark of "
            "the call's own takes seconds to start [env, for new locations: TUBEQ_ENGINE]",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, a line a result")] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Defaults, as conf/tubeq.toml shows them [env: TUBEQ_CONFIG; default: tubeq.toml "
            "in the working directory]",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show where an error came from")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version"),
    ] = False,
) -> None:
    """Put, take and look after tasks in Delta tables."""
    outside = ctx.obj if isinstance(ctx.obj, Outside) else Outside()
    try:
        settings = read_defaults(config, location=location, remote=remote, engine=engine)
    except InvalidOptionError as error:
        code = report_error(NAME, error, verbose=verbose, as_json=json)
        raise typer.Exit(code) from None
    ctx.obj = Call(
        outside=outside,
        settings=settings,
        json=json,
        verbose=verbose,
    )


_COMMANDS: tuple[Callable[..., None], ...] = (
    tubes.create,
    change.alter,
    put.put,
    take.take,
    settle.ack,
    settle.release,
    settle.touch,
    settle.bury,
    settle.kick,
    settle.peek,
    settle.delete,
    tubes.tubes,
    tubes.stats,
    top.top,
    look.health,
    look.metrics,
    look.show,
    look.tasks,
    look.utubes,
    look.why,
    look.history,
    look.sessions,
    work.work,
    change.pause,
    change.resume,
    tubes.sweep,
    tubes.release_all,
    tubes.truncate,
    tubes.drop,
    check.check,
    verify.verify,
    copy.copy,
    report.report,
    dashboard.dashboard,
)
for _command in _COMMANDS:
    app.command()(_command)
for _program in (programs.enqueue, programs.consume, programs.sweeper):
    app.command(**programs.SETTINGS)(_program)
