"""`tubeq top`, and the tables of it and of `tubeq stats`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tubeq_spark.cli.call import Call
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.markup import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rich.console import Console, RenderableType
    from rich.table import Table

    from tubeq_spark.cli.keys import Keys
    from tubeq_spark.observe.progress import TubeLook
    from tubeq_spark.queue import Queue

#: Seconds between two reads. A read takes some milliseconds natively, and nearly a second on Spark.
_INTERVAL = {"native": 0.5, "spark": 2.0}
_STATES = ("ready", "taken", "delayed", "buried", "done")
_RATES = ("put", "take", "done", "commits")
_COLUMNS = (
    "tube",
    "type",
    *_STATES,
    "oldest",
    "holders",
    *(f"{name}/s" for name in _RATES),
    "paused",
)
#: The columns that are left out first on a narrow screen, in this order.
_FIRST_LEFT_OUT = ("type", "commits/s", "done", "delayed", "holders", "take/s", "buried")
_QUIT = "q"
#: The text in tables for whether a tube is paused.
PAUSED = {True: "paused", False: ""}
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
_COUNTED = ("ready", "taken", "delayed", "buried", "done", "total")
#: The calls that always have columns; `tubeq show` has all calls.
_CALLS = ("put", "take", "ack", "release", "bury", "kick", "delete")
#: The width of a table in a file or a pipe, where nothing is cut.
_WIDE = 200
#: The longest line of such a table, which may have a payload.
_LONGEST = 1_000_000
#: The fewest characters of a text on a narrow terminal.
_LEAST = 12
_HIGH = 50
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True, slots=True)
class _Line:
    """A row about a tube, with its rates since the read before, by all processes."""

    tube: str
    look: TubeLook
    per_second: dict[str, float] | None

    def value(self, column: str) -> Any:
        if column in ("tube", "type"):
            return self.tube if column == "tube" else self.look.type
        if column.endswith("/s"):
            return None if self.per_second is None else self.per_second[column.removesuffix("/s")]
        if column == "paused":
            return PAUSED[self.look.paused]
        if column == "oldest":
            return self.look.oldest_ready_age
        return self.look.holders if column == "holders" else self.look.tasks[column]


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
            return  # Ctrl-C is the normal end


def _look_on(call: Call, queue: Queue, interval: float, limit: int, sort: str) -> None:
    # Only this command needs these imports.
    from rich.live import Live  # noqa: PLC0415

    from tubeq_spark.cli.keys import Keys  # noqa: PLC0415

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
                print_table(_table(lines, sort))
            else:
                live.update(_with_keys(_fitting(lines, sort, screen), keys), refresh=True)
            if number == limit:
                return
            until = clock.monotonic() + interval
            while (key := keys.wait(until - clock.monotonic())) is not None:
                if key == _QUIT:
                    return
                sort = _KEYS.get(key, sort)
                if live is not None:
                    live.update(_with_keys(_fitting(lines, sort, screen), keys), refresh=True)


class _Watch:
    """Reads the tubes again and again."""

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


def _as_json(line: _Line, number: int) -> dict[str, Any]:
    told = asdict(line.look)
    del told["version"]
    return {"look": number, "tube": line.tube, **told, "per_second": line.per_second}


def _fitting(lines: list[_Line], sort: str, screen: Console) -> Table:
    """A table with as many columns as fit on a screen."""
    left_out: set[str] = set()
    table = _table(lines, sort)
    for column in _FIRST_LEFT_OUT:
        if width_of(table, screen) <= screen.width:
            break
        if column != sort:
            left_out.add(column)
            table = _table(lines, sort, left_out)
    return table


def _table(lines: list[_Line], sort: str, left_out: Collection[str] = ()) -> Table:
    """The rows, sorted by a column with the greatest value first, or by name."""
    if sort != "tube":
        lines = sorted(lines, key=lambda line: line.value(sort) or 0, reverse=True)
    columns = [column for column in _COLUMNS if column not in left_out]
    rows = [
        [
            age(line.look.oldest_ready_age) if column == "oldest" else line.value(column)
            for column in columns
        ]
        for line in lines
    ]
    return plain_table(columns, rows)


def _with_keys(table: Table, keys: Keys) -> RenderableType:
    """A table, and below it the keys that sort it."""
    from rich.console import Group  # noqa: PLC0415  as above
    from rich.text import Text  # noqa: PLC0415

    told = "  ".join(f"{key} {column}" for key, column in _KEYS.items())
    line = Text(f"sort by: {told}   {_QUIT} quit", style="dim")
    return Group(table, line) if keys.are_read else table


def console() -> Console:
    """A console for the present standard output."""
    found = Console(file=sys.stdout, highlight=False)
    return found if found.is_terminal else _console(_WIDE)


def print_table(table: Table) -> None:
    """Print a table to standard output, one line for each row.

    On a narrow terminal text in the last column is cut. Numbers are never cut; their lines are wrapped instead.
    """
    screen = console()
    widest = width_of(table, screen)
    if screen.is_terminal:
        last = table.columns[-1]
        if widest > screen.width and last.justify == "left":
            last.max_width = _LEAST
            last.max_width = max(_LEAST, screen.width - width_of(table, screen) + _LEAST)
            widest = width_of(table, screen)
        _console(max(screen.width, widest)).print(table)
        return
    wide = _console(max(_WIDE, widest))
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")


def _console(width: int) -> Console:
    """A console for standard output with lines of this width. It needs a height, too, which has no effect."""
    return Console(file=sys.stdout, width=width, height=_HIGH, highlight=False)


def width_of(table: Table, screen: Console) -> int:
    """The width that a table needs if nothing is cut."""
    return screen.measure(table, options=screen.options.update(width=_LONGEST)).maximum


def statistics_table(found: Mapping[str, Any]) -> Table:
    """A table of tubes, with their tasks by state and their calls."""
    rows = [
        [
            name,
            counts["type"],
            *(counts["tasks"][state] for state in _COUNTED),
            *(counts["calls"][call] for call in _CALLS),
            PAUSED[counts["paused"]],
        ]
        for name, counts in found.items()
    ]
    return plain_table(["tube", "type", *_COUNTED, *_CALLS, "paused"], rows)


def plain_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table with numbers on the right of their columns, and texts on the left. Missing values are empty.

    Args:
        names: The names of the columns.
        rows: The values: numbers or texts.
    """
    values = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        column = [row[place] for row in values]
        numbers = all(value is None or _is_number(value) for value in column)
        is_data = place == len(names) - 1 and not numbers
        table.add_column(
            name,
            justify="right" if numbers and column else "left",
            no_wrap=True,
            overflow="ellipsis" if is_data else "fold",
        )
    for row in values:
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | _Age)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


class _Age(str):
    """A duration for people, on the right of its column."""

    __slots__ = ()


def age(seconds: float | None) -> str | None:
    """A duration for people: `5s`, `12m`, `3h`, `4d`."""
    if seconds is None:
        return None
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * size:
            return _Age(f"{int(seconds / size)}{unit}")
    return _Age(f"{seconds:.0f}s")
