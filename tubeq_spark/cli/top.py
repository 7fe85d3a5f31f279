"""`tubeq top`: a live table of the tubes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli import keys
from tubeq_spark.cli.call import Call, queue_of, until_stopped
from tubeq_spark.cli.options import seconds, whole
from tubeq_spark.cli.table import (
    STATES,
    Column,
    age,
    counted,
    lines_of,
    paused,
    print_table,
    value_of,
    width_of,
)
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text

    from tubeq_spark.observe.progress import TubeLook
    from tubeq_spark.queue import Queue

#: Seconds between two reads. A read takes some milliseconds natively, and nearly a second on Spark.
_INTERVAL = {"native": 0.5, "spark": 2.0}
_RATES = ("put", "take", "done", "commits")


def _rate(name: str) -> Column:
    return lambda row: None if row["per_second"] is None else row["per_second"][name]


_COLUMNS: dict[str, Column] = {
    "tube": "tube",
    "type": "type",
    **{state: counted("tasks", state) for state in STATES},
    "oldest": age("oldest_ready_age"),
    "holders": "holders",
    **{f"{name}/s": _rate(name) for name in _RATES},
    "paused": paused,
}
#: The columns that are left out first on a narrow screen, in this order.
_FIRST_LEFT_OUT = ("type", "commits/s", "done", "delayed", "holders", "take/s", "buried")
#: The columns by which the table can be sorted, by their keys.
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
        seconds("Time between refreshes [default: 0.5, on Spark 2]", least=0.1, show_default=False),
    ] = None,
    refreshes: Annotated[int, whole("Number of refreshes; 0 = until stopped", least=0)] = 0,
    once: Annotated[bool, typer.Option("--once", help="Print the table once")] = False,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help=f"Column: {', '.join(_KEYS.values())}")
    ] = "tube",
) -> None:
    """Show a live table of the tubes, until q or Ctrl-C.

    Keys sort it. Rates count the commits of all processes; they appear after the first refresh.
    """
    with queue_of(ctx) as (call, queue):
        if sort not in _KEYS.values():
            raise InvalidOptionError(f"--sort {sort}: must be one of {', '.join(_KEYS.values())}")
        limit = 1 if once else refreshes
        with until_stopped():
            _look_on(call, queue, interval or _INTERVAL[queue.engine], limit, sort)


def _look_on(call: Call, queue: Queue, interval: float, limit: int, sort: str) -> None:
    # Only this command needs these imports.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    clock, screen = call.outside.clock, Console(highlight=False)
    watch, number = _Watch(queue, clock.monotonic), 0
    with ExitStack() as stack:
        is_live = screen.is_terminal and not call.json
        next_key = stack.enter_context(keys.pressed_keys(clock, wanted=is_live))
        live = None
        if is_live:
            live = stack.enter_context(Live(console=screen, auto_refresh=False))

        def draw() -> None:
            if call.json:
                for line in lines:
                    call.show({"look": number, **line}, "")
            elif live is None:
                print_table(_sorted(lines, sort), _COLUMNS)
            else:
                live.update(_screen(_sorted(lines, sort), sort, screen.width), refresh=True)

        while True:
            lines = watch.look()
            number += 1
            draw()
            if number == limit:
                return
            until = clock.monotonic() + interval
            while (key := next_key(until - clock.monotonic())) is not None:
                if key == keys.QUIT:
                    return
                sort = _KEYS.get(key, sort)
                draw()


class _Watch:
    """Reads the tubes again and again."""

    def __init__(self, queue: Queue, monotonic: Callable[[], float]) -> None:
        self._queue, self._monotonic = queue, monotonic
        self._before: dict[str, TubeLook] = {}
        self._since = 0.0

    def look(self) -> list[dict[str, Any]]:
        """The values of each tube, with its rates since the read before, by all processes."""
        from tubeq_spark.queue import look  # noqa: PLC0415  as in call

        found, now = look(self._queue), self._monotonic()
        lines = []
        for name, each in found.items():
            line = {"tube": name} | asdict(each)
            del line["version"]
            lines.append(line | {"per_second": self._rates(name, each, now - self._since)})
        self._before, self._since = found, now
        return lines

    def _rates(self, name: str, now: TubeLook, seconds: float) -> dict[str, float] | None:
        before = self._before.get(name)
        # A tube that was dropped and created again has no rates yet.
        if before is None or seconds <= 0 or now.version < before.version:
            return None
        from tubeq_spark.admin.tubes import context_of  # noqa: PLC0415  as in call
        from tubeq_spark.observe.progress import moved  # noqa: PLC0415  as in call

        try:
            counts = moved(context_of(self._queue.tube(name)), before.version, now.version)
        except TubeNotFoundError:
            return None
        counts["done"] = max(0, now.tasks["done"] - before.tasks["done"])
        counts["commits"] = now.version - before.version
        return {name: counts[name] / seconds for name in _RATES}


def _fitting(rows: list[dict[str, Any]], sort: str, width: int) -> list[str]:
    """The lines of a table with as many columns as fit on a screen."""
    columns = dict(_COLUMNS)
    for column in _FIRST_LEFT_OUT:
        lines = lines_of(rows, columns)
        if max(map(width_of, lines)) <= width:
            return lines
        if column != sort:
            del columns[column]
    return lines_of(rows, columns)


def _sorted(lines: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """The rows by a column, with the greatest value first, or by name."""
    if sort == "tube":
        return lines
    return sorted(lines, key=lambda row: value_of(row, _COLUMNS[sort]) or 0, reverse=True)


def _screen(rows: list[dict[str, Any]], sort: str, width: int) -> Text:
    """A table, and below it the keys that sort it."""
    from rich.text import Text  # noqa: PLC0415  as above

    header, *lines = _fitting(rows, sort, width)
    parts: list[Any] = [(header, "bold"), *(f"\n{line}" for line in lines)]
    if keys.are_read():
        told = "  ".join(f"{key} {column}" for key, column in _KEYS.items())
        parts.append((f"\nsort by: {told}   {keys.QUIT} quit", "dim"))
    return Text.assemble(*parts)
