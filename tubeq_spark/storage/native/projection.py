"""The rows of a plain put, without a query: columns that the process holds, and literals.

A put into fresh segments is what is written most. To have DataFusion project its rows costs as much
as to write them. What is not as plain as this is left to DataFusion.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import empty
from tubeq_spark.storage.native.expressions import (
    UnknownTextError,
    column,
    holds,
    literal,
    no_columns,
    of_table,
    read,
)
from tubeq_spark.storage.native.statement_query import ONE_ROW, condition

if TYPE_CHECKING:
    from tubeq_spark.storage.native.evaluation import Values
    from tubeq_spark.storage.statement import Source, Statement

__all__ = ["inserted_unless", "projected"]

_ROWS = re.compile(r"\(SELECT \*, (?P<value>-?\d+L) AS (?P<name>\w+) FROM \{(?P<rows>\w+)\}\)")


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
    constant, of_rows = literal(read(source["value"])), of_table(rows)

    def lookup(alias: str, name: str) -> Values:
        return constant if name == source["name"] else of_rows(alias, name)

    columns = []
    for field in schema:
        text = (clause.sets or {}).get(field.name)
        if text is None:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        try:
            columns.append(column(read(text), lookup, field.type, rows.num_rows))
        except UnknownTextError:
            return None
    return pa.Table.from_arrays(columns, schema=schema)


def inserted_unless(statement: Statement, schema: pa.Schema, there: pa.Table) -> pa.Table | None:
    """What a statement inserts that has one row of literals for a table which has none like it.

    Args:
        statement: The statement.
        schema: The columns of its table.
        there: The rows of the partitions that it names.

    Returns:
        The row, or none; `None`: ask DataFusion.
    """
    (clause, *others) = statement.clauses
    if others or clause.when or not clause.inserts or statement.using != ONE_ROW:
        return None
    sets = clause.sets or {}
    lookup, count = of_table(there), there.num_rows
    try:
        if count and pc.any(holds(read(condition(statement)), lookup, count)).as_py():
            return empty(schema)
        columns = [
            column(read(sets[field.name]), no_columns, field.type, 1)
            if field.name in sets
            else pa.nulls(1, field.type)
            for field in schema
        ]
    except (UnknownTextError, pa.ArrowException):
        return None
    return pa.Table.from_arrays(columns, schema=schema)
