"""The consumer stores no result of a failed task, and finds bad tasks by few calls, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from consume import Consumer

from tubeq_spark import FailedTasks
from tubeq_spark.model.failures import PATIENCE
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark import BatchReport


class Frame:
    """Stands in for a DataFrame."""

    sparkSession = None  # noqa: N815  (as Spark has it)

    def __init__(self, table: pa.Table) -> None:
        self._table, self.columns = table, table.column_names

    def where(self, condition: str) -> Frame:
        """Filter the rows: only that of the consumer is known."""
        assert condition == "error IS NOT NULL"
        return Frame(self._table.filter(self._table.column("error").is_valid()))

    def select(self, name: str) -> Frame:
        """One column."""
        return Frame(self._table.select([name]))

    def join(self, other: Frame, on: str, how: str) -> Frame:
        """The rows of tasks that the other one has, too."""
        assert how == "left_semi"
        return Frame(self._table.join(other._table, on, join_type="left semi"))

    def dropDuplicates(self, names: list[str]) -> Frame:  # noqa: N802  (as Spark has it)
        """One row of each task."""
        found = self._table.group_by(names).aggregate([("error", "min")])
        return Frame(found.rename_columns(["task_id", "error"]))

    def toArrow(self) -> pa.Table:  # noqa: N802  (as Spark has it)
        """Evaluate the rows."""
        return self._table


class Results:
    """Stands in for the table of results."""

    left_out: list[int]

    def add(self, _rows: object, but: Collection[int] = ()) -> int:
        """Remember what is left out."""
        self.left_out = sorted(but)
        return 1


def consumer(handler: Any, results: Results) -> Any:
    """A consumer of a tube."""
    return Consumer(
        tube=cast("Any", None), handler=handler, results=cast("Any", results), stop=lambda: False
    )


NAMED = pa.table({"error": ["a", None, "b"], "task_id": [7, 8, 9]})


def with_more(task_ids: list[int]) -> Frame:
    """More rows than a batch has tasks."""
    more = pa.table({"error": ["a"] * len(task_ids), "task_id": task_ids})
    return Frame(pa.concat_tables([more, NAMED]))


@pytest.mark.parametrize(
    ("failed", "left_out"),
    [
        (FailedTasks({3: "why"}), [3]),
        (Frame(NAMED), [7, 9]),
        (with_more([7] * 20), [7, 9]),
        (with_more([*range(100, 120)]), [7, 9]),
        (NAMED, [7, 9]),
        (None, []),
    ],
    ids=["mapping", "frame", "several reasons", "other tasks", "table", "none"],
)
def test_results_when_tasks_are_named_as_failed_leave_these_out(
    failed: Any, left_out: list[int]
) -> None:
    made, results = Frame(pa.table({"task_id": [1], "n": [1]})), Results()

    batch = Frame(pa.table({"task_id": [3, 7, 8, 9], "n": [1, 2, 3, 4]}))
    named = consumer(lambda _: (made, failed), results).handle(cast("Any", batch))

    assert results.left_out == left_out
    if isinstance(failed, Frame):
        # It is a table, so that what is acked and what is left out are the same.
        assert sorted(cast("pa.Table", named).column("task_id").to_pylist()) == [7, 9]
    else:
        assert named is failed


# -- halves of a batch -------------------------------------------------------------------------------


def processed(
    count: int, bad: Collection[int], most: int = 1_000_000
) -> tuple[BatchReport, list[list[int]]]:
    """What came of a batch whose handler fails at each call with a bad task, and the tasks of each call.

    It is asked to stop after so many calls at the most.
    """
    calls: list[list[int]] = []

    def handle(table: pa.Table) -> None:
        calls.append([int(text) for text in table.column("data").to_pylist()])
        if not {*bad}.isdisjoint(calls[-1]):
            raise ValueError(*calls[-1])

    with InMemoryQueue() as queue:
        tube = queue.create_tube("t", "fifottl", ttr=600)
        tube.put_arrow(pa.table({"data": [str(number) for number in range(count)]}))
        batch = tube.take_arrow(count)
        return batch.process(handle, stop=lambda: len(calls) == most), calls


@pytest.mark.parametrize(
    ("count", "bad", "most"),
    [(1, {0}, 1), (3, {1}, 5), (1_000, {17, 18, 600}, 61), (2**10, {123}, 1 + 2 * 10)],
)
def test_halves_when_some_tasks_are_bad_need_two_calls_a_level_and_call_none_twice(
    count: int, bad: set[int], most: int
) -> None:
    report, calls = processed(count, bad)

    assert (report.done, report.failed) == (count - len(bad), len(bad))
    # Each innocent task is in one call that succeeds.
    done = [number for call in calls if bad.isdisjoint(call) for number in call]
    assert sorted(done) == [number for number in range(count) if number not in bad]
    assert len({tuple(call) for call in calls}) == len(calls) <= most


def test_halves_when_the_handler_is_broken_are_given_up() -> None:
    report, calls = processed(20_000, range(20_000))

    assert len(calls) == PATIENCE
    alone = [call for call in calls if len(call) == 1]
    assert (report.failed, report.given_back) == (len(alone), 20_000 - len(alone))
    assert report.error is not None


def test_halves_when_asked_to_stop_leave_the_rest_untried() -> None:
    report, calls = processed(8, {0}, most=3)

    assert calls == [list(range(8)), [0, 1, 2, 3], [0, 1]]
    assert (report.done, report.failed, report.given_back) == (0, 0, 8)
