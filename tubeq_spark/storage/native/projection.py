"""The rows of a plain put, without a query: columns that the process holds, and literals.

A put into fresh segments is what is written most. To have DataFusion project its rows costs as much
as to write them. What is not as plain as this is left to DataFusion.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import repeated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.statement import Source, Statement

__all__ = ["projected"]

_ROWS = re.compile(r"\(SELECT \*, (?P<value>-?\d+L) AS (?P<name>\w+) FROM \{(?P<rows>\w+)\}\)")
_COLUMN = re.compile(r"s\.(\w+)")
_MOMENT = re.compile(r"timestamp_micros\(s\.(\w+)\)")
_NUMBER = re.compile(r"CAST\((-?\d+) AS INT\)|(-?\d+)L")


def projected(statement: Statement, schema: pa.Schema) -> pa.Table | None:
    """What a statement of one insert makes of its source, where nothing matches any of it.

    Args:
        statement: The statement.
        schema: The columns of its table.

    Returns:
        The rows that it inserts; `None`: ask DataFusion.
    """
    (clause, *others) = statement.clauses
    source = _ROWS.fullmatch(statement.using)
    if others or clause.when or source is None:
        return None
    rows: Source | None = statement.sources.get(source["rows"])
    if not isinstance(rows, pa.Table) or source["name"] in rows.column_names:
        return None
    constants = {source["name"]: source["value"]}
    columns = []
    for field in schema:
        text = (clause.sets or {}).get(field.name)
        column = pa.nulls(rows.num_rows, field.type)
        if text is not None:
            found = _column(text, field.type, rows, constants)
            if found is None:
                return None
            column = found
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _column(
    text: str, kind: pa.DataType, rows: pa.Table, constants: Mapping[str, str]
) -> pa.ChunkedArray | pa.Array | None:
    """The values of an expression over the source; `None`: it is another one than these."""
    named = _COLUMN.fullmatch(text)
    if named is not None and named[1] in constants:
        text = constants[named[1]]
    elif named is not None:
        return rows.column(named[1]).cast(kind)
    moment = _MOMENT.fullmatch(text)
    if moment is not None:
        return pc.cast(rows.column(moment[1]), pa.timestamp("us")).cast(kind)
    number = _NUMBER.fullmatch(text)
    if number is None:
        return None
    return repeated(int(number[1] or number[2]), kind, rows.num_rows)
