"""Tubes with aging: the order is (created + pri * aging, id), for every verb, and never changes."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import OnSpark, data_of, take
from tests.thorough import without_spark
from tubeq_spark import InvalidOptionError, PutItem, Task, TaskState
from tubeq_spark.model.options import MOST_RANK
from tubeq_spark.model.times import US, to_us
from tubeq_spark.verbs.read import tasks_by_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from tests.acceptance.support import Engine, NewTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

#: Seconds of waiting that weigh as much as one priority.
AGING = 10.0
#: Seconds after which every program has seen a change.
SEEN = 5


@pytest.fixture
def quick(engine: Engine, queue: Queue) -> Callable[[Tube], Tube]:
    """A tube for puts that a test is not about: natively where the engine is Spark."""
    return lambda tube: engine._native(queue)[tube.name] if isinstance(engine, OnSpark) else tube


def in_order(tasks: Iterable[Task], aging: float = AGING) -> list[Any]:
    """The payloads of tasks, in the order of a tube with aging."""
    rank = lambda task: (to_us(task.created) + task.pri * round(aging * US), task.task_id)  # noqa: E731
    return [task.data for task in sorted(tasks, key=rank)]


def mixed(
    tube: Tube, clock: ManualClock, count: int, seed: int, *, utubes: bool = False
) -> list[Task]:
    """Put tasks of random priorities at random moments, by each verb that puts."""
    source, put = random.Random(seed), []
    for number in range(count):
        clock.advance(source.choice([0, 0.5, 3, AGING, 40]))
        pri = source.choice([0, 1, 2, 5, 20])
        utube = {"utube": source.choice("ab")} if utubes else {}
        verb = source.choice(["put", "put_many", "put_arrow"])
        if verb == "put":
            task = tube.put(number, pri=pri, **utube)
            assert task is not None
            put.append(task)
        elif verb == "put_many":
            put += tube.put_many([PutItem(number, pri=pri, **utube), PutItem(-1 - number, **utube)])
        else:
            options = {name: [value] for name, value in {"pri": pri, **utube}.items()}
            columns = {"data": [str(number)], **options}
            added = tube.put_arrow(pa.table(columns))
            assert added.first_task_id is not None
            put.append(tube.peek(added.first_task_id))
    return put


def one_by_one(tube: Tube) -> Iterator[Any]:
    while (task := tube.take(timeout=0)) is not None:
        tube.ack(task.task_id)
        yield task.data


def by_exchange(tube: Tube) -> Iterator[Any]:
    held = tube.take_many(1)
    while held:
        yield from data_of(held)
        held = tube.exchange(ack=[task.task_id for task in held], take=2, timeout=0)


def as_arrow(tube: Tube) -> Iterator[Any]:
    for count in (3, 1, 100):
        with tube.take_arrow(count) as batch:
            yield from map(int, batch.table.column("data").to_pylist())


TAKES: dict[str, Callable[[Tube], Iterable[Any]]] = {
    "one by one": one_by_one,
    "many at once": lambda tube: data_of(tube.take_many(100)),
    "by exchange": by_exchange,
    "as Arrow": as_arrow,
}
ON_SPARK = [*without_spark("one by one", "by exchange"), "many at once", "as Arrow"]


@pytest.mark.thorough
@pytest.mark.parametrize("takes", ON_SPARK)
def test_take_when_a_tube_has_aging_is_in_the_order_of_ranks(
    new_tube: NewTube, clock: ManualClock, quick: Callable[[Tube], Tube], takes: str
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    put = mixed(quick(tube), clock, 12, seed=[*TAKES].index(takes))

    assert [*TAKES[takes](tube)] == in_order(put)


@pytest.mark.without_spark
def test_task_when_it_has_waited_comes_before_newer_ones_of_higher_priority(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("limfifottl", capacity=9, aging=AGING)
    tube.put("waits", pri=3)
    clock.advance(29)
    tube.put("before", pri=0)
    clock.advance(2)
    tube.put("behind", pri=0)

    assert [*one_by_one(tube)] == ["before", "waits", "behind"]


@pytest.mark.without_spark
def test_delay_when_a_task_is_put_with_it_counts_as_waiting(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    tube.put("delayed", pri=2, delay=30)
    clock.advance(15)
    tube.put("before", pri=0)
    clock.advance(10)
    tube.put("behind", pri=0)
    clock.advance(5)

    assert [*one_by_one(tube)] == ["before", "delayed", "behind"]


VERBS: dict[str, Callable[[Tube, Task, ManualClock], object]] = {
    "release": lambda tube, task, _: tube.release(task.task_id),
    "release with a delay": lambda tube, task, clock: (
        tube.release(task.task_id, delay=7),
        clock.advance(8),
    ),
    "a lease that ends": lambda _tube, _task, clock: clock.advance(61),
    "touch and release": lambda tube, task, _: (
        tube.touch(task.task_id, 5),
        tube.release(task.task_id),
    ),
    "bury and kick": lambda tube, task, _: (tube.bury(task.task_id), tube.kick()),
    "a sweep": lambda tube, _task, clock: (clock.advance(61), tube._ctx.queue),
}


@pytest.mark.parametrize("verb", ["release", *without_spark(*list(VERBS)[1:])])
def test_task_when_a_verb_gives_it_back_keeps_its_rank(
    queue: Queue, new_tube: NewTube, clock: ManualClock, verb: str
) -> None:
    tube = new_tube("fifottl", aging=AGING, ttr=60)
    tube.put("first", pri=2)
    clock.advance(1)
    tube.put("second", pri=2)
    held = take(tube)
    [before] = tube._ctx.reader.by_ids([held.task_id])

    VERBS[verb](tube, held, clock)
    if verb == "a sweep":
        queue.sweep()

    [after] = tube._ctx.reader.by_ids([held.task_id])
    assert after.rank == before.rank == before.created + round(2 * AGING * US)
    assert [*one_by_one(tube)] == ["first", "second"]


def test_kick_and_list_when_a_tube_has_aging_are_in_the_order_of_ranks(
    new_tube: NewTube, clock: ManualClock, quick: Callable[[Tube], Tube]
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    put = mixed(quick(tube), clock, 9, seed=11)
    listed = [*tasks_by_state(tube._ctx, TaskState.READY, page=2)]
    assert data_of(listed) == in_order(put)
    tube.bury_many([task.task_id for task in put])
    assert data_of(tube.tasks_by_state("!")) == in_order(put)

    assert tube.kick(3) == 3

    assert data_of(tube.tasks_by_state("r")) == in_order(put)[:3]
    assert data_of(tasks_by_state(tube._ctx, TaskState.BURIED, page=4)) == in_order(put)[3:]
    assert tube.kick(2, where="pri < 100") == 2
    assert data_of(tube.tasks_by_state("r")) == in_order(put)[:5]


def test_subqueue_when_a_tube_has_aging_is_in_the_order_of_ranks(
    new_tube: NewTube, clock: ManualClock, quick: Callable[[Tube], Tube]
) -> None:
    tube = new_tube("utubettl", aging=AGING)
    put = mixed(quick(tube), clock, 14, seed=3, utubes=True)
    expected = in_order(put)
    of = {task.data: task.utube for task in put}

    first = tube.take_many(2, per_utube=1)
    assert data_of(first) == [
        next(data for data in expected if of[data] == utube)
        for utube in dict.fromkeys(of[data] for data in expected)
    ]
    tube.ack_many([task.task_id for task in first])
    rest = [data for data in expected if data not in data_of(first)]
    by_utube = defaultdict(list)
    while (tasks := tube.take_many(3, per_utube=2)) and len(by_utube["a"]) < 4:
        for task in tasks:
            by_utube[task.utube].append(task.data)
        tube.ack_many([task.task_id for task in tasks])
    tube.release_many([task.task_id for task in tasks])
    for utube, found in by_utube.items():
        assert found == [data for data in rest if of[data] == utube][: len(found)]
    rest = [data for data in rest if data not in by_utube["a"] + by_utube["b"]]
    with tube.take_arrow(100, per_utube=100) as batch:
        assert [*map(int, batch.table.column("data").to_pylist())] == rest


@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
@pytest.mark.parametrize("takes", ON_SPARK)
def test_task_when_its_program_has_not_seen_the_aging_comes_first_and_is_taken(
    new_tube: NewTube, other: Queue, clock: ManualClock, type_name: str, takes: str
) -> None:
    tube = new_tube(type_name)
    theirs = other[tube.name]
    tube.alter(aging=AGING)
    old = [theirs.put(number, pri=number) for number in (3, 1, 2)]
    tube.put_many([PutItem(5, pri=1), PutItem(4)])
    assert [tube._ctx.reader.by_ids([t.task_id])[0].rank for t in old if t] == [3, 1, 2]
    clock.advance(SEEN)
    theirs.put(6)
    listed = [*tasks_by_state(tube._ctx, TaskState.READY, page=2)]

    if type_name == "utubettl" and takes == "many at once":
        found = data_of(tube.take_many(100, per_utube=100))
    elif type_name == "utubettl" and takes == "as Arrow":
        with tube.take_arrow(100, per_utube=100) as batch:
            found = [*map(int, batch.table.column("data").to_pylist())]
    else:
        found = [*TAKES[takes](tube)]

    assert found == data_of(listed) == [1, 2, 3, 4, 6, 5]


@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
def test_task_when_its_program_has_not_seen_the_aging_and_it_is_given_back_stays_within_reach(
    new_tube: NewTube, other: Queue, clock: ManualClock, type_name: str
) -> None:
    tube = new_tube(type_name, ttr=60)
    theirs = other[tube.name]
    tube.alter(aging=AGING)
    theirs.put_many(["a", "b"])
    tube.put("c")
    clock.advance(SEEN)
    held = take(tube)
    tube.release(held.task_id)
    held = take(tube)
    clock.advance(61)
    assert take(tube).task_id == held.task_id
    tube.bury_many([task.task_id for state in "rt" for task in tube.tasks_by_state(state)])

    assert tube.kick(1) == 1
    assert data_of([take(theirs)]) == ["a"]
    assert tube.kick(9) == 2
    tube.release_all()
    assert [*one_by_one(tube)] == ["a", "b", "c"]


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["put", "put_many", "put_arrow"])
def test_rank_when_it_is_no_number_of_64_bits_is_the_greatest(new_tube: NewTube, verb: str) -> None:
    tube = new_tube("fifottl", aging=1e18)
    most = 2_147_483_647
    if verb == "put_arrow":
        columns = {"data": ["1", "2", "3"], "pri": pa.array([most, 1, 0], pa.int32())}
        tube.put_arrow(pa.table(columns))
    else:
        put = tube.put_many if verb == "put_many" else lambda items: [*map(tube.put, items)]
        items = [PutItem(1, pri=most), PutItem(2, pri=1), PutItem(3, pri=0)]
        if verb == "put":
            for item in items:
                tube.put(item.data, pri=item.pri)
        else:
            put(items)

    stored = {row.data: row.rank for row in tube._ctx.reader.of(tube._ctx.table.mine())}

    assert stored["1"] == MOST_RANK
    assert stored["3"] is not None
    assert stored["2"] is not None
    assert stored["3"] < stored["2"] < MOST_RANK
    assert [*one_by_one(tube)] == [3, 2, 1]


@pytest.mark.without_spark
def test_put_arrow_when_a_tube_has_aging_gives_the_ranks_of_put_many(
    new_tube: NewTube,
) -> None:
    tube = new_tube("fifottl", aging=0.3, pri=7)
    pris = [None, 0, 1, 12_345, 2_147_483_647]
    columns = {"data": ["0"] * len(pris), "pri": pa.array(pris, pa.int32())}

    tube.put_arrow(pa.table(columns))
    tube.put_many([PutItem(0, pri=pri) for pri in pris])

    rows = sorted(tube._ctx.reader.of(tube._ctx.table.mine()), key=lambda row: row.task_id)
    ranks = [row.rank for row in rows]
    assert ranks[: len(pris)] == ranks[len(pris) :]
    assert ranks[:2] == [rows[0].created + 2_100_000, rows[0].created]


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_when_a_tube_has_aging_gives_the_ranks_of_put_many(
    spark: SparkSession, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", aging=0.3, pri=7)
    pris = [None, 0, 1, 12_345, 2_147_483_647]
    frame = spark.createDataFrame(
        [("0", pri, "u") for pri in pris], "data STRING, pri INT, utube STRING"
    )

    tube.put_df(frame.coalesce(1))
    tube.put_many([PutItem(0, pri=pri) for pri in pris])

    rows = tube._ctx.reader.of(tube._ctx.table.mine())
    ranks = [row.rank for row in sorted(rows, key=lambda row: row.task_id)]
    assert sorted(map(str, ranks[: len(pris)])) == sorted(map(str, ranks[len(pris) :]))
    clock.advance(1)
    huge = new_tube("fifottl", aging=1e18)
    huge.put_df(frame.drop("utube"))
    stored = {row.pri: row.rank for row in huge._ctx.reader.of(huge._ctx.table.mine())}
    assert stored[2_147_483_647] == stored[12_345] == MOST_RANK
    with tube.take_df(3, per_utube=3) as batch:
        assert batch.count == 3
        # One sub-queue gives all three.
        assert {row.pri for row in batch.df.collect()} == {0, 1, 7}


def test_take_when_rivals_take_from_a_tube_with_aging_gives_each_task_once_in_order(
    new_tube: NewTube, other: Queue, clock: ManualClock, quick: Callable[[Tube], Tube]
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    put = mixed(quick(tube), clock, 12, seed=5)
    rivals, found = (tube, other[tube.name]), []
    for turn in range(len(put) + 1):
        rival = rivals[turn % 2]
        tasks = rival.take_many(1 + turn % 3)
        found += data_of(tasks)
        rival.ack_many([task.task_id for task in tasks])

    assert found == in_order(put)


@pytest.mark.without_spark
@pytest.mark.parametrize("aging", [AGING, None])
def test_take_when_there_are_many_segments_finds_the_first_wherever_they_are(
    new_tube: NewTube, clock: ManualClock, aging: float | None
) -> None:
    tube = new_tube("fifottl", aging=aging)
    source, number, expected = random.Random(1), 0, []
    for _ in range(24):
        clock.advance(source.choice([1, 20, 100]))
        pris = [source.choice([0, 3, 9, 200]) for _ in range(1_000)]
        data = [str(number + at) for at in range(len(pris))]
        added = tube.put_arrow(pa.table({"data": data, "pri": pa.array(pris, pa.int32())}))
        assert added.first_task_id is not None
        created = to_us(tube.peek(added.first_task_id).created)
        step = None if aging is None else round(aging * US)
        for at, pri in enumerate(pris):
            key = pri if step is None else created + pri * step
            expected.append((key, number + at))
        number += len(pris)
    expected.sort()

    found = []
    for count in (1, 10, 5, 700, 1, 1, 3_000, 50):
        tasks = tube.take_many(count)
        found += data_of(tasks)
        if count == 10:
            tube.release_many([task.task_id for task in tasks])
            del found[-count:]

    assert found == [data for _, data in expected[: len(found)]]


@pytest.mark.without_spark
def test_aging_when_it_ends_with_the_tube_empty_leaves_the_order_by_priority(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    tube.put("ranked", pri=1)
    with pytest.raises(InvalidOptionError, match="aging"):
        tube.alter(aging=None)
    assert [*one_by_one(tube)] == ["ranked"]

    tube.alter(aging=None)
    tube.put("old", pri=1)
    clock.advance(100)
    tube.put("new", pri=0)

    assert [*one_by_one(tube)] == ["new", "old"]


@pytest.mark.without_spark
def test_aging_when_another_program_alters_is_in_force_within_five_seconds(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    theirs = other[tube.name]
    tube.alter(aging=AGING)
    clock.advance(SEEN)
    theirs.put("old", pri=1)
    clock.advance(100)
    tube.put("new", pri=0)

    assert [*one_by_one(theirs)] == ["old", "new"]


@pytest.mark.without_spark
def test_why_when_a_tube_has_aging_counts_the_tasks_before_by_their_ranks(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    [old] = tube.put_many(["old"], pri=1)
    clock.advance(100)
    [new] = tube.put_many(["new"], pri=0)

    assert "next" in tube.why(old.task_id)
    assert "1 task" in tube.why(new.task_id)
