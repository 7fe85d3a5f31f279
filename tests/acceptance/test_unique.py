"""Unique tasks: at most one stored task of a tube has a key, in whatever state it is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import WAIT, Changes, calls, data_of, ids_of, take
from tubeq_spark import (
    Driver,
    InvalidOptionError,
    PutItem,
    Queue,
    TaskState,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.acceptance.support import Engine, NewTube
    from tubeq_spark import Task, Tube
    from tubeq_spark.testing import ManualClock

#: Seconds of a ttl, a ttr or a delay.
SPAN = 10
#: More keys than a statement names one by one.
MANY = 450

BAD_KEYS = [True, 1.5, b"k", ["k"], {"k": 1}, "\ud800", "k" * 1_025, "ü" * 513]


def keyed(**options: Any) -> PutItem:
    """An item whose data is its key."""
    return PutItem(options["unique"], **options)


def all_tasks(tube: Tube) -> list[Task]:
    """The tasks of a tube in all states, by their ids."""
    found = [task for state in "rt!~" for task in tube.tasks_by_state(state)]
    return sorted(found, key=lambda task: task.task_id)


def rows(keys: list[str | int | None], **columns: list[Any]) -> pa.Table:
    """Rows whose data is their number."""
    data = [str(n) for n in range(len(keys))]
    return pa.table({"data": pa.array(data, pa.string()), "unique": keys, **columns})


def test_put_when_its_key_is_free_adds_a_task_that_has_it(fresh_tube: Tube) -> None:
    task = fresh_tube.put("a", unique="k")

    assert task is not None
    assert (task.unique, task.data) == ("k", "a")
    assert fresh_tube.peek(task.task_id).unique == "k"
    assert take(fresh_tube).unique == "k"


@pytest.mark.parametrize(
    ("given", "key"),
    [(5, "5"), (-7, "-7"), ("", ""), ("k" * 1_024, "k" * 1_024), ("漢'\\", "漢'\\")],
)
def test_put_when_its_key_is_a_text_or_an_integer_has_it_as_a_text(
    fifo: Tube, given: str | int, key: str
) -> None:
    first = fifo.put("a", unique=given)
    second = fifo.put("b", unique=key)

    assert first is not None
    assert second is not None
    assert (first.unique, second.task_id) == (key, first.task_id)


def test_put_when_no_key_is_given_is_equal_to_no_other(fifo: Tube) -> None:
    fifo.put_many(["a", PutItem("a", unique=None), "a"], unique=None)

    assert data_of(all_tasks(fifo)) == ["a", "a", "a"]


def _taken(tube: Tube) -> TaskState:
    return take(tube).state


def _buried(tube: Tube) -> TaskState:
    return tube.bury(all_tasks(tube)[0].task_id).state


def _kicked(tube: Tube) -> TaskState:
    _buried(tube)
    tube.kick()
    return TaskState.READY


def _released(tube: Tube) -> TaskState:
    return tube.release(take(tube).task_id).state


@pytest.mark.parametrize(
    "becomes", [lambda _: TaskState.READY, _taken, _buried, _kicked, _released]
)
def test_put_when_a_task_in_whatever_state_has_the_key_returns_it_and_adds_nothing(
    new_tube: NewTube,
    versions: Callable[[], dict[str, int]],
    becomes: Callable[[Tube], TaskState],
) -> None:
    tube = new_tube("fifottl")
    first = tube.put("a", unique="k")
    assert first is not None
    state = becomes(tube)
    before = versions()

    second = tube.put("b", unique="k", pri=1)

    assert second == tube.peek(first.task_id)
    assert (second.state, second.data, second.unique) == (state, "a", "k")
    assert versions() == before
    assert data_of(all_tasks(tube)) == ["a"]


def test_put_when_a_delayed_task_has_the_key_returns_it(fifottl: Tube) -> None:
    first = fifottl.put("a", unique="k", delay=SPAN)

    assert fifottl.put("b", unique="k") == first


def test_put_when_the_lease_of_the_task_has_ended_returns_it_ready(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=SPAN)
    tube.put("a", unique="k")
    take(tube)
    clock.advance(SPAN)

    again = tube.put("b", unique="k")

    assert again is not None
    assert (again.state, again.data, again.attempts) == (TaskState.READY, "a", 1)


def _acked(tube: Tube) -> None:
    tube.ack(take(tube).task_id)


def _acked_as_a_batch(tube: Tube) -> None:
    with tube.take_arrow(9):
        pass


def _exchanged(tube: Tube) -> None:
    tube.exchange(ack=[take(tube).task_id], take=1)


def _deleted(tube: Tube) -> None:
    tube.delete(all_tasks(tube)[0].task_id)


@pytest.mark.parametrize(
    "end", [_acked, _acked_as_a_batch, _exchanged, _deleted, lambda tube: tube.truncate()]
)
def test_put_when_the_task_with_the_key_has_gone_adds_a_task(
    tube: Tube, end: Callable[[Tube], None]
) -> None:
    first = tube.put("a", unique="k")
    end(tube)

    second = tube.put("b", unique="k")

    assert first is not None
    assert second is not None
    assert second.task_id > first.task_id
    assert data_of(all_tasks(tube)) == ["b"]


@pytest.mark.parametrize("swept", [False, True])
def test_put_when_the_ttl_of_the_task_with_the_key_has_ended_adds_a_task(
    new_tube: NewTube, queue: Queue, clock: ManualClock, *, swept: bool
) -> None:
    tube = new_tube("fifottl", ttr=1)
    tube.put("a", unique="k", ttl=SPAN)
    clock.advance(SPAN)
    if swept:
        queue.sweep()

    second = tube.put("b", unique="k")
    third = tube.put("c", unique="k")

    assert (second, data_of(all_tasks(tube))) == (third, ["b"])
    assert calls(queue, tube)["ttl"] == 1
    assert calls(queue, tube)["put"] == 2


def test_put_when_a_touch_came_before_the_end_of_the_ttl_returns_the_task(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    tube.put("a", unique="k", ttl=SPAN)
    tube.touch(take(tube).task_id, SPAN)
    clock.advance(SPAN)

    again = tube.put("b", unique="k")

    assert again is not None
    assert (again.state, again.data) == (TaskState.TAKEN, "a")


def test_put_many_when_some_keys_are_there_returns_tasks_in_the_order_of_the_items(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo")
    (b,) = tube.put_many([keyed(unique="b")])
    before = versions()[tube.name]

    tasks = tube.put_many([keyed(unique=key) for key in "abcab"] + ["x"])

    assert data_of(tasks) == ["a", "b", "c", "a", "b", "x"]
    assert tasks[1] == tasks[4] == b
    assert tasks[0] == tasks[3]
    new = ids_of([tasks[0], tasks[2], tasks[5]])
    assert new == sorted(new)
    assert data_of(all_tasks(tube)) == ["b", "a", "c", "x"]
    assert versions()[tube.name] == before + 1


def test_put_many_when_a_key_is_for_all_items_adds_the_first(fifo: Tube) -> None:
    tasks = fifo.put_many(["a", "b", PutItem("c", unique="other"), "d"], unique="k")

    assert data_of(tasks) == ["a", "a", "c", "a"]
    assert data_of(all_tasks(fifo)) == ["a", "c"]


@pytest.mark.without_spark
def test_put_many_when_there_are_many_keys_adds_each_once(fifo: Tube) -> None:
    first = fifo.put_many([keyed(unique=str(n)) for n in range(0, MANY, 2)])

    tasks = fifo.put_many([keyed(unique=str(n)) for n in range(MANY)])

    assert data_of(tasks) == [str(n) for n in range(MANY)]
    assert tasks[::2] == first
    assert len(all_tasks(fifo)) == MANY


def test_put_when_the_key_is_there_counts_and_tells_only_of_what_it_adds(
    new_tube: NewTube, queue: Queue
) -> None:
    tube, changes = new_tube("fifo"), Changes()
    tube.on_task_change(changes)

    tube.put_many([keyed(unique=key) for key in "aab"])
    tube.put("b", unique="b")

    assert calls(queue, tube)["put"] == 2
    assert [data for _, data, _ in changes.drain()] == ["a", "b"]


def test_put_when_another_tube_has_the_key_adds_a_task(new_tube: NewTube) -> None:
    one, other = new_tube("fifo"), new_tube("utube")

    assert one.put("a", unique="k") != other.put("b", unique="k", utube="u")
    assert data_of(all_tasks(other)) == ["b"]


def test_put_when_another_sub_queue_has_the_key_returns_that_task(new_tube: NewTube) -> None:
    tube = new_tube("utube")
    first = tube.put("a", utube="u", unique="k")

    assert tube.put("b", utube="v", unique="k") == first


def test_put_when_the_tube_was_dropped_and_created_again_adds_a_task(
    engine: Engine, queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    tube.put("a", unique="k")
    tube.drop()
    again = engine.create_tube(queue, tube.name, "fifo")

    again.put("b", unique="k")
    again.put("c", unique="k")
    queue.sweep()
    again.put("d", unique="k")

    assert data_of(all_tasks(again)) == ["b"]
    with pytest.raises(TubeNotFoundError):
        tube.put("e", unique="k")


def test_put_when_the_tube_is_full_returns_a_task_that_has_the_key(new_tube: NewTube) -> None:
    tube = new_tube("limfifottl", capacity=2)
    a = tube.put("a", unique="a")
    b, again = tube.put_many([keyed(unique="b"), keyed(unique="a")])

    assert again == a
    assert tube.put("x", unique="x") is None
    assert tube.put_many([keyed(unique="a"), keyed(unique="x")]) == []
    assert tube.put_many([keyed(unique="a"), keyed(unique="b")]) == [a, b]
    assert tube.put("y", unique="a", timeout=SPAN) == a
    assert data_of(all_tasks(tube)) == ["a", "b"]


def test_put_when_the_tube_has_a_schema_adds_each_key_once(new_tube: NewTube) -> None:
    tube = new_tube("fifo", schema="url STRING, n INT")

    tube.put({"url": "a", "n": 1}, unique="k")
    again = tube.put({"url": "b", "n": 2}, unique="k")

    assert again is not None
    assert again.data == {"url": "a", "n": 1}


@pytest.mark.parametrize("key", BAD_KEYS)
def test_put_when_its_key_is_bad_is_refused_before_anything_is_written(
    new_tube: NewTube, versions: Callable[[], dict[str, int]], key: Any
) -> None:
    tube = new_tube("utubettl")
    before = versions()

    with pytest.raises(InvalidOptionError, match="unique"):
        tube.put("a", unique=key)
    with pytest.raises(InvalidOptionError, match=r"items\[1\]: unique"):
        tube.put_many([PutItem("a", unique="k"), PutItem("b", unique=key)])

    assert versions() == before


def test_put_when_a_driver_is_the_programs_own_has_keys(queue: Queue, new_tube: NewTube) -> None:
    if "plain" not in queue._context.drivers:
        queue.register_driver(
            "plain", Driver("", frozenset({"temporary"}), frozenset(), ("task_id",), timed=False)
        )
    tube = new_tube("plain")

    assert tube.put("a", unique="k") == tube.put("b", unique="k")


def test_put_when_threads_put_one_key_at_once_adds_one_task(new_tube: NewTube) -> None:
    tube, together = new_tube("fifo"), threading.Barrier(4)

    def put(n: int) -> list[Task]:
        together.wait(WAIT)
        return tube.put_many([PutItem(n, unique="k"), PutItem(n, unique=f"own {n}")])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(put, range(4)))

    assert len({tasks[0] for tasks in found}) == 1
    assert len(all_tasks(tube)) == 5


def test_put_when_its_key_is_the_first_of_the_tube_adds_columns_and_commits_once_afterwards(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo")
    tube.put("plain")
    before = versions()

    tube.put("a", unique="a")
    tube.put("b", unique="b")

    after = versions()
    assert after[tube.name] - before[tube.name] in (2, 3, 4)
    tube.put("c", unique="c")
    assert versions()[tube.name] == after[tube.name] + 1
    assert data_of(all_tasks(tube)) == ["plain", "a", "b", "c"]


# -- put_arrow -------------------------------------------------------------------------------------


def test_put_arrow_when_keys_are_there_adds_the_others_once_each(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo")
    tube.put("old", unique="b")
    before = versions()[tube.name]

    result = tube.put_arrow(rows(["a", "b", None, "a", "c", None, "b"]))

    tasks = all_tasks(tube)
    assert [(task.data, task.unique) for task in tasks] == [
        ("old", "b"),
        (0, "a"),
        (2, None),
        (4, "c"),
        (5, None),
    ]
    assert (result.count, result.first_task_id, result.last_task_id) == (
        4,
        tasks[1].task_id,
        tasks[4].task_id,
    )
    assert versions()[tube.name] == before + 1
    assert tube.put_arrow(rows(["a", "b", "c"])).count == 0
    assert versions()[tube.name] == before + 1


def test_put_arrow_when_keys_are_integers_has_them_as_texts(fifo: Tube) -> None:
    fifo.put("a", unique=1)

    assert fifo.put_arrow(rows([1, 2, None])).count == 2
    assert [task.unique for task in all_tasks(fifo)] == ["1", "2", None]


def test_put_arrow_when_no_row_has_a_key_adds_all(fifo: Tube) -> None:
    assert fifo.put_arrow(rows([None, None])).count == 2


def test_put_arrow_when_its_own_key_was_put_before_adds_nothing(tube: Tube) -> None:
    assert tube.put_arrow(rows(["a", "b"]), key="1").count == 2
    tube.truncate()

    assert tube.put_arrow(rows(["a", "c"]), key="1").count == 0
    assert tube.put_arrow(rows(["a", "c"]), key="2").count == 2


@pytest.mark.parametrize("first", [[None, None], ["a", "b"]])
def test_put_arrow_when_its_own_key_was_put_before_adds_nothing_whether_rows_have_keys_or_not(
    new_tube: NewTube, first: list[str | int | None]
) -> None:
    tube = new_tube("fifo")
    tube.put_arrow(rows(first), key="1")

    assert tube.put_arrow(rows([None, None]), key="1").count == 0
    assert tube.put_arrow(rows(["c", None]), key="1").count == 0


def test_put_arrow_when_a_ttl_has_ended_adds_the_key_again(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", ttl=SPAN)
    tube.put_arrow(rows(["a", "b"], utube=["u", "v"]))
    clock.advance(SPAN)

    assert tube.put_arrow(rows(["b", "c"], utube=["u", "v"])).count == 2
    assert [task.unique for task in all_tasks(tube)] == ["b", "c"]


def test_put_arrow_when_the_capacity_is_enough_for_what_is_new_adds_it(new_tube: NewTube) -> None:
    tube = new_tube("limfifottl", capacity=3)
    tube.put_arrow(rows(["a", "b"]), key="1")

    assert tube.put_arrow(rows(["c", "d"])).count == 0
    assert tube.put_arrow(rows(["a", "b", "c", "c"]), key="2").count == 1
    assert tube.put_arrow(rows(["d"]), key="2").count == 0
    assert [task.unique for task in all_tasks(tube)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True]),
        pa.array([1.5]),
        pa.array([b"\xff"]),
        pa.array(["k" * 1_025]),
        pa.array(["ü" * 513]),
    ],
)
def test_put_arrow_when_a_key_is_bad_is_refused_before_anything_is_written(
    new_tube: NewTube, versions: Callable[[], dict[str, int]], column: pa.Array
) -> None:
    tube = new_tube("fifo")
    before = versions()

    with pytest.raises(InvalidOptionError, match="unique"):
        tube.put_arrow(pa.table({"data": ["1"], "unique": column}))

    assert versions() == before


# -- put_df ----------------------------------------------------------------------------------------


@pytest.mark.frames
def test_put_df_when_keys_are_there_adds_the_first_row_of_each_other_key_in_order(
    spark: SparkSession, new_tube: NewTube, versions: Callable[[], dict[str, int]]
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
    assert tube.put_df(df, key="2").count == 1
    assert tube.put_df(df.limit(2), key="3").count == 0
    with pytest.raises(InvalidOptionError, match="unique"):
        tube.put_df(df.selectExpr("data", "repeat('k', 1025) AS unique"))


@pytest.mark.thorough
@pytest.mark.frames
def test_put_arrow_when_put_df_had_its_own_key_adds_nothing_though_no_row_has_a_key(
    spark: SparkSession, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    df = spark.createDataFrame([("0", None)], "data STRING, unique STRING")

    assert tube.put_df(df, key="1").count == 1
    assert tube.put_arrow(rows([None]), key="1").count == 0


@pytest.mark.frames
@pytest.mark.thorough
def test_sink_when_rows_have_keys_adds_each_key_once(
    spark: SparkSession, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    put = tube.sink("stream")
    df = spark.createDataFrame(
        [("1", "a", SPAN), ("2", "b", 0)], "data STRING, unique STRING, ttl INT"
    )

    put(df, 0)
    put(df.selectExpr("data", "concat(unique, 'x') AS unique"), 0)
    put(df.selectExpr("data", "unique"), 1)
    clock.advance(SPAN)
    put(df.selectExpr("data", "unique"), 2)

    assert [(task.data, task.unique) for task in all_tasks(tube)] == [(2, "b"), (1, "a")]
