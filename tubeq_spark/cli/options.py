"""Options of commands: durations, numbers and texts, those of several commands, and the options of tubes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.values import moment_of, seconds_of, task_id_of, whole_of
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.options import ALL, KINDS, OPTIONS
from tubeq_spark.model.takes import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.model.options import Option


def parser(read: Callable[..., Any], *limits: Any) -> Callable[[Any], Any]:
    """What typer calls with the text of a value: a function that raises `ValueError` for a bad one."""

    def parse(value: Any) -> Any:
        try:
            return read(str(value), *limits)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def seconds(text: str, *names: str, least: float = 0) -> Any:
    """An option with a duration in seconds.

    Args:
        text: Its help.
        *names: Its names, if they are not that of its parameter.
        least: The shortest duration.
    """
    return typer.Option(*names, help=text, parser=parser(seconds_of, least), metavar="TIME")


def whole(text: str, *names: str, least: int | None = None, most: int | None = None) -> Any:
    """An option with a whole number from `least` to `most`. Other arguments are those of `seconds`."""
    return typer.Option(*names, help=text, parser=parser(whole_of, least, most), metavar="N")


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def word(metavar: str, text: str, *names: str) -> Any:
    """An option with a text, which the help calls `metavar`."""
    return typer.Option(*names, metavar=metavar, help=text)


def moment(text: str) -> Any:
    """An option with a moment."""
    return typer.Option(help=text, parser=parser(moment_of), metavar="MOMENT")


#: Reads the id of a task.
task_id = parser(task_id_of)


def _rate(text: str) -> Rate:
    """Parse a rate such as `5/1` or `100/1m`: tasks, and the time in which they may begin."""
    tasks, slash, time = text.partition("/")
    return Rate(whole_of(tasks, 1), seconds_of(time) if slash else 1.0)


def _backoff(text: str) -> Backoff:
    """Parse a backoff such as `first=1,factor=2,most=1h`. Other fields are those of `Backoff()`."""
    pairs = (part.partition("=")[::2] for part in text.split(","))
    parts = {name.strip(): value for name, value in pairs}
    if not parts.keys() <= {"first", "factor", "most", "jitter"}:
        msg = f"{text!r} must be of first, factor, most and jitter, such as first=1,most=1h"
        raise InvalidOptionError(msg)
    return Backoff(**{name: seconds_of(value) for name, value in parts.items()})


#: What reads the text of a value of a type, and how the help names it.
_READERS: dict[Any, tuple[Callable[..., Any], str]] = {
    int: (whole_of, "N"),
    float: (seconds_of, "TIME"),
    str: (str, "TEXT"),
    Backoff: (_backoff, "FIELDS"),
    Rate: (_rate, "N/TIME"),
}


def _option(name: str, option: Option) -> Any:
    """An option of a tube, as an option of a command; `None` if it is not given."""
    kind = KINDS[name]
    text = option.text if option.of == ALL else f"{option.text} ({option.of})"
    if kind is bool:
        return Annotated[bool | None, flag(f"--{name.replace('_', '-')}", text)]
    read, metavar = _READERS[kind]
    return Annotated[kind | None, typer.Option(help=text, parser=parser(read), metavar=metavar)]


#: The options of `tubeq create`, whose tubes outlive the command, and of `tubeq alter`.
CREATED = {name: _option(name, of) for name, of in OPTIONS.items() if name != "temporary"}
ALTERED = {name: option for name, option in CREATED.items() if OPTIONS[name].alterable}


def with_options(
    options: Mapping[str, Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command more options. The command gets all of them by keyword, `None` if not given."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind != Parameter.VAR_KEYWORD]
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in options.items()
        ]
        # typer reads the options of a command from its signature.
        command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return command

    return add


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a tube for JSON and for people."""
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in options.items()
    }


# -- of several commands ---------------------------------------------------------------------------


#: The option of the commands that ask first.
Yes = Annotated[bool, flag("--yes", "Do it without asking")]
#: The option of the commands for tasks of a condition.
Where = Annotated[str | None, word("SQL", 'Only tasks of this condition, such as "attempts > 3"')]
#: The option of the commands that take from given sub-queues.
TakenUtubes = Annotated[
    list[str] | None, word("NAME", "Take only from this sub-queue; may be repeated", "--utube")
]
