"""How many calls it takes to find the tasks that a handler fails at, among those that it failed at together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tubeq_spark.model.failures import PATIENCE
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark import BatchReport


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
