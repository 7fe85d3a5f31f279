"""The predicate of a commit: the partitions that a statement has read, and those that it replaces.

A commit `overwrite` with a predicate replaces the rows for which the predicate holds, and conflicts
with every commit that has added or removed files with such rows. Partitions that a statement has
only read are named, too, by a condition that no row fulfils and that file statistics cannot rule
out. So none of their rows is replaced, but a commit to them is a conflict.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.storage.arrow.columns import Partition


def named(partitions: Mapping[str, Iterable[int]]) -> str:
    """The condition for the partitions that a statement names; "TRUE" if it names none."""
    conditions = [f"{column} IN ({_list(values)})" for column, values in partitions.items()]
    return " AND ".join(conditions) or "TRUE"


def predicate(
    columns: Sequence[str], changed: Iterable[Partition], near: Mapping[str, Iterable[int]]
) -> str:
    """The predicate of a commit.

    The partitions that were read come first, as a conjunction that the library can look up in the log. A
    disjunction of the read and the replaced partitions would mean the same. But the library moves a condition
    that both sides share out of a disjunction, and then loses it: it removes files of other partitions.

    Args:
        columns: The table's partition columns.
        changed: The partitions that the commit replaces. All of them were read.
        near: The partitions that were read, as in a `Statement`.
    """
    if not columns:
        # The table is one partition, which is read and replaced as a whole.
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


def _list(values: Iterable[int]) -> str:
    return ", ".join(str(int(value)) for value in values)
