"""A handler names the tasks of a batch that failed, and the batch acks all others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import calls, counts, data_of
from tubeq_spark import (
    Batch,
    BatchReport,
    Bury,
    FailedTasks,
    InvalidOptionError,
    NotTakenError,
    PutItem,
    StoreError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.acceptance.support import NewTube, Versions
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

TTR = 60.0


class Handler:
    """Works on rows, and fails at those that are bad."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad
        self.batches: list[list[int]] = []

    def __call__(self, table: pa.Table) -> None:
        numbers = [json.loads(text) for text in table["data"].to_pylist()]
        self.batches.append(numbers)
        wrong = [number for number in numbers if number in self.bad]
        if wrong:
            msg = f"{wrong[0]} is bad"
            raise ValueError(msg)


def by_data(batch: Batch) -> dict[int, int]:
    """The ids of a batch by the payloads."""
    return {json.loads(row["data"]): row["task_id"] for row in batch.table.to_pylist()}


def taken(tube: Tube, count: int) -> Batch:
    tube.put_many(range(count))
    return tube.take_arrow(count)


def data_in(tube: Tube, state: str) -> list[Any]:
    return data_of(tube.tasks_by_state(state))


# -- what a program says of single tasks -------------------------------------------------------------


def test_block_that_names_failed_tasks_releases_these_and_acks_the_rest(
    new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifottl", max_attempts=2)

    for left in ([1, 3], []):
        with taken(tube, 4) if left else tube.take_arrow(4) as batch:
            ids = by_data(batch)
            raise FailedTasks({ids[1]: "no price", ids[3]: ValueError("bad")})
        assert data_in(tube, "r") == left

    assert data_in(tube, "!") == [1, 3]
    assert counts(queue, tube) == {"buried": 2, "done": 2, "total": 2}
    assert {e: n for e, n in calls(queue, tube).items() if e != "put"} == (
        {"take": 6, "ack": 2, "release": 4, "bury": 2}
    )


def test_block_that_names_tasks_that_are_settled_lets_the_error_pass(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    batch = taken(tube, 2)
    ids = by_data(batch)
    batch.ack([ids[0]])
    with pytest.raises(FailedTasks), batch:
        raise FailedTasks({ids[0]: "why"})
    # Nobody knows whether the other one is done.
    assert [task.attempts for task in tube.tasks_by_state("r")] == [0]
    with tube.take_arrow(1):
        raise FailedTasks({})


@pytest.mark.parametrize("reads", [True, False])
def test_block_that_names_tasks_of_another_batch_lets_the_error_reach_that_batch(
    new_tube: NewTube, queue: Queue, reads: bool
) -> None:
    orders, mails = new_tube("fifottl", max_attempts=1), new_tube("fifottl", max_attempts=1)
    first = orders.put_many(["a", "b"])[0].task_id
    mails.put("c")

    with orders.take_arrow(2), mails.take_arrow(1) as inner:
        assert not reads or inner.table.num_rows == 1
        raise FailedTasks({first: "no price"})

    assert data_in(orders, "!") == ["a"]
    assert [task.error for task in orders.tasks_by_state("!")] == ["no price"]
    assert counts(queue, orders) == {"buried": 1, "done": 1, "total": 1}
    # Nobody knows whether the tasks of the inner batch are done: they come again, with no attempt used.
    assert [(task.data, task.attempts, task.error) for task in mails.tasks_by_state("r")] == (
        [("c", 0, None)]
    )


@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
def test_fail_releases_tasks_with_their_reasons_and_buries_on_demand(
    new_tube: NewTube, queue: Queue, type_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    tube = new_tube(type_name)
    tube.put_many([PutItem(n, utube=n) if type_name == "utubettl" else n for n in range(6)])
    batch = tube.take_arrow(6)
    ids = by_data(batch)

    assert batch.fail({ids[0]: "no price", ids[1]: Bury("never")}) == 2
    assert batch.fail(FailedTasks({ids[2]: OSError("down")}), delay=5) == 1
    rows = pa.table({"task_id": [ids[3], ids[4]], "error": ["bad", None]})
    assert batch.fail(rows) == 1
    assert batch.fail({}) == 0
    assert batch.ack() == 2

    assert data_in(tube, "r") == [0, 3]
    assert data_in(tube, "~") == [2]
    assert data_in(tube, "!") == [1]
    assert f"task {ids[0]} failed: no price" in caplog.text
    assert [task.error for task in tube.tasks_by_state("r")] == ["no price", "bad"]
    assert [str(task.error).splitlines()[0] for task in tube.tasks_by_state("!")] == ["Bury: never"]
    assert tube.kick(None, where="error LIKE 'Bury%'") == 1


def test_fail_when_reasons_are_bad_or_of_other_tasks_writes_nothing(
    fifottl: Tube, versions: Versions
) -> None:
    batch = taken(fifottl, 3)
    ids = by_data(batch)
    # The first error in a tube adds columns.
    assert batch.fail({ids[2]: "why"}) == 1
    before = versions()

    for bad in (
        {ids[0]: 5},
        {"x": "why"},
        [ids[0]],
        "why",
        None,
        pa.table({"task_id": [ids[0]]}),
        pa.table({"task_id": ["x"], "error": ["y"]}),
        pa.table({"task_id": [1], "error": [2]}),
    ):
        with pytest.raises(InvalidOptionError):
            batch.fail(bad)
    for delay in (-1, "1"):
        with pytest.raises(InvalidOptionError, match="delay"):
            batch.fail({ids[0]: "why"}, delay=delay)  # type: ignore[arg-type]
    for strange in (5, -1, 2**63):
        with pytest.raises(NotTakenError, match="not in the batch"):
            batch.fail({ids[0]: "why", strange: "why"})
    without_id = pa.array([ids[0], None], pa.int64())
    with pytest.raises(NotTakenError, match="not in the batch"):
        batch.fail(pa.table({"task_id": without_id, "error": ["why", "why"]}))
    with pytest.raises(InvalidOptionError, match="delay"):
        batch.process(lambda _: pytest.fail("called"), delay=-1)
    for reasons in ({1: 5}, {"x": "why"}, [1]):
        with pytest.raises(InvalidOptionError):
            FailedTasks(reasons)  # type: ignore[arg-type]

    assert versions() == before
    assert batch.release() == 2


# -- process -----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_process_of_a_batch_when_a_handler_names_failed_tasks_acks_the_rest(
    new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifottl")
    batch = taken(tube, 6)
    ids = by_data(batch)
    reasons = {ids[0]: "bad", ids[1]: Bury("never"), 5: "no task"}

    assert batch.process(lambda _: FailedTasks(reasons), delay=9) == BatchReport(4, 2, 1)

    assert counts(queue, tube) == {"delayed": 1, "buried": 1, "done": 4, "total": 2}
    assert batch.process(lambda _: pytest.fail("nothing is left")) == BatchReport()


def test_process_of_a_batch_when_an_error_says_nothing_of_the_tasks_raises_it(
    fifottl: Tube,
) -> None:
    handler = Handler(0)

    def fail() -> None:
        with taken(fifottl, 4) as batch:
            batch.process(handler, raises=(ValueError,))

    with pytest.raises(ValueError, match="0 is bad"):
        fail()

    assert len(handler.batches) == 1
    assert [task.attempts for task in fifottl.tasks_by_state("r")] == [1] * 4


def test_process_of_a_batch_when_its_calls_take_long_renews_the_leases(
    new_tube: NewTube, clock: ManualClock, queue: Queue
) -> None:
    tube = new_tube("fifottl", ttr=TTR, ttl=3_600)
    handler = Handler(5)

    def slow(table: pa.Table) -> None:
        clock.advance(0.9 * TTR * table.num_rows / 8)
        handler(table)

    assert taken(tube, 8).process(slow) == BatchReport(7, 1)

    # Longer than the ttr in all, and neither ttr nor ttl are others.
    (task,) = tube.tasks_by_state("r")
    assert (task.data, task.ttr, task.ttl) == (5, TTR, 3_600)
    assert "touch" not in calls(queue, tube)
    assert "renew" not in queue.statistics(tube.name)["calls"]


def test_process_of_a_batch_when_its_lease_ends_says_not_taken_and_acks_nothing(
    new_tube: NewTube, clock: ManualClock, queue: Queue
) -> None:
    tube = new_tube("fifottl", ttr=TTR)

    for handler in (Handler(), Handler(1)):
        batch = taken(tube, 2)

        def dawdle(table: pa.Table, handler: Handler = handler) -> None:
            clock.advance(TTR)
            handler(table)

        with pytest.raises(NotTakenError):
            batch.process(dawdle)
        assert len(handler.batches) == 1
        assert counts(queue, tube) == {"ready": 2, "total": 2}
        tube.truncate()


@pytest.mark.parametrize(("halves", "fails_at"), [(True, 1), (True, 3), (False, 1)])
def test_process_of_a_batch_when_its_tasks_cannot_be_read_raises_and_blames_no_task(
    new_tube: NewTube, monkeypatch: pytest.MonkeyPatch, halves: bool, fails_at: int
) -> None:
    tube = new_tube("fifottl", max_attempts=2)
    handler, reads = Handler(3), 0
    table = Batch.table

    def read(batch: Batch) -> pa.Table:
        nonlocal reads
        reads += 1
        if reads == fails_at:
            msg = "503"
            raise StoreError(msg, passes=True)
        return table.fget(batch)  # type: ignore[attr-defined]

    def process() -> None:
        with taken(tube, 4) as batch:
            batch.process(handler, halves=halves)

    monkeypatch.setattr(Batch, "table", property(read))
    with pytest.raises(StoreError, match="503"):
        process()

    assert len(handler.batches) == fails_at - 1
    assert [(task.data, task.attempts, task.error) for task in tube.tasks_by_state("r")] == [
        (n, 0, None) for n in range(4)
    ]


# -- failed tasks in a DataFrame ---------------------------------------------------------------------

#: Rows that name failed tasks by SQL over a batch, where the task `bad` is last in whatever order.
ROWS = {
    "one task has many reasons": "SELECT task_id, explode(split('a b c d e f', ' ')) AS error FROM batch "
    "WHERE data = '0' UNION ALL SELECT task_id, 'bad' FROM batch WHERE data = '2'",
    "tasks of other batches have failed before": "SELECT id AS task_id, 'old' AS error FROM range(9) "
    "UNION ALL SELECT task_id, 'bad' FROM batch WHERE data IN ('0', '2')",
}


@pytest.mark.thorough
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_process_of_a_batch_when_more_rows_name_failed_tasks_than_it_has_acks_none_of_these(
    spark: SparkSession, new_tube: NewTube, rows: str
) -> None:
    tube = new_tube("fifo")
    tube.put_many(range(3))
    text = rows.replace("batch", "{batch}")

    report = tube.take_df(3).process(lambda df: spark.sql(text, batch=df))

    assert (report.done, report.failed) == (1, 2)
    assert data_in(tube, "r") == [0, 2]
