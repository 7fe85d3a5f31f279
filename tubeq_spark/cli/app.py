"""The commands of `tubeq`, and the options before their names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from textwrap import shorten
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tubeq_spark.cli.call import Call, Outside
from tubeq_spark.cli.exit_codes import EPILOG, BadUseError
from tubeq_spark.cli.options import flag, word
from tubeq_spark.cli.program import NAME, report_error
from tubeq_spark.cli.settings_file import Defaults, read_defaults

#: The error of typer for a bad command line, which has no public name.
_UsageError: Any = typer.BadParameter.__bases__[0]


#: The options of all commands, and those of them that have no value.
_FLAGS = {"--json", "--verbose"}
_SHARED = _FLAGS | {"--location", "--remote", "--engine", "--config"}


#: The commands, by the titles of the groups in which the help shows them, and by their modules in this folder.
_GROUPS = {
    "Tasks": {
        "put": "put",
        "settle": "take ack release touch bury kick delete peek",
        "look": "tasks why",
    },
    "Tubes": {
        "tubes": "create alter tubes stats pause resume release-all truncate drop",
        "look": "show utubes history",
    },
    "Workers": {"work": "work", "look": "sessions"},
    "Operations": {
        "look": "health metrics",
        "serve": "top dashboard report",
        "sweep": "sweep",
        "files": "check verify copy",
    },
}
#: The module of each command.
_COMMANDS = {
    name: module
    for modules in _GROUPS.values()
    for module, names in modules.items()
    for name in names.split()
}


def _function_of(name: str) -> Callable[..., None]:
    """The function of a command. Only its module is imported, because all modules take longer to import than a call runs."""
    module = importlib.import_module(f"tubeq_spark.cli.{_COMMANDS[name]}")
    function: Callable[..., None] = getattr(module, name.replace("-", "_"))
    return function


@cache
def _made(name: str) -> Any:
    """A command."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, cls=_Command)(_function_of(name))
    return typer.main.get_command(alone)


def _read(read: Callable[[Any], Any], value: Any, *, param: Any, **_context: Any) -> Any:
    """The value of an option, or the values of one that may be repeated, read by a function."""
    if param.multiple or param.nargs == -1:
        return [read(each) for each in value or ()]
    return None if value is None else read(value)


class _ReadsPlainly:
    """A command whose options read their values by their own parsers, or take them as they are.

    typer reads all values by pydantic, whose import takes a third of the time of a call. So an option needs a parser
    of its own, unless its value is text, a path or a flag.
    """

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for param in found:
            if hasattr(param, "get_runtime_param"):  # not in every version of typer
                about = param.type_descriptor
                read = about.parameter_info.parser or (
                    Path if about.is_path else lambda value: value
                )
                reader = SimpleNamespace(coerce=partial(_read, read))
                param.get_runtime_param = lambda reader=reader: reader
        return found


class _Command(_ReadsPlainly, TyperCommand):
    """One command. Its errors end the call."""

    def invoke(self, ctx: Any) -> Any:
        with ctx.obj.answering():
            return super().invoke(ctx)


class _Group(_ReadsPlainly, TyperGroup):
    """Accepts the options of all commands anywhere in the command line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        return _made(cmd_name) if cmd_name in _COMMANDS else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        first, rest, words = list[str](), list[str](), iter(args[:end])
        for given in words:
            name, has_value, _ = given.partition("=")
            if name not in _SHARED:
                rest.append(given)
            else:
                first += [given] if has_value or name in _FLAGS else [given, *islice(words, 1)]
        return super().parse_args(ctx, first + rest + args[end:])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - 6 - max(map(len, _COMMANDS))
        for title, modules in _GROUPS.items():
            lines = []
            for name in " ".join(modules.values()).split():
                summary = (_function_of(name).__doc__ or "").partition("\n")[0]
                lines.append((name, shorten(summary, width, placeholder="...")))
            with formatter.section(title):
                formatter.write_dl(lines, col_max=width)

    def main(self, *args: Any, **extra: Any) -> Any:
        if "--json" not in (extra.get("args") or ()):
            return super().main(*args, **extra)
        try:
            sys.exit(super().main(*args, **extra | {"standalone_mode": False}))
        except _UsageError as error:
            # typer would print a sentence and the usage of the command.
            sys.exit(report_error(NAME, BadUseError(error.format_message()), as_json=True))


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
        word(
            "PLACE", "Location of the queue: a path, a URI, or catalog.schema [env: TUBEQ_LOCATION]"
        ),
    ] = None,
    remote: Annotated[
        str | None,
        word(
            "URL",
            "Spark Connect server for calls that need Spark, sc://host:15002 [env: TUBEQ_REMOTE]",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        word(
            "NAME",
            "Who commits: auto, native or spark. auto = the committer of the location; of a new "
            "one: native (no JVM) on local files and object stores, else spark. Starting Spark for "
            "a call takes seconds [env, for new locations: TUBEQ_ENGINE]",
        ),
    ] = None,
    json: Annotated[bool, flag("--json", "Print JSON, one result a line")] = False,
    config: Annotated[
        Path | None,
        word(
            "FILE",
            "File with defaults, such as conf/tubeq.toml [env: TUBEQ_CONFIG; default: "
            "./tubeq.toml]",
        ),
    ] = None,
    verbose: Annotated[bool, flag("--verbose", "Show tracebacks of errors")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version"),
    ] = False,
) -> None:
    """A task queue on Delta tables.

    TIME is in seconds, or 90s, 5m, 2h, 1d.
    """
    outside = ctx.obj or Outside()
    call = Call(outside=outside, settings=Defaults(), json=json, verbose=verbose)
    with call.answering():
        settings = read_defaults(config, location=location, remote=remote, engine=engine)
    ctx.obj = replace(call, settings=settings)
