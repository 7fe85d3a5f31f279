"""`tubeq top`: a table of all tubes and how fast they move, every few seconds."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from tubeq_spark.observe.progress import TubeLook
    from tubeq_spark.queue import Queue

__all__ = ["top"]

#: Seconds from one look to the next: some milliseconds of work natively, near a second on Spark.
_INTERVAL = {"native": 0.5, "spark": 2.0}
_STATES = ("ready", "taken", "delayed", "buried", "done")
_RATES = ("put", "take", "done", "commits")
_COLUMNS = ("tube", "type", *_STATES, "oldest", "holders", *(f"{name}/s" for name in _RATES))
_QUIT = "q"


@dataclass(frozen=True, slots=True)
class _Line:
    """What is told of a tube, with how fast it has moved since the look before, by all processes."""

    tube: str
    look: TubeLook
    per_second: dict[str, float] | None

    def value(self, column: str) -> Any:
        if column in ("tube", "type"):
            return self.tube if column == "tube" else self.look.type
        if column.endswith("/s"):
            return None if self.per_second is None else self.per_second[column.removesuffix("/s")]
        if column == "oldest":
            return self.look.oldest_ready_age
        return self.look.holders if column == "holders" else self.look.tasks[column]


#: What the table may be sorted by, and the key that does it.
_KEYS = {
    "n": "tube",
    "r": "ready",
    "t": "taken",
    "w": "delayed",
    "b": "buried",
    "o": "oldest",
    "h": "holders",
    "p": "put/s",
    "k": "take/s",
    "d": "done/s",
    "c": "commits/s",
}


def top(
    ctx: typer.Context,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds from one look to the next [default: 0.5, on Spark 2]",
            show_default=False,
        ),
    ] = None,
    looks: Annotated[int, typer.Option(min=0, help="How often to look; 0 is for ever")] = 0,
    once: Annotated[bool, typer.Option("--once", help="Look once")] = False,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help=f"One of {', '.join(_KEYS.values())}")
    ] = "tube",
) -> None:
    """Show the tubes and how fast they move, by the commits of all processes, until q or Ctrl-C.

    Keys sort the table. Before the second look there are no rates.
    """
    call: Call = ctx.obj
    with call.queue() as queue:
        if sort not in _KEYS.values():
            msg = f"--sort {sort}: must be one of {', '.join(_KEYS.values())}"
            raise InvalidOptionError(msg)
        limit = 1 if once else looks
        try:
            _look_on(call, queue, interval or _INTERVAL[queue.engine], limit, sort)
        except KeyboardInterrupt:
            return  # that is how it ends


def _look_on(call: Call, queue: Queue, interval: float, limit: int, sort: str) -> None:
    # What only this command needs, no other call waits for.
    from rich.live import Live  # noqa: PLC0415

    from tubeq_spark.cli.keys import Keys  # noqa: PLC0415
    from tubeq_spark.cli.tables import console  # noqa: PLC0415

    clock, screen = call.outside.clock, console()
    watch, number = _Watch(queue, clock.monotonic), 0
    with ExitStack() as stack:
        live, keys = None, Keys(clock)
        if screen.is_terminal and not call.json:
            stack.enter_context(keys)
            live = stack.enter_context(Live(console=screen, auto_refresh=False))
        while True:
            lines = watch.look()
            number += 1
            if call.json:
                for line in lines:
                    call.show(_as_json(line, number), "")
            elif live is None:
                screen.print(_table(lines, sort, keys=False))
            else:
                live.update(_table(lines, sort, keys=keys.are_read), refresh=True)
            if number == limit:
                return
            until = clock.monotonic() + interval
            while (key := keys.wait(until - clock.monotonic())) is not None:
                if key == _QUIT:
                    return
                sort = _KEYS.get(key, sort)
                if live is not None:
                    live.update(_table(lines, sort, keys=True), refresh=True)


class _Watch:
    """Looks at the tubes again and again."""

    def __init__(self, queue: Queue, monotonic: Callable[[], float]) -> None:
        self._queue, self._monotonic = queue, monotonic
        self._before: dict[str, TubeLook] = {}
        self._since = 0.0

    def look(self) -> list[_Line]:
        from tubeq_spark.queue import look  # noqa: PLC0415  as in call

        found, now = look(self._queue), self._monotonic()
        seconds = now - self._since
        lines = [
            _Line(name, each, self._rates(name, each, seconds)) for name, each in found.items()
        ]
        self._before, self._since = found, now
        return lines

    def _rates(self, name: str, now: TubeLook, seconds: float) -> dict[str, float] | None:
        before = self._before.get(name)
        # A tube that was dropped and made again begins anew.
        if before is None or seconds <= 0 or now.version < before.version:
            return None
        from tubeq_spark.queue import moved  # noqa: PLC0415  as in call

        try:
            counts = moved(self._queue.tube(name), before.version, now.version)
        except TubeNotFoundError:
            return None
        counts["done"] = max(0, now.tasks["done"] - before.tasks["done"])
        counts["commits"] = now.version - before.version
        return {name: counts[name] / seconds for name in _RATES}


def _as_json(line: _Line, number: int) -> dict[str, Any]:
    told = asdict(line.look)
    del told["version"]
    return {"look": number, "tube": line.tube, **told, "per_second": line.per_second}


def _table(lines: list[_Line], sort: str, *, keys: bool) -> RenderableType:
    """The lines, the greatest first but for names, and the keys that sort them."""
    from rich.console import Group  # noqa: PLC0415  as above
    from rich.text import Text  # noqa: PLC0415

    from tubeq_spark.cli.tables import age, plain_table  # noqa: PLC0415

    if sort != "tube":
        lines = sorted(lines, key=lambda line: line.value(sort) or 0, reverse=True)
    rows = [
        [
            age(line.look.oldest_ready_age) if column == "oldest" else line.value(column)
            for column in _COLUMNS
        ]
        for line in lines
    ]
    table = plain_table(_COLUMNS, rows)
    if not keys:
        return table
    told = "  ".join(f"{key} {column}" for key, column in _KEYS.items())
    return Group(table, Text(f"sort by: {told}   {_QUIT} quit", style="dim"))
