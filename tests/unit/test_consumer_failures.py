"""A consumer keeps no results of tasks that its handler names as failed. No Spark runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from tubeq_spark import FailedTasks
from tubeq_spark.jobs.consumer.loop import Consumer, Settings

if TYPE_CHECKING:
    from collections.abc import Collection


class Frame:
    """Stands in for a DataFrame."""

    sparkSession = None  # noqa: N815  (as Spark has it)

    def __init__(self, table: pa.Table) -> None:
        self._table, self.columns = table, table.column_names
        self.evaluations = 0

    def where(self, condition: str) -> Frame:
        """Filter the rows: only that of the consumer is known."""
        assert condition == "error IS NOT NULL"
        return self

    def limit(self, most: int) -> Frame:
        """The first rows."""
        assert most == 11
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802  (as Spark has it)
        """Evaluate the rows."""
        self.evaluations += 1
        return self._table.filter(self._table.column("error").is_valid())


class Results:
    """Stands in for the table of results."""

    left_out: list[int]

    def add(self, _rows: object, but: Collection[int] = ()) -> int:
        """Remember what is left out."""
        self.left_out = sorted(but)
        return 1


NAMED = pa.table({"error": ["a", None, "b"], "task_id": [7, 8, 9]})


@pytest.mark.parametrize(
    ("failed", "left_out"),
    [
        (FailedTasks({3: "why"}), [3]),
        (Frame(NAMED), [7, 9]),
        (NAMED, [7, 9]),
        (None, []),
    ],
    ids=["mapping", "frame", "table", "none"],
)
def test_results_when_tasks_are_named_as_failed_leave_these_out(
    failed: Any, left_out: list[int]
) -> None:
    made, results = Frame(pa.table({"task_id": [1], "n": [1]})), Results()
    consumer = Consumer(
        cast("Any", None),
        cast("Any", lambda _: (made, failed)),
        cast("Any", results),
        Settings(batch_size=10),
        lambda: False,
    )

    named = consumer._handle(cast("Any", None))

    assert results.left_out == left_out
    if isinstance(failed, Frame):
        # Evaluated once: what is acked and what is left out must be the same.
        assert failed.evaluations == 1
        assert named is not None
        assert cast("pa.Table", named).column("task_id").to_pylist() == [7, 9]
    else:
        assert named is failed
