"""Prints tables on a terminal, for `tubeq stats`, `tubeq top` and others; other people's text is escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tubeq_spark.printable import printable

__all__ = ["age", "console", "plain_table", "print_table", "statistics_table", "width_of"]

_STATES = ("ready", "taken", "delayed", "buried", "done", "total")
#: The calls that have columns, whether there were any or not; `tubeq show` has them all.
_CALLS = ("put", "take", "ack", "release", "bury", "kick", "delete")
#: Columns of a table that goes to a file or a pipe: nothing is cut there.
_WIDE = 200
#: Columns of its longest line, which a payload may be in.
_LONGEST = 1_000_000
#: Columns that are left of a text on a narrow terminal.
_LEAST = 12
_HIGH = 50
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def console() -> Console:
    """Standard output, as it is now."""
    found = Console(file=sys.stdout, highlight=False)
    return found if found.is_terminal else _console(_WIDE)


def print_table(table: Table) -> None:
    """Print a table to standard output, a line a row.

    On a terminal that is too narrow text in the last column is cut; numbers never are, their lines go on
    in the next one.
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
    """Standard output with lines of this width; a height has to be said with it, and matters to nothing."""
    return Console(file=sys.stdout, width=width, height=_HIGH, highlight=False)


def width_of(table: Table, screen: Console) -> int:
    """How many columns of a screen a table needs, if nothing of it is cut."""
    return screen.measure(table, options=screen.options.update(width=_LONGEST)).maximum


def statistics_table(found: Mapping[str, Any]) -> Table:
    """Tubes, with their tasks by state and their calls."""
    rows = [
        [
            name,
            counts["type"],
            *(counts["tasks"][state] for state in _STATES),
            *(counts["calls"][call] for call in _CALLS),
        ]
        for name, counts in found.items()
    ]
    return plain_table(["tube", "type", *_STATES, *_CALLS], rows)


def plain_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Numbers to the right, all else to the left; nothing where there is no value.

    Args:
        names: Of the columns.
        rows: Their values: numbers, or texts.
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
    """A duration as people say it, to the right of its column."""

    __slots__ = ()


def age(seconds: float | None) -> str | None:
    """A duration as people say it: `5s`, `12m`, `3h`, `4d`."""
    if seconds is None:
        return None
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * size:
            return _Age(f"{int(seconds / size)}{unit}")
    return _Age(f"{seconds:.0f}s")
