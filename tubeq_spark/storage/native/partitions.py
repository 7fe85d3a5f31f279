"""Which partitions a statement has read and which it replaces, as one predicate of a commit.

A commit `overwrite` with a predicate replaces what the predicate finds, and conflicts with every
commit that added or removed files which it may find. So partitions that were only read are named,
too, by a condition that no row fulfils and that statistics do not see through: nothing of them is
replaced, but a rival there is noticed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Partition", "are_in", "distinct", "named", "predicate"]

#: The values of the partition columns, in their order.
Partition = tuple[int, ...]


def named(partitions: Mapping[str, Iterable[int]]) -> str:
    """The condition of rows in partitions that a statement names; "TRUE": it names none."""
    conditions = [f"{column} IN ({_list(values)})" for column, values in partitions.items()]
    return " AND ".join(conditions) or "TRUE"


def predicate(columns: Sequence[str], changed: Iterable[Partition], read: str) -> str:
    """The predicate of a commit.

    Args:
        columns: The table's partition columns.
        changed: The partitions that it replaces.
        read: The condition of those that were read.
    """
    if not columns:
        # There is one partition: all of it is read, and replaced.
        return "TRUE"
    never = f"concat(CAST({columns[0]} AS VARCHAR), '/') = 'never'"
    last: dict[Partition, list[int]] = defaultdict(list)
    for partition in changed:
        last[partition[:-1]].append(partition[-1])
    found = [
        " AND ".join(
            [
                *(f"{name} = {value}" for name, value in zip(columns, first, strict=False)),
                f"{columns[-1]} IN ({_list(values)})",
            ]
        )
        for first, values in last.items()
    ]
    watched = never if read == "TRUE" else f"{read} AND {never}"
    return " OR ".join(f"({text})" for text in [*found, watched])


def distinct(rows: pa.Table, columns: Sequence[str]) -> set[Partition]:
    """The partitions of some rows."""
    if not columns:
        return {()} if rows.num_rows else set()
    found = rows.select(list(columns)).group_by(list(columns)).aggregate([])
    return set(zip(*(found.column(name).to_pylist() for name in columns), strict=True))


def are_in(rows: pa.Table, columns: Sequence[str], partitions: Iterable[Partition]) -> pa.Array:
    """For each row whether it is in one of some partitions."""
    wanted = list(partitions)
    if not columns:
        return pa.array([bool(wanted)] * rows.num_rows, pa.bool_())
    if len(columns) == 1:
        values = pa.array([partition[0] for partition in wanted], rows.column(columns[0]).type)
        return pc.is_in(rows.column(columns[0]), value_set=values)
    texts = [pc.cast(rows.column(name), pa.string()) for name in columns]
    keys = pa.array(["/".join(map(str, partition)) for partition in wanted], pa.string())
    return pc.is_in(pc.binary_join_element_wise(*texts, "/"), value_set=keys)


def _list(values: Iterable[int]) -> str:
    return ", ".join(str(int(value)) for value in values)
