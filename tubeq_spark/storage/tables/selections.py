"""Selections: for each segment the number of selected rows and the last of them, without the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.order import OrderPosition
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.query import (
    Firsts,
    Select,
    Struct,
    any_holds,
    count,
    count_if,
    greatest,
    least,
    named,
)
from tubeq_spark.storage.segment_facts import SegmentSelection
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["SELECTED", "position", "selection_query", "selections_of"]

_ROW = row()
#: The columns that a selection reads of its rows; a tube with sub-queues tells them apart by `utube`, too.
SELECTED = named("segment", "pri", "task_id", "state", "ttr")


def position() -> Struct:
    """The position of a row in the order of its tube."""
    return Struct(named("pri", "task_id"))


def selection_query(
    rows: Select | Firsts, by: Sequence[str] = ("segment",), at_most: int | None = None
) -> Select:
    """The query for a selection.

    Args:
        rows: A query for the rows.
        by: Columns to tell them apart by: their segments, and their sub-queues where these matter.
        at_most: A limit to how many segments.
    """
    columns = {
        **named(*by),
        "n": count(),
        "last": greatest(position()),
        "in_lease_segment": any_holds(_ROW.state == TaskState.TAKEN.value),
        "delayed": count_if(_ROW.state == TaskState.DELAYED.value),
        "ttr": least(_ROW.ttr),
    }
    return Select(rows, columns, by=by, limit=at_most)


def selections_of(found: pa.Table) -> list[SegmentSelection]:
    """The result of such a query."""
    return [
        SegmentSelection(
            each["segment"],
            each["n"],
            OrderPosition(**each["last"]),
            each["in_lease_segment"],
            each["delayed"],
            each["ttr"],
            each.get("utube"),
        )
        for each in found.to_pylist()
    ]
