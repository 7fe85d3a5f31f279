"""Options of commands: durations, numbers and moments, and the options of tubes for those that create and alter tubes."""

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
from tubeq_spark.model.options import ALTERABLE
from tubeq_spark.model.takes import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping


def parser(read: Callable[..., Any], *limits: Any) -> Callable[[Any], Any]:
    """What typer calls with the text of a value: a function that raises `ValueError` for a bad one."""

    def parse(value: Any) -> Any:
        try:
            return read(str(value), *limits)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def seconds(text: str, *names: str, least: float = 0, **how: Any) -> Any:
    """An option with a duration in seconds.

    Args:
        text: Its help.
        *names: Its names, if they are not that of its parameter.
        least: The shortest duration.
        **how: Further settings of typer.
    """
    return typer.Option(*names, help=text, parser=parser(seconds_of, least), metavar="TIME", **how)


def whole(
    text: str, *names: str, least: int | None = None, most: int | None = None, **how: Any
) -> Any:
    """An option with a whole number from `least` to `most`. Other arguments are those of `seconds`."""
    read = parser(whole_of, least, most)
    return typer.Option(*names, help=text, parser=read, **({"metavar": "N"} | how))


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
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return Backoff(**{name.strip(): seconds_of(value) for name, value in parts.items()})
    except InvalidOptionError:
        raise
    except (TypeError, ValueError):
        msg = f"{text!r} must be of first, factor, most and jitter, such as first=1,most=1h"
        raise ValueError(msg) from None


def _option(kind: Any, text: str, **how: Any) -> Any:
    return Annotated[kind | None, typer.Option(help=text, **how)]


def _time(text: str) -> Any:
    return Annotated[float | None, seconds(text)]


def _number(text: str) -> Any:
    return Annotated[int | None, whole(text)]


#: The type and the help of each option that has a value.
_OPTIONS = {
    "pri": _number("Default priority of its tasks, 0 (the highest) to 2147483647"),
    "ttl": _time("Default time to live"),
    "ttr": _time("Default time to run: how long a task may be taken"),
    "delay": _time("Default delay"),
    "capacity": _number("Largest number of tasks, 1 or more (limfifottl)"),
    "storage_mode": _option(str, "default or ready_buffer; both do the same (utube types)"),
    "schema": _option(str, "DDL of a typed payload"),
    "max_attempts": _number("Bury a failed task that was taken this many times"),
    "backoff": _option(
        Backoff,
        "Delays of failed tasks, such as first=1,factor=2,most=1h,jitter=0.1 (ttl types)",
        parser=parser(_backoff),
        metavar="FIELDS",
    ),
    "parallel": _number("Tasks of a sub-queue that may be taken at a time (utube types)"),
    "rate": _option(
        Rate,
        "Most takes from a sub-queue, such as 5/1s or 100/1m (utube types)",
        parser=parser(_rate),
        metavar="N/TIME",
    ),
    "order": _option(str, "Order of sub-queues: fifo or fair (utube types)"),
    "most_taken": _number("Tasks of the tube that may be taken at a time"),
    "aging": _time("Waiting time that equals one priority step (ttl types)"),
    "unique_for": _time("A unique key is in use at least this long from the put"),
}
#: The options of `tubeq create`, and of `tubeq alter`.
CREATED = _OPTIONS
ALTERED = {name: option for name, option in _OPTIONS.items() if name in ALTERABLE}


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
