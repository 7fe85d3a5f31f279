"""The columns of tables and of sources of statements: their types, their order, and the partitions of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model.refusals import no_spark
from tubeq_spark.payloads.arrow_values import with_dicts
from tubeq_spark.storage.arrow.arrays import array, nested, repeated, scalar
from tubeq_spark.storage.expression import Type
from tubeq_spark.storage.statement import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tubeq_spark.storage.statement import Given, Source, Using

#: The values of the partition columns, in their order.
Partition = tuple[int, ...]
#: Separates the values of columns that are joined to one text for a comparison.
_BETWEEN = "/"
ARROW_TYPES = {
    Type.BIGINT: pa.int64(),
    Type.INT: pa.int32(),
    Type.STRING: pa.string(),
    Type.DOUBLE: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.COUNTS: pa.map_(pa.string(), pa.int64()),
}


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


def whole(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of their table, in its types. Missing columns are NULL.

    `Table.cast` also casts columns that have the type already. For a few rows that is most of its time, and Arrow
    cannot cast a NULL struct with a NOT NULL field, not even to its own type.
    """
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


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


def places_in_order(
    columns: Sequence[pa.Array | pa.ChunkedArray], limit: int | None = None, *, descending: bool
) -> pa.Array:
    """The indexes of rows in the order of some columns. Structs are compared by the first field that differs.

    Without a limit the order is stable.

    Args:
        columns: The columns.
        limit: The most rows; `None` is all.
        descending: Whether the order descends.

    Raises:
        pa.ArrowException: The values of a column have no order.
    """
    keys = pa.Table.from_arrays([*columns], names=[str(n) for n in range(len(columns))])
    while any(pa.types.is_struct(kind) for kind in keys.schema.types):
        keys = keys.flatten()
    count, found = keys.num_rows, []
    for column in keys.columns:
        # Arrow sorts NULL last in both directions.
        if column.null_count and not descending:
            found.append(pc.is_valid(column))
        found.append(column)
    keys = pa.Table.from_arrays(found, names=[str(n) for n in range(len(found))])
    by = [(name, "descending" if descending else "ascending") for name in keys.column_names]
    if limit is None or limit >= count or any(column.null_count for column in found):
        return pc.sort_indices(keys, sort_keys=by)[:limit]
    return pc.select_k_unstable(keys, k=limit, sort_keys=by)


def held(source: Source) -> pa.Table:
    """The rows of a source in this process.

    Raises:
        StoreError: The rows are a DataFrame of Spark.
    """
    if not isinstance(source, pa.Table):
        raise no_spark()
    return source


def rows_table(rows: Rows) -> pa.Table:
    """The rows that a verb has chosen, as an Arrow table."""
    arrays = [
        nested([each[place] for each in rows.values], ARROW_TYPES[kind])
        for place, kind in enumerate(rows.columns.values())
    ]
    return pa.Table.from_arrays(arrays, names=list(rows.columns))


def source_table(using: Using) -> pa.Table:
    """The rows of a source.

    Raises:
        StoreError: The rows are a DataFrame of Spark.
    """
    if not isinstance(using, Rows):
        return _given(using)
    if not using.columns:
        return rows_table(Rows({"one": Type.INT}, [(1,)]))
    return rows_table(using)


def _given(given: Given) -> pa.Table:
    rows = held(given.rows).select(list(given.columns))
    for name, value in given.constants.items():
        kind = ARROW_TYPES[value.type]
        rows = rows.append_column(pa.field(name, kind), repeated(value.value, kind, rows.num_rows))
    if not given.beside:
        return rows
    columns = [
        nested([each[f.name].value if f.name in each else None for each in given.beside], f.type)
        if any(f.name in each for each in given.beside)
        else pa.nulls(len(given.beside), f.type)
        for f in rows.schema
    ]
    beside = pa.Table.from_arrays(columns, schema=rows.schema)
    return pa.concat_tables([rows, beside])
