"""Tasks in an Arrow table for programs: the columns of `Batch.table`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.rules.microseconds import US

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["shown_table"]


#: Behind the payload. Stored in microseconds: the moment, and durations, which are shown in seconds.
_AFTER = {
    "pri": pa.int32(),
    "utube": pa.string(),
    "ttl": pa.float64(),
    "ttr": pa.float64(),
    "attempts": pa.int32(),
    "created": pa.timestamp("us", "UTC"),
}


def shown_table(stored: pa.Table, order: Sequence[str], *, typed: bool) -> pa.Table:
    """Tasks with durations in seconds, moments in UTC, and a typed payload in columns of its own.

    Args:
        stored: `task_id`, `data` and the other columns; durations and moments in microseconds.
        order: The columns of the tube's order.
        typed: Whether the payload has a schema.
    """
    stored = stored.sort_by([(name, "ascending") for name in order])
    columns = [("task_id", stored.column("task_id").cast(pa.int64()))]
    columns += _payload(stored.column("data"), typed=typed)
    for name, kind in _AFTER.items():
        column = stored.column(name)
        if pa.types.is_floating(kind):
            column = pc.divide(column.cast(pa.float64(), safe=False), float(US))
        columns.append((name, column.cast(kind)))
    # A schema may have columns of the same names, which the DataFrame shows twice, too.
    return pa.Table.from_arrays([column for _, column in columns], [name for name, _ in columns])


def _payload(data: pa.ChunkedArray, *, typed: bool) -> list[tuple[str, pa.ChunkedArray]]:
    if not typed:
        return [("data", data.cast(pa.string()))]
    parts = pa.Table.from_arrays([data], ["data"]).flatten()
    names = [part.name for part in data.type]
    return list(zip(names, parts.columns, strict=True))
