"""Tables on standard output: columns of numbers and texts, a line for each row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tubeq_spark.markup import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tubeq_spark.cli.call import Call

#: The value of a column: the name of a value of a row, or a function of the row.
Column = str | Callable[[dict[str, Any]], Any]

#: The states of tasks, in the order of columns.
STATES = ("ready", "taken", "delayed", "buried", "done")
#: The longest line of a table in a file or a pipe, where nothing is cut. A line may have a payload.
_LONGEST = 1_000_000
#: The fewest characters of a text on a narrow terminal.
_LEAST = 12
_HIGH = 50
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def show_each(call: Call, found: Iterable[dict[str, Any]], columns: Mapping[str, Column]) -> None:
    """Print a table, or with `--json` a line of JSON for each row, which has all of its values.

    Args:
        call: The call.
        found: The rows: values by name.
        columns: The columns of the table.
    """
    if not call.json:
        print_table(table_of(found, columns))
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
    return lambda row: Age.of(row[name])


class Age(float):
    """A duration in seconds that is shown to people as `5s`, `12m`, `3h`, `4d`."""

    __slots__ = ()

    @classmethod
    def of(cls, seconds: float | None) -> Age | None:
        """The duration; `None` if there is none."""
        return None if seconds is None else cls(seconds)

    def __str__(self) -> str:
        for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
            if self >= 2 * size:
                return f"{int(self / size)}{unit}"
        return f"{float(self):.0f}s"


def value_of(row: dict[str, Any], column: Column) -> Any:
    """The value of a column."""
    return row[column] if isinstance(column, str) else column(row)


def table_of(found: Iterable[dict[str, Any]], columns: Mapping[str, Column]) -> Table:
    """A table with numbers on the right of their columns, and texts on the left. Missing values are empty."""
    from rich.table import Table  # noqa: PLC0415  most calls print no table
    from rich.text import Text  # noqa: PLC0415

    rows = [[value_of(row, column) for column in columns.values()] for row in found]
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        values = [row[place] for row in rows if row[place] is not None]
        numbers = bool(rows) and all(isinstance(value, int | float) for value in values)
        is_data = place == len(columns) - 1 and not numbers
        table.add_column(
            name,
            justify="right" if numbers else "left",
            no_wrap=True,
            overflow="ellipsis" if is_data else "fold",
        )
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | Age):
        return printable(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def console(width: int | None = None) -> Console:
    """A console for the present standard output, with lines of this width, or of the terminal's."""
    from rich.console import Console  # noqa: PLC0415  as above

    # With a width it needs a height, too, which has no effect.
    height = None if width is None else _HIGH
    return Console(file=sys.stdout, width=width, height=height, highlight=False)


def print_table(table: Table) -> None:
    """Print a table to standard output, one line for each row.

    On a narrow terminal text in the last column is cut. Numbers are never cut; their lines are wrapped instead.
    """
    screen = console()
    if not screen.is_terminal:
        wide = console(_LONGEST)
        with wide.capture() as captured:
            wide.print(table)
        for line in captured.get().splitlines():
            sys.stdout.write(f"{line.rstrip()}\n")
        return
    widest = width_of(table, screen)
    last = table.columns[-1]
    if widest > screen.width and last.justify == "left":
        last.max_width = _LEAST
        last.max_width = max(_LEAST, screen.width - width_of(table, screen) + _LEAST)
        widest = width_of(table, screen)
    console(max(screen.width, widest)).print(table)


def width_of(table: Table, screen: Console) -> int:
    """The width that a table needs if nothing is cut."""
    return screen.measure(table, options=screen.options.update(width=_LONGEST)).maximum
