"""Selections: how many of some rows each segment holds, and the last of them, without their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.order import OrderPosition
from tubeq_spark.storage.segment_facts import SegmentSelection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["selection_query", "selections_of"]


def selection_query(rows: str, by: str = "segment", at_most: str = "") -> str:
    """The query for a selection.

    Args:
        rows: A query for the rows.
        by: Columns to tell them apart by: their segments, and their sub-queues where these matter.
        at_most: A limit to how many segments.
    """
    return (
        f"SELECT {by}, count(*) AS n, max(struct(pri, task_id)) AS last, "
        "bool_or(state = 't') AS in_lease_segment, count_if(state = '~') AS delayed, "
        f"min(ttr) AS ttr FROM ({rows}) GROUP BY {by} {at_most}"
    )


def selections_of(found: pa.Table) -> list[SegmentSelection]:
    """What such a query has found."""
    return [
        SegmentSelection(
            row["segment"],
            row["n"],
            OrderPosition(**row["last"]),
            row["in_lease_segment"],
            row["delayed"],
            row["ttr"],
            row.get("utube"),
        )
        for row in found.to_pylist()
    ]
