"""The rows that `put_df` has Spark write, as expressions; no Spark is asked for them."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from tubeq_spark.model.ids import Numbering, Range, spread
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.storage.spark.put_frame_rows import CountedFrame, frame_rows
from tubeq_spark.storage.tables.tube_table import TubeTable

SPAN = "00-00000000000000000000000000000001-0000000000000002-01"


class Frame:
    """A DataFrame that says what was selected of it last."""

    columns = ("data",)

    def __init__(self, selected: tuple[str, ...] = ()) -> None:
        self.selected = selected

    def selectExpr(self, *expressions: str) -> Frame:  # noqa: N802  as Spark calls it
        return Frame(expressions)


@pytest.mark.parametrize(
    ("span", "columns"),
    [(SPAN, [f"'{SPAN}' AS trace"]), (None, ["CAST(NULL AS STRING) AS trace"])],
)
def test_rows_of_a_frame_that_is_put_in_a_span_have_it(
    span: str | None, columns: list[str]
) -> None:
    table = TubeTable("mail", 1, ("pri", "task_id"))
    counts = Counter({0: 2})
    frame = CountedFrame(cast("Any", Frame()), ["data"], span, partitions=counts, buckets=counts)
    numbering = Numbering(2, Range(1, 10, 3), spread(counts, 100, 10), 0)

    rows = cast("Frame", frame_rows(table, TubeOptions(), frame, numbering))

    assert [each for each in rows.selected if each.endswith(" AS trace")] == columns
