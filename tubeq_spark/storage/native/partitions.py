"""The predicate of a commit: the partitions that a statement has read, and those that it replaces.

A commit `overwrite` with a predicate replaces the rows for which the predicate holds, and conflicts
with every commit that has added or removed files with such rows. Partitions that a statement has
only read are named, too, by a condition that no row fulfils and that file statistics cannot rule
out. So none of their rows is replaced, but a commit to them is a conflict.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import array, repeated, scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Partition", "are_in", "distinct", "grouped", "named", "predicate"]

#: The values of the partition columns, in their order.
Partition = tuple[int, ...]
#: Stands between the values of columns that are compared together.
_BETWEEN = "/"


def named(partitions: Mapping[str, Iterable[int]]) -> str:
    """The condition for the partitions that a statement names; "TRUE" if it names none."""
    conditions = [f"{column} IN ({_list(values)})" for column, values in partitions.items()]
    return " AND ".join(conditions) or "TRUE"


def predicate(
    columns: Sequence[str], changed: Iterable[Partition], near: Mapping[str, Iterable[int]]
) -> str:
    """The predicate of a commit.

    What was read comes first, by a conjunction that the library can look up in the log as it stands.
    A disjunction of it and what is replaced would say the same, but the library takes conditions that
    both sides have out of such a one, and then forgets them: it removes files of other partitions.

    Args:
        columns: The table's partition columns.
        changed: The partitions that it replaces; they are among those that were read.
        near: The partitions that were read, as of a `Statement`.
    """
    if not columns:
        # There is one partition: all of it is read, and replaced.
        return "TRUE"
    replaced = set(changed)
    if len(columns) == 1 and replaced == {(value,) for value in near.get(columns[0], ())}:
        return named(near)
    last: dict[Partition, list[int]] = defaultdict(list)
    for partition in replaced:
        last[partition[:-1]].append(partition[-1])
    found = [_found(columns, first, values) for first, values in last.items()]
    watched = f"concat(CAST({columns[0]} AS VARCHAR), '/') = 'never'"
    chosen = " OR ".join([*found, watched])
    return f"{named(near)} AND ({chosen})" if near else chosen


def _found(columns: Sequence[str], first: Partition, last: Iterable[int]) -> str:
    """The condition for some partitions that differ only in the last column."""
    conditions = [f"{name} = {value}" for name, value in zip(columns, first, strict=False)]
    return f"({' AND '.join([*conditions, f'{columns[-1]} IN ({_list(last)})'])})"


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


def _list(values: Iterable[int]) -> str:
    return ", ".join(str(int(value)) for value in values)
