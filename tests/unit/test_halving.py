"""How the tasks are found that a handler fails at, among those that it failed at together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tubeq_spark import FailedTasks
from tubeq_spark.model.failures import PATIENCE
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from tubeq_spark import Batch
    from tubeq_spark.testing import InMemoryTube


class Handler:
    """Fails at each call with one of the bad tasks, and from some call on at all."""

    def __init__(self, bad: Collection[int], broken_from: int = 1_000_000) -> None:
        self.bad = frozenset(bad)
        self.broken_from = broken_from
        self.calls: list[list[int]] = []

    def __call__(self, table: pa.Table) -> None:
        part = numbers(table)
        self.calls.append(part)
        if len(self.calls) >= self.broken_from or self.bad.intersection(part):
            raise ValueError(*part)

    @property
    def done(self) -> list[int]:
        """What was called last without an error."""
        return sorted(n for call in self.calls if not self.bad.intersection(call) for n in call)


def numbers(table: pa.Table) -> list[int]:
    """The payloads of tasks."""
    return [int(text) for text in table.column("data").to_pylist()]


@pytest.fixture
def tube() -> Iterator[InMemoryTube]:
    with InMemoryQueue() as queue:
        yield queue.create_tube("t", "fifottl", ttr=600)


def batch_of(tube: InMemoryTube, count: int) -> Batch:
    """A batch of tasks with the payloads 0, 1, 2, ..."""
    tube.put_arrow(pa.table({"data": [str(number) for number in range(count)]}))
    return tube.take_arrow(count)


def failed(tube: InMemoryTube) -> dict[int, str]:
    """The errors of the tasks that have failed, by their payloads."""
    return {task.data: task.error for task in tube.take_many(20_000) if task.error is not None}


@pytest.mark.parametrize(
    ("count", "bad"), [(2, {0}), (2, {1}), (3, {1}), (100, {0, 99}), (1_000, {17, 18, 600})]
)
def test_halves_when_some_tasks_are_bad_find_exactly_these(
    tube: InMemoryTube, count: int, bad: set[int]
) -> None:
    handler = Handler(bad)

    report = batch_of(tube, count).process(handler)

    assert (report.done, report.failed) == (count - len(bad), len(bad))
    assert (report.given_back, report.error) == (0, None)
    errors = failed(tube)
    assert {number: text.splitlines()[0] for number, text in errors.items()} == {
        number: f"ValueError: {number}" for number in bad
    }
    # Each innocent task is in one call that succeeds, and no call is made twice.
    assert handler.done == [number for number in range(count) if number not in bad]
    assert len({tuple(call) for call in handler.calls}) == len(handler.calls)


def test_halves_when_one_of_many_is_bad_need_two_calls_a_level(tube: InMemoryTube) -> None:
    handler = Handler({123})

    batch_of(tube, 2**10).process(handler)

    assert len(handler.calls) == 1 + 2 * 10


def test_halves_when_the_handler_is_broken_are_given_up(tube: InMemoryTube) -> None:
    handler = Handler(range(20_000))

    report = batch_of(tube, 20_000).process(handler)

    assert len(handler.calls) == PATIENCE
    alone = [part[0] for part in handler.calls if len(part) == 1]
    assert (report.failed, report.given_back) == (len(alone), 20_000 - len(alone))
    assert sorted(failed(tube)) == sorted(alone)
    assert report.error is not None


def test_halves_when_asked_to_stop_leave_the_rest_untried(tube: InMemoryTube) -> None:
    handler = Handler({0})

    report = batch_of(tube, 8).process(handler, stop=lambda: len(handler.calls) == 3)

    assert handler.calls == [list(range(8)), [0, 1, 2, 3], [0, 1]]
    assert (report.done, report.failed, report.given_back) == (0, 0, 8)


def test_halves_when_an_error_says_nothing_of_the_tasks_raise_it(tube: InMemoryTube) -> None:
    handler = Handler({0})
    batch = batch_of(tube, 4)

    with pytest.raises(ValueError, match="0"):
        batch.process(handler, raises=(ValueError,))

    assert len(handler.calls) == 1


def test_halves_when_tasks_cannot_be_read_raise_that_error_and_use_up_no_attempt(
    tube: InMemoryTube, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, batch = Handler({0}), batch_of(tube, 4)

    def read(*_: Any) -> Any:
        msg = "503"
        raise OSError(msg)

    monkeypatch.setattr("tubeq_spark.batch.part_of", read)
    with pytest.raises(OSError, match="503"):
        batch.process(handler)

    assert handler.calls == [[0, 1, 2, 3]]
    assert [task.attempts for task in tube.take_many(4)] == [1] * 4


def test_halves_when_a_call_names_failed_tasks_have_these(tube: InMemoryTube) -> None:
    def handler(table: pa.Table) -> FailedTasks:
        if len(table) > 2:
            raise OSError
        return FailedTasks({table.column("task_id")[0].as_py(): "first"})

    report = batch_of(tube, 4).process(handler)

    assert (report.done, report.failed, report.error) == (2, 2, None)
    assert failed(tube) == {0: "first", 2: "first"}
