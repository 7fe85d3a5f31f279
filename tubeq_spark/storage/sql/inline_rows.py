"""Gives a statement rows that the driver holds: a few in its text, many as an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.storage.arrow_arrays import array
from tubeq_spark.storage.chosen import MOST_NAMED
from tubeq_spark.storage.sql.quoting import bigint, boolean, integer, string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.storage.statement import Source

__all__ = ["rows_source"]

_KINDS: dict[str, tuple[Callable[[Any], str], pa.DataType]] = {
    "BIGINT": (bigint, pa.int64()),
    "INT": (integer, pa.int32()),
    "STRING": (string, pa.string()),
    "BOOLEAN": (boolean, pa.bool_()),
}


def rows_source(
    columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
) -> tuple[str, dict[str, Source]]:
    """What comes after FROM or USING, and the sources of the statement that it names.

    Args:
        columns: Their SQL types by name: BIGINT, INT, STRING or BOOLEAN.
        rows: At least one.
    """
    kinds = [(name, *_KINDS[kind]) for name, kind in columns.items()]
    if len(rows) <= MOST_NAMED:
        # One inline table: a UNION ALL of SELECTs is analysed branch by branch, seconds for 200.
        values = (
            ", ".join(quote(value) for (_, quote, _), value in zip(kinds, row, strict=True))
            for row in rows
        )
        inline = ", ".join(f"({row})" for row in values)
        return f"(SELECT * FROM VALUES {inline} AS rows({', '.join(columns)}))", {}
    arrays = [array([row[place] for row in rows], kind) for place, (_, _, kind) in enumerate(kinds)]
    table = pa.Table.from_arrays(arrays, names=list(columns))
    return "{rows}", {"rows": table}
