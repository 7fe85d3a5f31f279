"""Converts the types of columns, and groups rows by their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.payloads.arrow_values import with_dicts
from tubeq_spark.storage.arrow.arrays import array, repeated, scalar
from tubeq_spark.storage.rows import with_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: The values of the partition columns, in their order.
Partition = tuple[int, ...]
#: Separates the values of columns that are joined to one text for a comparison.
_BETWEEN = "/"


def cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to the column types of a schema with the same names.

    `Table.cast` does the same, but also casts columns that have the type already. For a few rows that is most of its
    time.
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
    # Column names may occur twice.
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
    """Rows with all columns of their table. Missing columns are NULL."""
    columns = [
        _as(rows.column(field.name), field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # Arrow cannot cast a NULL struct with a NOT NULL field, not even to its own type.
    return column if column.type == kind else column.cast(kind)


def distinct(rows: pa.Table, columns: Sequence[str]) -> set[Partition]:
    """The partitions of some rows."""
    if not columns:
        return {()} if rows.num_rows else set()
    if len(columns) == 1:
        return {(value,) for value in rows.column(columns[0]).unique().to_pylist()}
    keys = _keys(rows, columns).unique().to_pylist()
    return {tuple(map(int, key.split(_BETWEEN))) for key in keys}


def grouped(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition, in their order."""
    if rows.num_rows == 1 or len(distinct(rows, columns)) == 1:
        yield tuple(rows.column(name)[0].as_py() for name in columns), rows
        return
    keys = rows.column(columns[0]) if len(columns) == 1 else _keys(rows, columns)
    encoded = keys.combine_chunks().dictionary_encode()
    in_order = pc.sort_indices(encoded.indices)
    counts = pc.value_counts(encoded.indices.take(in_order)).field("counts").to_pylist()
    first = 0
    for count in counts:
        part = rows.take(in_order[first : first + count])
        yield tuple(part.column(name)[0].as_py() for name in columns), part
        first += count


def are_in(rows: pa.Table, columns: Sequence[str], partitions: Iterable[Partition]) -> pa.Array:
    """For each row, whether it is in one of some partitions."""
    wanted = list(partitions)
    if not columns:
        return repeated(bool(wanted), pa.bool_(), rows.num_rows)
    if len(columns) == 1:
        values = array([partition[0] for partition in wanted], rows.column(columns[0]).type)
        return pc.is_in(rows.column(columns[0]), value_set=values)
    keys = array([_BETWEEN.join(map(str, partition)) for partition in wanted], pa.string())
    return pc.is_in(_keys(rows, columns), value_set=keys)


def _keys(rows: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """The values of several columns as one text."""
    texts = [pc.cast(rows.column(name), pa.string()) for name in columns]
    return pc.binary_join_element_wise(*texts, scalar(_BETWEEN, pa.string()))
