"""Options of tubes on a command line, for the commands that create and alter tubes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.options import ALTERABLE
from tubeq_spark.model.takes import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping


def _rate(text: str) -> Rate:
    """Parse a rate such as `5/1`: tasks and seconds."""
    tasks, slash, seconds = text.partition("/")
    try:
        return Rate(int(tasks), float(seconds) if slash else 1.0)
    except InvalidOptionError as error:
        raise typer.BadParameter(str(error)) from None
    except ValueError:
        msg = f"{text!r} must be tasks and seconds, such as 5/1"
        raise typer.BadParameter(msg) from None


def _backoff(text: str) -> Backoff:
    """Parse a backoff such as `first=1,factor=2,most=3600`. Other fields are those of `Backoff()`."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return Backoff(**{name.strip(): float(value) for name, value in parts.items()})
    except InvalidOptionError as error:
        raise typer.BadParameter(str(error)) from None
    except (TypeError, ValueError):
        msg = f"{text!r} must be of first, factor, most and jitter, such as first=1,most=3600"
        raise typer.BadParameter(msg) from None


def _option(kind: Any, text: str, **how: Any) -> Any:
    return Annotated[kind | None, typer.Option(help=text, **how)]


#: The type and the help of each option that has a value.
_OPTIONS = {
    "pri": _option(int, "Default of its tasks"),
    "ttl": _option(float, "Default, in seconds"),
    "ttr": _option(float, "Default, in seconds"),
    "delay": _option(float, "Default, in seconds"),
    "capacity": _option(int, "Tasks it may hold (limfifottl)"),
    "storage_mode": _option(str, "default or ready_buffer"),
    "schema": _option(str, "DDL of a typed payload"),
    "max_attempts": _option(int, "Bury after so many takes"),
    "backoff": _option(
        Backoff,
        "Delays of failed tasks (ttl types)",
        parser=_backoff,
        metavar="first=S,factor=N,most=S,jitter=N",
    ),
    "parallel": _option(int, "Tasks of a sub-queue that may be taken at a time (utube types)"),
    "rate": _option(
        Rate,
        "Leases of a sub-queue that may begin in that time (utube types)",
        parser=_rate,
        metavar="TASKS/SECONDS",
    ),
    "order": _option(str, "Of sub-queues: fifo or fair (utube types)"),
    "most_taken": _option(int, "Tasks of the tube that may be taken at a time"),
    "aging": _option(float, "Seconds of waiting that weigh as much as one priority (ttl types)"),
    "unique_for": _option(float, "Seconds from the put for which the key of a task stays in use"),
}
#: The options of `tubeq create`, and of `tubeq alter`.
CREATED = tuple(_OPTIONS)
ALTERED = tuple(name for name in _OPTIONS if name in ALTERABLE)


def with_options(names: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options of tubes. The command gets all of them by keyword, `None` if not given."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind != Parameter.VAR_KEYWORD]
        options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_OPTIONS[name])
            for name in names
        ]
        # typer reads the options of a command from its signature.
        command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return command

    return add


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a tube for JSON and for people."""
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in options.items()
    }
