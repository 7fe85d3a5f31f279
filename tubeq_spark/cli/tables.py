"""Prints tables on a terminal, for `tubeq stats`, `tubeq top` and others; other people's text is escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tubeq_spark.rules.printable import printable

__all__ = ["age", "console", "plain_table", "print_table", "statistics_table"]

_STATES = ("ready", "taken", "delayed", "buried", "done", "total")
#: The calls that have columns, whether there were any or not; `tubeq show` has them all.
_CALLS = ("put", "take", "ack", "release", "bury", "kick", "delete")
#: Columns of a table that goes to a file or a pipe: nothing is cut there.
_WIDE = 200
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def console() -> Console:
    """Standard output, as it is now."""
    found = Console(file=sys.stdout, highlight=False)
    return found if found.is_terminal else Console(file=sys.stdout, width=_WIDE, highlight=False)


def print_table(table: Table) -> None:
    """Print a table to standard output; without a terminal each row is a line, however long."""
    screen = console()
    if not screen.is_terminal:
        screen.width = max(_WIDE, screen.measure(table, options=_unlimited(screen)).maximum)
    screen.print(table)


def _unlimited(screen: Console) -> Any:
    return screen.options.update(width=1_000_000)


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
