"""Options of tubes on a command line, for the commands that create and alter tubes."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.failures import Backoff
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


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a tube for JSON and for people."""
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in options.items()
    }


Pri = Annotated[int | None, typer.Option(help="Default of its tasks")]
Ttl = Annotated[float | None, typer.Option(help="Default, in seconds")]
Ttr = Annotated[float | None, typer.Option(help="Default, in seconds")]
Delay = Annotated[float | None, typer.Option(help="Default, in seconds")]
Capacity = Annotated[int | None, typer.Option(help="Tasks it may hold (limfifottl)")]
MaxAttempts = Annotated[int | None, typer.Option(help="Bury after so many takes")]
BackoffText = Annotated[
    Backoff | None,
    typer.Option(
        parser=_backoff,
        metavar="first=S,factor=N,most=S,jitter=N",
        help="Delays of failed tasks (ttl types)",
    ),
]
Parallel = Annotated[
    int | None, typer.Option(help="Tasks of a sub-queue that may be taken at a time (utube types)")
]
RateText = Annotated[
    Rate | None,
    typer.Option(
        parser=_rate,
        metavar="TASKS/SECONDS",
        help="Leases of a sub-queue that may begin in that time (utube types)",
    ),
]
Order = Annotated[str | None, typer.Option(help="Of sub-queues: fifo or fair (utube types)")]
MostTaken = Annotated[
    int | None, typer.Option(help="Tasks of the tube that may be taken at a time")
]
Aging = Annotated[
    float | None,
    typer.Option(help="Seconds of waiting that weigh as much as one priority (ttl types)"),
]
