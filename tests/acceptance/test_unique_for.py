"""Tubes with `unique_for`: the key of a task stays in use for a while after the task has gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import counts, data_of, ids_of, take
from tubeq_spark import PutItem, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.acceptance.support import Engine, NewTube
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock

#: Seconds for which a key stays in use, and of a ttl.
KEPT, SPAN = 100, 10
#: More tasks than a statement names one by one.
MANY = 450


def keyed(*keys: str | None) -> list[PutItem]:
    """Items whose data is their key."""
    return [PutItem(key, unique=key) for key in keys]


def put(tube: Tube, key: str, data: str = "again", **options: Any) -> Task:
    task = tube.put(data, unique=key, **options)
    assert task is not None
    return task


def assert_kept(tube: Tube, clock: ManualClock, *keys: str, seconds: float = KEPT) -> None:
    """The keys are in use for so many seconds more, and then free."""
    clock.advance(seconds - 1)
    for key in keys:
        task = put(tube, key)
        assert (task.state, task.data, task.unique) == (TaskState.DONE, None, key)
    clock.advance(1)
    for key in keys:
        assert put(tube, key).state is TaskState.READY


def test_task_when_its_key_is_kept_leaves_no_error(new_tube: NewTube) -> None:
    tube = new_tube("fifottl", unique_for=KEPT)
    put(tube, "a")
    task = take(tube)
    tube.release(task.task_id, error="no mailbox ann@example.org")

    tube.delete(task.task_id)

    again = put(tube, "a")
    assert (again.state, again.data, again.error) == (TaskState.DONE, None, None)


def _ack(tube: Tube) -> None:
    tube.ack(take(tube).task_id)
    tube.ack(take(tube).task_id)


def _ack_many(tube: Tube) -> None:
    tube.ack_many(ids_of(tube.take_many(2)))


def _ack_some(tube: Tube) -> None:
    tasks = tube.take_many(3)
    tube.ack_many(ids_of(tasks[:2]))
    tube.release(tasks[2].task_id)


def _exchange(tube: Tube) -> None:
    first = take(tube)
    (second,) = tube.exchange(ack=[first.task_id], take=1)
    (third,) = tube.exchange(ack=[second.task_id], take=1)
    tube.release(third.task_id)


def _exchange_some(tube: Tube) -> None:
    first, second = tube.take_many(2)
    (third,) = tube.exchange(ack=[first.task_id], take=1)
    tube.ack(second.task_id)
    tube.release(third.task_id)


def _batch(tube: Tube) -> None:
    tube.take_arrow(2).ack()


def _batch_some(tube: Tube) -> None:
    batch = tube.take_arrow(3)
    ids = batch.table.column("task_id").to_pylist()
    batch.ack(ids[:2])
    batch.release()


def _delete(tube: Tube) -> None:
    tube.delete(take(tube).task_id)
    (first, *_) = tube.tasks_by_state("r")
    tube.delete(first.task_id)


ENDS = [_ack, _ack_many, _ack_some, _exchange, _exchange_some, _batch, _batch_some, _delete]


@pytest.mark.parametrize("type_name", ["fifo", "utubettl"])
@pytest.mark.parametrize("end", ENDS)
def test_put_when_the_task_with_the_key_has_ended_adds_nothing_for_unique_for(
    new_tube: NewTube,
    queue: Queue,
    clock: ManualClock,
    type_name: str,
    end: Callable[[Tube], None],
) -> None:
    tube = new_tube(type_name, unique_for=KEPT)
    timed = type_name == "utubettl"
    tasks = tube.put_many(
        PutItem(key, unique=None if key == "plain" else key, utube=key if timed else None)
        for key in ("a", "b", "plain")
    )

    end(tube)

    assert put(tube, "a").task_id == tasks[0].task_id
    assert data_of(tube.tasks_by_state("r")) == ["plain"]
    assert counts(queue, tube)["done"] == 2
    assert_kept(tube, clock, "a", "b")
    assert counts(queue, tube)["done"] == 2


@pytest.mark.parametrize(
    ("type_name", "options"),
    [
        ("fifottl", {"most_taken": 2}),
        ("fifottl", {"aging": SPAN}),
        ("utubettl", {"parallel": 2}),
        ("utubettl", {"order": "fair"}),
        ("limfifottl", {"capacity": 9}),
    ],
)
@pytest.mark.parametrize("end", [_exchange, _batch, _ack_many])
def test_put_when_the_task_has_ended_in_a_tube_with_limits_adds_nothing_for_unique_for(
    new_tube: NewTube,
    queue: Queue,
    clock: ManualClock,
    type_name: str,
    options: dict[str, Any],
    end: Callable[[Tube], None],
) -> None:
    tube = new_tube(type_name, unique_for=KEPT, **options)
    timed = type_name == "utubettl"
    tube.put_many(
        PutItem(key, unique=None if key == "plain" else key, utube=key if timed else None)
        for key in ("a", "b", "plain")
    )

    end(tube)

    assert data_of(tube.tasks_by_state("r")) == ["plain"]
    assert counts(queue, tube)["done"] == 2
    assert_kept(tube, clock, "a", "b")


def test_put_when_the_task_has_ended_returns_it_as_done_without_its_data(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", unique_for=KEPT)
    (first,) = tube.put_many([PutItem({"n": 1}, unique="k", pri=5)])
    tube.ack(take(tube).task_id)

    task = put(tube, "k")

    assert (task.task_id, task.state, task.data) == (first.task_id, TaskState.DONE, None)
    assert (task.pri, task.unique, task.owner) == (5, "k", None)
    assert tube.put_many(keyed("k", "b", "k"))[0::2] == [task, task]
    assert data_of(tube.tasks_by_state("r")) == ["b"]


@pytest.mark.thorough
def test_ack_when_its_tube_has_unique_for_is_one_commit_and_a_put_of_a_kept_key_none(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    tube.put_many(keyed("a", "b", "c", None))
    task = take(tube)
    before = versions()

    tube.ack(task.task_id)
    assert versions()[tube.name] == before[tube.name] + 1
    put(tube, "a")
    assert versions()[tube.name] == before[tube.name] + 1

    (held,) = tube.take_many(1)
    before = versions()
    (held,) = tube.exchange(ack=[held.task_id], take=1)
    assert versions()[tube.name] == before[tube.name] + 1
    tube.delete(held.task_id)
    assert versions()[tube.name] == before[tube.name] + 2
    with tube.take_arrow(9):
        before = versions()
    assert versions()[tube.name] == before[tube.name] + 1


@pytest.mark.parametrize("swept", [True, False])
def test_put_when_time_has_ended_the_task_counts_from_the_put(
    new_tube: NewTube, queue: Queue, clock: ManualClock, *, swept: bool
) -> None:
    tube = new_tube("fifottl", unique_for=KEPT, ttr=1)
    tube.put_many([PutItem(key, unique=key, ttl=SPAN) for key in "ab"] + [PutItem("c", ttl=SPAN)])
    take(tube)
    clock.advance(SPAN + 5)
    if swept:
        queue.sweep()

    assert put(tube, "a").state is TaskState.DONE
    assert counts(queue, tube)["done"] == 3
    assert_kept(tube, clock, "a", "b", seconds=KEPT - SPAN - 5)


def test_put_when_the_task_lives_longer_than_unique_for_returns_it(
    new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", unique_for=KEPT)
    first = put(tube, "a")
    clock.advance(KEPT + 1)
    queue.sweep()

    assert put(tube, "a").task_id == first.task_id
    tube.ack(take(tube).task_id)

    assert put(tube, "a").state is TaskState.READY


def test_put_when_the_task_is_buried_released_or_kicked_returns_it_as_it_is(
    new_tube: NewTube,
) -> None:
    tube = new_tube("fifottl", unique_for=KEPT)
    tube.put_many(keyed("a", "b"))
    tube.bury(take(tube).task_id)
    tube.release(take(tube).task_id)

    assert [(t.state, t.data) for t in tube.put_many(keyed("a", "b"))] == [
        (TaskState.BURIED, "a"),
        (TaskState.READY, "b"),
    ]
    tube.kick()
    assert put(tube, "a").state is TaskState.READY


def test_truncate_when_keys_are_kept_frees_them_and_keeps_the_count_of_done(
    new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    tube.put_many(keyed("a", "b", "c"))
    tube.take_arrow(2).ack()

    tube.truncate()

    assert counts(queue, tube)["done"] == 2
    assert [task.state for task in tube.put_many(keyed("a", "b", "c"))] == [TaskState.READY] * 3


def test_drop_when_keys_are_kept_frees_them(
    engine: Engine, queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    tube.put_many(keyed("a"))
    tube.ack(take(tube).task_id)
    tube.drop()

    again = engine.create_tube(queue, tube.name, "fifo", unique_for=KEPT)

    assert put(again, "a").state is TaskState.READY
    assert "done" not in counts(queue, again)


@pytest.mark.thorough
def test_sweep_when_kept_keys_are_over_removes_them_and_the_count_of_done_stays(
    new_tube: NewTube, queue: Queue, clock: ManualClock, versions: Callable[[], dict[str, int]]
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


def test_sweep_when_kept_keys_are_in_many_segments_merges_them(
    new_tube: NewTube, queue: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    monkeypatch.setattr(tube._ctx.queue, "config", replace(queue._context.config, fold_segments=3))
    many = 5
    put(tube, "0")
    for key in range(1, many):
        put(tube, str(key))
    for _ in range(many):
        tube.ack(take(tube).task_id)
    reader = tube._ctx.reader
    assert len(reader.kept_keys(tube._ctx.queue.now_us())) == many

    queue.sweep()

    assert [(each.rows, each.over) for each in reader.kept_keys(tube._ctx.queue.now_us())] == [
        (many, 0)
    ]
    assert counts(queue, tube)["done"] == many
    assert_kept(tube, clock, "0", str(many - 1))


@pytest.mark.without_spark
def test_ack_when_there_are_many_keys_keeps_each(
    new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    names = [str(n) for n in range(MANY)]
    tube.put_many(keyed(*names))
    tube.ack_many(ids_of(tube.take_many(MANY)))

    tasks = tube.put_many([*keyed(*names), "plain"])

    assert {task.state for task in tasks[:-1]} == {TaskState.DONE}
    assert tube.put_arrow(pa.table({"data": ['"x"'] * MANY, "unique": names})).count == 0
    assert counts(queue, tube)["done"] == MANY
    assert data_of(tube.tasks_by_state("r")) == ["plain"]


def test_put_arrow_when_keys_are_kept_does_not_count_their_rows(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    tube.put_many(keyed("a", "b"))
    tube.ack(take(tube).task_id)
    rows = pa.table({"data": ['"x"', '"y"', '"z"', '"n"'], "unique": ["a", "b", "c", None]})

    assert tube.put_arrow(rows).count == 2
    clock.advance(KEPT)
    assert tube.put_arrow(rows.slice(0, 3)).count == 1


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


def test_put_when_the_tube_has_a_schema_and_the_task_has_ended_returns_it_without_data(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifo", schema="url STRING, n INT", unique_for=KEPT)
    tube.put({"url": "a", "n": 1}, unique="a")
    tube.ack(take(tube).task_id)

    again = tube.put({"url": "b", "n": 2}, unique="a")

    assert again is not None
    assert (again.state, again.data) == (TaskState.DONE, None)
    clock.advance(KEPT)
    assert tube.put({"url": "b", "n": 2}, unique="a") != again


def test_put_when_the_tube_is_full_returns_the_ended_task_that_has_the_key(
    new_tube: NewTube,
) -> None:
    tube = new_tube("limfifottl", capacity=1, unique_for=KEPT)
    tube.put("a", unique="a")
    tube.ack(take(tube).task_id)
    tube.put("b", unique="b")

    assert tube.put("c", unique="c") is None
    assert put(tube, "a").state is TaskState.DONE


@pytest.mark.parametrize("seconds", [None, 0])
def test_put_when_unique_for_is_no_time_adds_a_task_as_soon_as_the_other_has_gone(
    new_tube: NewTube, seconds: float | None
) -> None:
    tube = new_tube("fifo", unique_for=seconds)
    tube.put("a", unique="k")
    tube.ack(take(tube).task_id)

    assert put(tube, "k", "b").data == "b"


def test_peek_and_df_of_a_kept_key_find_no_task(new_tube: NewTube, queue: Queue) -> None:
    tube = new_tube("fifo", unique_for=KEPT)
    (task,) = tube.put_many(keyed("a"))
    tube.ack(take(tube).task_id)

    assert list(tube.tasks_by_state("-")) == []
    assert counts(queue, tube) == {"done": 1}
    with pytest.raises(LookupError, match=str(task.task_id)):
        tube.peek(task.task_id)
