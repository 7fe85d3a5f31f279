"""Tables on standard output: columns of numbers and texts, a line for each row."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tubeq_spark.markup import printable, shown
from tubeq_spark.observe.columns import Columns, value_of

if TYPE_CHECKING:
    from tubeq_spark.cli.call import Call

#: The fewest characters of a text on a narrow terminal.
_LEAST = 12


def show_each(
    call: Call,
    rows: Sequence[Any],
    columns: Columns,
    as_dict: Callable[[Any], dict[str, Any]] = asdict,
) -> None:
    """Print a table, or with `--json` a line of JSON for each row, which has all of its values.

    Args:
        call: The call.
        rows: The rows.
        columns: The columns of the table.
        as_dict: Makes the JSON object of a row.
    """
    if call.json:
        for row in rows:
            call.show(as_dict(row), "")
        return
    # On a narrow terminal text in the last column is cut. Numbers are never cut; their lines are wrapped instead.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.writelines(f"{line}\n" for line in lines_of(rows, columns, width))
    sys.stdout.flush()


def lines_of(rows: Sequence[Any], columns: Columns, width: int | None = None) -> list[str]:
    """A table as lines, the first of which is its header. Missing values are empty.

    Numbers are on the right of their columns, and texts on the left.

    Args:
        rows: The rows.
        columns: The columns.
        width: Lines that are longer are cut, if the last column has texts; `None` cuts none.
    """
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  few calls print a table

    # Each column with its name as the first cell, in cells of the same width.
    found: list[list[str]] = []
    for place, (name, column) in enumerate(columns.items()):
        values = [value_of(row, column) for row in rows]
        is_number = bool(rows) and all(isinstance(v, int | float | None) for v in values)
        cells = [name, *(printable(shown(value)) for value in values)]
        if place == len(columns) - 1 and not is_number and width is not None:
            room = max(_LEAST, width - sum(cell_len(each[0]) + 2 for each in found))
            cells = [
                cell if cell_len(cell) <= room else f"{set_cell_size(cell, room - 1)}…"
                for cell in cells
            ]
        widest = max(map(cell_len, cells))
        spaces = (" " * (widest - cell_len(cell)) for cell in cells)
        pairs = zip(spaces, cells, strict=True)
        found.append([f"{space}{cell}" if is_number else f"{cell}{space}" for space, cell in pairs])
    return ["  ".join(cells).rstrip() for cells in zip(*found, strict=True)]
