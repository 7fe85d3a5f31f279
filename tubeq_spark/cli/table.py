"""Tables on standard output: columns of numbers and texts, a line for each row."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tubeq_spark.markup import printable

if TYPE_CHECKING:
    from tubeq_spark.cli.call import Call

#: The value of a column: the name of a value of a row, or a function of the row.
Column = str | Callable[[dict[str, Any]], Any]

#: The states of tasks, in the order of columns.
STATES = ("ready", "taken", "delayed", "buried", "done")
#: The fewest characters of a text on a narrow terminal.
_LEAST = 12
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def show_each(call: Call, found: Iterable[dict[str, Any]], columns: Mapping[str, Column]) -> None:
    """Print a table, or with `--json` a line of JSON for each row, which has all of its values.

    Args:
        call: The call.
        found: The rows: values by name.
        columns: The columns of the table.
    """
    if not call.json:
        print_table(found, columns)
        return
    for row in found:
        call.show(row, "")


def paused(row: dict[str, Any]) -> str:
    """The column that tells whether a tube is paused."""
    return "paused" if row["paused"] else ""


def counted(kind: str, name: str) -> Column:
    """A column with one of the counts of a tube: its `tasks` by state, or its `calls` by verb."""
    return lambda row: row[kind][name]


def age(name: str) -> Column:
    """A column with the age that is called so in a row."""
    return lambda row: None if row[name] is None else Age(row[name])


class Age(float):
    """A duration in seconds that is shown to people as `5s`, `12m`, `3h`, `4d`."""

    __slots__ = ()

    def __str__(self) -> str:
        for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
            if self >= 2 * size:
                return f"{int(self / size)}{unit}"
        return f"{float(self):.0f}s"


def value_of(row: dict[str, Any], column: Column) -> Any:
    """The value of a column."""
    return row[column] if isinstance(column, str) else column(row)


def print_table(found: Iterable[dict[str, Any]], columns: Mapping[str, Column]) -> None:
    """Print a table to standard output, one line for each row.

    On a narrow terminal text in the last column is cut. Numbers are never cut; their lines are wrapped instead.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.writelines(f"{line}\n" for line in lines_of(found, columns, width))


def lines_of(
    found: Iterable[dict[str, Any]], columns: Mapping[str, Column], width: int | None = None
) -> list[str]:
    """A table as lines, the first of which is its header. Missing values are empty.

    Numbers are on the right of their columns, and texts on the left.

    Args:
        found: The rows.
        columns: The columns.
        width: Lines that are longer are cut, if the last column has texts; `None` cuts none.
    """
    rows = [[value_of(row, column) for column in columns.values()] for row in found]
    # Each column with its name as the first cell, in cells of the same width.
    shown: list[list[str]] = []
    for place, name in enumerate(columns):
        values = [row[place] for row in rows]
        is_number = bool(rows) and all(isinstance(v, int | float | None) for v in values)
        cells = [name, *map(_shown, values)]
        if place == len(columns) - 1 and not is_number and width is not None:
            room = max(_LEAST, width - sum(width_of(column[0]) + 2 for column in shown))
            cells = [_cut(cell, room) for cell in cells]
        widest = max(map(width_of, cells))
        spaces = (" " * (widest - width_of(cell)) for cell in cells)
        pairs = zip(spaces, cells, strict=True)
        shown.append([f"{space}{cell}" if is_number else f"{cell}{space}" for space, cell in pairs])
    return ["  ".join(cells).rstrip() for cells in zip(*shown, strict=True)]


def width_of(text: str) -> int:
    """The number of columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415  most tables have none such

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    from rich.cells import set_cell_size  # noqa: PLC0415  as above

    return f"{set_cell_size(text, width - 1)}…"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | Age):
        return printable(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
