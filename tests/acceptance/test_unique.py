"""A tube never stores two tasks with one key, and `unique_for` keeps the key of an ended task in use.

The simulation puts keys in all orders of steps; here one reads which put returns which task, for each verb that puts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import all_tasks, counts, data_of, ids_of, take
from tubeq_spark import InvalidOptionError, PutItem, Queue, TaskState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.acceptance.support import NewTube, Versions
    from tubeq_spark import Task, Tube
    from tubeq_spark.testing import ManualClock

#: Seconds of a ttl, a ttr or a delay, and for which a key stays in use.
SPAN, KEPT = 10, 100
#: More keys than a statement names one by one.
MANY = 450


def keyed(*keys: str | None) -> list[PutItem]:
    """Items whose data is their key."""
    return [PutItem(key, unique=key) for key in keys]


def put(tube: Tube, key: str, data: str = "again", **options: Any) -> Task:
    return tube.put(data, unique=key, **options)


def rows(keys: list[str | int | None], **columns: list[Any]) -> pa.Table:
    """Rows whose data is their number."""
    data = [str(n) for n in range(len(keys))]
    return pa.table({"data": pa.array(data, pa.string()), "unique": keys, **columns})


# -- put -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "key"),
    [(5, "5"), (-7, "-7"), ("", ""), ("k" * 1_024, "k" * 1_024), ("漢'\\", "漢'\\")],
)
def test_put_when_its_key_is_a_text_or_an_integer_has_it_as_a_text(
    fifo: Tube, given: str | int, key: str
) -> None:
    first = fifo.put("a", unique=given)

    assert (first.unique, fifo.peek(first.task_id).unique) == (key, key)
    assert put(fifo, key).task_id == first.task_id
    assert take(fifo).unique == key


def test_put_when_the_tube_is_full_returns_a_task_that_has_the_key(new_tube: NewTube) -> None:
    tube = new_tube("limfifottl", capacity=2, unique_for=KEPT)
    tube.put_many(keyed("done"))
    tube.ack(take(tube).task_id)
    a, b, again = tube.put_many(keyed(*"aba"))

    assert again == a
    assert tube.put("x", unique="x") is None
    assert tube.put_many(keyed("a", "x")) == []
    assert tube.put_many(keyed("a", "b")) == [a, b]
    assert put(tube, "a", timeout=SPAN) == a
    assert put(tube, "done").state is TaskState.DONE
    assert data_of(all_tasks(tube)) == ["a", "b"]


@pytest.mark.parametrize("key", [True, 1.5, b"k", ["k"], "\ud800", "k" * 1_025, "ü" * 513])
def test_put_when_its_key_is_bad_is_refused_before_anything_is_written(
    fifo: Tube, versions: Versions, key: Any
) -> None:
    before = versions()

    with pytest.raises(InvalidOptionError, match="unique"):
        fifo.put("a", unique=key)
    with pytest.raises(InvalidOptionError, match=r"items\[1\]: unique"):
        fifo.put_many([PutItem("a", unique="k"), PutItem("b", unique=key)])
    if key not in (["k"], "\ud800"):
        with pytest.raises(InvalidOptionError, match="unique"):
            fifo.put_arrow(pa.table({"data": ["1"], "unique": [key]}))

    assert versions() == before


# -- after the end of a task -----------------------------------------------------------------------


@pytest.mark.parametrize("kept", [KEPT, 0, None])
def test_put_when_the_task_with_the_key_has_ended_adds_one_once_unique_for_is_over(
    new_tube: NewTube, queue: Queue, clock: ManualClock, kept: float | None
) -> None:
    tube = new_tube("fifo", unique_for=kept)
    tasks = tube.put_many(keyed("a", "b", None))

    tube.ack(take(tube).task_id)
    tube.delete(tasks[1].task_id)

    assert counts(queue, tube) == {"ready": 1, "done": 2, "total": 1}
    if kept:
        assert put(tube, "a").task_id == tasks[0].task_id
        clock.advance(KEPT - 1)
        kept_keys = [
            (task.state, task.data, task.unique) for task in tube.put_many(keyed("a", "b"))
        ]
        assert kept_keys == [(TaskState.DONE, None, "a"), (TaskState.DONE, None, "b")]
        assert counts(queue, tube)["done"] == 2
        clock.advance(1)
        assert {task.state for task in tube.put_many(keyed("a", "b"))} == {TaskState.READY}
    else:
        assert put(tube, "a").task_id > tasks[2].task_id


def test_put_when_the_task_has_ended_returns_it_as_done_without_data_and_error(
    new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifottl", unique_for=KEPT, schema="url STRING, n INT")
    (first,) = tube.put_many([PutItem({"url": "a", "n": 1}, unique="k", pri=5)])
    tube.release(take(tube).task_id, error="no mailbox ann@example.org")
    tube.ack(take(tube).task_id)

    task = tube.put({"url": "b", "n": 2}, unique="k")

    assert (task.task_id, task.state, task.data) == (first.task_id, TaskState.DONE, None)
    assert (task.pri, task.unique, task.owner, task.error) == (5, "k", None, None)
    # No other verb knows it.
    assert list(tube.tasks_by_state("-")) == []
    assert counts(queue, tube) == {"done": 1}
    with pytest.raises(LookupError, match=str(task.task_id)):
        tube.peek(task.task_id)


@pytest.mark.nightly
def test_sweep_when_kept_keys_are_over_removes_them_and_the_count_of_done_stays(
    new_tube: NewTube, queue: Queue, clock: ManualClock, versions: Versions
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    tube.put_many(keyed("a", "b", "c"))
    tube.take_arrow(2).ack()
    queue.sweep()
    assert put(tube, "a").state is TaskState.DONE
    clock.advance(KEPT)

    assert queue.sweep().tubes[tube.name].removed == 3
    before = versions()
    assert queue.sweep().tubes[tube.name].removed == 0

    assert versions()[tube.name] == before[tube.name]
    assert counts(queue, tube)["done"] == 2
    assert put(tube, "a").state is TaskState.READY


def test_put_when_there_are_many_keys_adds_each_once_and_keeps_each(
    new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    names = [str(n) for n in range(MANY)]
    first = tube.put_many(keyed(*names[::2]))

    tasks = tube.put_many(keyed(*names))

    assert (data_of(tasks), tasks[::2]) == (names, first)
    tube.ack_many(ids_of(tube.take_many(MANY)))
    again = tube.put_many([*keyed(*names), "plain"])
    assert {task.state for task in again[:-1]} == {TaskState.DONE}
    assert tube.put_arrow(pa.table({"data": ['"x"'] * MANY, "unique": names})).count == 0
    assert counts(queue, tube)["done"] == MANY
    assert data_of(tube.tasks_by_state("r")) == ["plain"]


# -- put_arrow -------------------------------------------------------------------------------------


def test_put_arrow_when_keys_are_there_adds_the_others_once_each(
    new_tube: NewTube, versions: Versions
) -> None:
    tube = new_tube("fifo")
    put(tube, "b", "old")
    before = versions()[tube.name]

    result = tube.put_arrow(rows(["a", "b", None, "a", "c", None, "b"]))

    tasks = all_tasks(tube)
    found = [(task.data, task.unique) for task in tasks]
    assert found == [("old", "b"), (0, "a"), (2, None), (4, "c"), (5, None)]
    ids = (result.first_task_id, result.last_task_id)
    assert (result.count, *ids) == (4, tasks[1].task_id, tasks[4].task_id)
    assert versions()[tube.name] == before + 1
    assert tube.put_arrow(rows(["a", "b", "c"])).count == 0
    assert versions()[tube.name] == before + 1
    put(tube, "1")
    assert tube.put_arrow(rows([1, 2, None])).count == 2
    assert [task.unique for task in all_tasks(tube)][-2:] == ["2", None]


def test_put_arrow_when_a_life_or_a_kept_key_has_ended_adds_the_key_again(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", ttl=SPAN)
    kept = new_tube("fifo", unique_for=SPAN)
    for each in (tube, kept):
        each.put_arrow(rows(["a", "b"]))
    kept.ack(take(kept).task_id)
    assert kept.put_arrow(rows(["a", "b", "c"])).count == 1
    clock.advance(SPAN)

    assert kept.put_arrow(rows(["a", "b", "c"])).count == 1
    assert tube.put_arrow(rows(["b", "c"], utube=["u", "v"])).count == 2
    assert [task.unique for task in all_tasks(tube)] == ["b", "c"]


# -- put_df ----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_when_keys_are_there_adds_the_first_row_of_each_other_key_in_order(
    spark: SparkSession, new_tube: NewTube, versions: Versions
) -> None:
    tube = new_tube("utube")
    tube.put("old", unique="b")
    keys = ["a", "b", None, "a", "c", None, "b", "d"]
    df = spark.createDataFrame(
        [(str(n), key, n % 2) for n, key in enumerate(keys)],
        "data STRING, unique STRING, utube INT",
    ).repartition(3)
    before = versions()[tube.name]
    order = [row.data for row in df.collect()]

    result = tube.put_df(df)

    first = {key: next(d for d in order if keys[int(d)] == key) for key in "acd"}
    wanted = [d for d in order if keys[int(d)] is None or first.get(str(keys[int(d)])) == d]
    tasks = all_tasks(tube)
    assert [str(task.data) for task in tasks[1:]] == wanted
    assert (result.count, result.last_task_id) == (5, tasks[-1].task_id)
    assert versions()[tube.name] == before + 1
    assert tube.put_df(df.where("unique IS NOT NULL")).count == 0
    assert versions()[tube.name] == before + 1


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_when_its_own_key_was_put_before_adds_nothing(
    spark: SparkSession, new_tube: NewTube
) -> None:
    tube = new_tube("limfifottl", capacity=3)
    df = spark.createDataFrame([("1", 7), ("2", 7), ("3", None)], "data STRING, unique INT")

    assert tube.put_df(df, key="1").count == 2
    assert tube.put_df(df, key="1").count == 0
    assert tube.put_arrow(rows([None]), key="1").count == 0
    assert tube.put_df(df, key="2").count == 1
    assert tube.put_df(df.limit(2), key="3").count == 0
    with pytest.raises(InvalidOptionError, match="unique"):
        tube.put_df(df.selectExpr("data", "repeat('k', 1025) AS unique"))


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_when_keys_are_kept_does_not_count_their_rows(
    spark: SparkSession, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    tube.put_many(keyed("a", "b"))
    tube.ack(take(tube).task_id)
    df = spark.createDataFrame([("1", "a"), ("2", "b"), ("3", "c")], "data STRING, unique STRING")

    assert tube.put_df(df).count == 1
    clock.advance(KEPT)
    assert tube.put_df(df).count == 1
