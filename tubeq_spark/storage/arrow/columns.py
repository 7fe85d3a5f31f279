"""The columns of tables and of sources of statements: their types, their order, and the partitions of rows.

If pandas is installed, `pyarrow` imports it to convert the first Python value of a process: 80 MB and a
third of a second for a worker that never uses a DataFrame. So the buffers of frequent types are made here.
"""

from __future__ import annotations

from array import array as packed
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model.validation import no_spark
from tubeq_spark.payloads.arrow_values import with_dicts
from tubeq_spark.storage.expression import Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tubeq_spark.storage.statement import Source

_MOMENT = pa.timestamp("us", "UTC")
#: The type codes of the module `array` for numbers of a type.
_PACKED = {pa.int32(): "i", pa.int64(): "q", _MOMENT: "q", pa.float64(): "d"}
_TEXT, _YES = pa.string(), pa.bool_()


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array; times are in microseconds."""
    code = _PACKED.get(kind)
    if code is None and kind not in {_TEXT, _YES}:
        return pa.array(values, kind)
    if None not in values:
        valid = None
    else:
        given = [value is not None for value in values]
        if not any(given):
            return pa.nulls(len(values), kind)
        valid, nothing = _bits(given), "" if kind == _TEXT else 0
        values = [nothing if value is None else value for value in values]
    if code is not None:
        buffers = [pa.py_buffer(packed(code, values))]
    elif kind == _YES:
        buffers = [_bits(values)]
    else:
        texts = [str.encode(value) for value in values]
        ends = packed("i", accumulate(map(len, texts), initial=0))
        buffers = [pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(values), [valid, *buffers])


def _bits(values: Sequence[bool]) -> pa.Buffer:
    """A bit for each value."""
    each_a_byte = [None, pa.py_buffer(bytes(values))]
    return pa.Array.from_buffers(pa.uint8(), len(values), each_a_byte).cast(_YES).buffers()[1]


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.Table.from_batches([], schema)


def nested(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array of any type: structs of dicts, maps of dicts or pairs, lists of sequences."""
    if pa.types.is_struct(kind):
        parts = [nested([(v or {}).get(part.name) for v in values], part.type) for part in kind]
        none = array([v is None for v in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=none)
    if not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return array(values, kind)
    items = [list(v.items() if isinstance(v, Mapping) else v or ()) for v in values]
    ends = list(accumulate(map(len, items), initial=0))
    starts = [None if v is None else end for v, end in zip(values, ends, strict=False)]
    offsets, flat = array([*starts, ends[-1]], pa.int32()), [one for item in items for one in item]
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, nested(flat, kind.value_type), type=kind)
    keys, mapped = ([pair[n] for pair in flat] for n in (0, 1))
    return pa.MapArray.from_arrays(
        offsets, nested(keys, kind.key_type), nested(mapped, kind.item_type)
    )


def table_of(rows: Sequence[Sequence[Any]], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows with values in the order of these columns, as a table."""
    columns = {
        name: nested([row[place] for row in rows], kind)
        for place, (name, kind) in enumerate(kinds.items())
    }
    return pa.table(columns)


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """One value."""
    return array([value], kind)[0]


def taken(values: pa.Table | pa.Array | pa.ChunkedArray, places: pa.Array) -> Any:
    """The values, or the rows, at some positions."""
    # Arrow before version 19 has no empty selections, and some of them end the process.
    return values.take(places) if len(places) else values.slice(0, 0)


def kept(rows: pa.Table | pa.Array | pa.ChunkedArray, places: pa.Array) -> Any:
    """The rows at some indexes, which ascend. Mostly these are all, and nothing is copied."""
    return rows if len(places) == len(rows) else taken(rows, places)


def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """An array that repeats one value."""
    return pa.nulls(count, kind) if value is None else pa.repeat(scalar(value, kind), count)


def numbers_from_0(count: int) -> pa.Array:
    """The first `count` integers, from 0 on."""
    one = scalar(1, pa.int64())
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, count)), one)


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values in one piece."""
    if isinstance(values, pa.Array):
        return values
    # With no chunks Arrow's own conversion would import pandas.
    return values.combine_chunks() if values.num_chunks else pa.nulls(0, values.type)


#: The value of the partition column; empty in a table without partitions.
Partition = tuple[int, ...]
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
    columns, given = [], dict(zip(rows.column_names, rows.columns, strict=True))
    for field in schema:
        column = given.get(field.name)
        if column is None:
            column = pa.nulls(rows.num_rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def distinct(rows: pa.Table, by: Sequence[str]) -> set[Partition]:
    """The partitions of some rows; `by` is the partition column, if the table has one."""
    if not by:
        return {()} if rows.num_rows else set()
    return {(value,) for value in rows.column(by[0]).unique().to_pylist()}


def counted(values: pa.Array | pa.ChunkedArray) -> Counter[Any]:
    """How often each value occurs."""
    pairs = pc.value_counts(values).flatten()
    return Counter(dict(zip(*(column.to_pylist() for column in pairs), strict=True)))


def grouped(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition, in their order. Arguments as for `distinct`."""
    if rows.num_rows == 1 or not by:
        yield tuple(rows.column(name)[0].as_py() for name in by), rows
        return
    column = flat(rows.column(by[0]))
    runs = pc.run_end_encode(column)
    if len(runs.values.unique()) < len(runs.values):
        # A partition has rows in several places.
        yield from grouped(rows.take(pc.sort_indices(column.dictionary_encode().indices)), by)
        return
    first = 0
    for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        part = rows.slice(first, end - first)
        # A slice keeps the memory of all rows, and small parts may stay in a cache. So they are copied.
        is_most = 2 * part.num_rows >= rows.num_rows
        yield (value,), part if is_most else part.take(numbers_from_0(part.num_rows))
        first = end


def are_in(rows: pa.Table, by: Sequence[str], partitions: Iterable[Partition]) -> pa.Array:
    """For each row, whether it is in one of some partitions. Arguments as for `distinct`."""
    wanted = list(partitions)
    if not by:
        return repeated(bool(wanted), pa.bool_(), rows.num_rows)
    column = rows.column(by[0])
    return pc.is_in(column, value_set=array([value for (value,) in wanted], column.type))


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


def held(source: Source | None) -> pa.Table:
    """The rows of a source in this process.

    Raises:
        StoreError: The rows are a DataFrame of Spark.
    """
    if not isinstance(source, pa.Table):
        raise no_spark()
    return source
