"""Converts column types between tables and Python, without converting columns that need it not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tubeq_spark.rules.arrow_values import with_dicts
from tubeq_spark.storage.rows import with_leaves

__all__ = ["cast", "nulls", "plain", "records", "whole"]


def cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to the column types of a schema with the same names.

    As `Table.cast`, which has each column looked at by Arrow: for a few rows that is what it costs.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def plain(rows: pa.Table) -> pa.Table:
    """Rows without string views, which neither Delta nor older readers support."""
    kinds = [with_leaves(kind, _plain) for kind in rows.schema.types]
    if kinds == rows.schema.types:
        return rows
    # Names may come twice.
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(rows.columns, kinds, strict=True)
    ]
    fields = [field.with_type(kind) for field, kind in zip(rows.schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def records(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, with maps as dicts.

    Raises:
        ValueError: A map has a key twice.
    """
    found: list[dict[str, Any]] = rows.to_pylist()
    for field in rows.schema:
        if pa.types.is_nested(field.type):
            for row in found:
                row[field.name] = with_dicts(row[field.name], field.type)
    return found


def nulls(schema: pa.Schema) -> pa.Table:
    """One row of NULLs."""
    return pa.Table.from_arrays([pa.nulls(1, kind) for kind in schema.types], schema=schema)


def whole(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of their table; what they do not name is NULL."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
