"""The partitions of rows: which there are, and which rows are in some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import array, repeated, scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Partition", "are_in", "distinct", "grouped"]

#: The values of the partition columns, in their order.
Partition = tuple[int, ...]
#: Stands between the values of columns that are compared together.
_BETWEEN = "/"


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
    found = distinct(rows, columns)
    if len(found) == 1:
        yield from ((partition, rows) for partition in found)
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
    """For each row whether it is in one of some partitions."""
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
