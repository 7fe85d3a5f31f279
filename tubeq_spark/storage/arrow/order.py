"""Sorts rows as Spark does: NULL is the least value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence


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
