"""Each verb takes, kicks and lists tasks by (created + pri * aging, id) in a tube with aging."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import OnSpark, data_of, take
from tests.thorough import without_spark
from tubeq_spark import InvalidOptionError, PutItem, Task
from tubeq_spark.clock import US, to_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from tests.acceptance.support import Engine, NewTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

#: Seconds of waiting that weigh as much as one priority.
AGING = 10.0


@pytest.fixture
def quick(engine: Engine, queue: Queue) -> Callable[[Tube], Tube]:
    """A tube for puts that a test is not about: natively where the engine is Spark."""
    return lambda tube: engine._native(queue)[tube.name] if isinstance(engine, OnSpark) else tube


def in_order(tasks: Iterable[Task]) -> list[Any]:
    """The payloads of tasks, in the order of a tube with aging."""
    rank = lambda task: (to_us(task.created) + task.pri * round(AGING * US), task.task_id)  # noqa: E731
    return [task.data for task in sorted(tasks, key=rank)]


def mixed(tube: Tube, clock: ManualClock, count: int, seed: int) -> list[Task]:
    """Put tasks of random priorities at random moments."""
    source, put = random.Random(seed), []
    for number in range(count):
        clock.advance(source.choice([0, 0.5, 3, AGING, 40]))
        put += tube.put_many([PutItem(number, pri=source.choice([0, 1, 2, 5, 20])), -1 - number])
    return put


def one_by_one(tube: Tube) -> Iterator[Any]:
    while (task := tube.take(timeout=0)) is not None:
        tube.ack(task.task_id)
        yield task.data


@pytest.mark.thorough
def test_take_when_a_tube_has_aging_is_in_the_order_of_ranks(
    new_tube: NewTube, clock: ManualClock, quick: Callable[[Tube], Tube]
) -> None:
    tube = new_tube("fifottl", aging=AGING)
    put = mixed(quick(tube), clock, 12, seed=1)

    with tube.take_arrow(3) as batch:
        first = [int(data) for data in batch.table.column("data").to_pylist()]
    assert first + data_of(tube.take_many(100)) == in_order(put)


@pytest.mark.parametrize("verb", ["release", *without_spark("delay", "lease", "bury")])
def test_task_when_it_is_given_back_keeps_its_rank(
    new_tube: NewTube, clock: ManualClock, verb: str
) -> None:
    tube = new_tube("fifottl", aging=AGING, ttr=60)
    tube.put("first", pri=2)
    clock.advance(1)
    tube.put("second", pri=2)
    held = take(tube)
    [before] = tube._ctx.reader.by_ids([held.task_id])

    if verb in ("release", "delay"):
        tube.release(held.task_id, delay=7 if verb == "delay" else 0)
    elif verb == "bury":
        tube.bury(held.task_id)
        tube.kick()
    clock.advance(61)

    [after] = tube._ctx.reader.by_ids([held.task_id])
    assert after.rank == before.rank == before.created + round(2 * AGING * US)
    assert [*one_by_one(tube)] == ["first", "second"]


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_when_a_tube_has_aging_gives_the_ranks_of_put_many(
    spark: SparkSession, new_tube: NewTube
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
    with tube.take_df(3, per_utube=3) as batch:
        assert batch.count == 3
        # One sub-queue gives all three.
        assert {row.pri for row in batch.df.collect()} == {0, 1, 7}


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
    with pytest.raises(InvalidOptionError, match="aging"):
        tube.alter(aging=5)
    clock.advance(100)
    tube.put("new", pri=0)

    assert [*one_by_one(tube)] == ["new", "old"]


def test_rank_when_it_is_no_number_of_64_bits_is_the_greatest(new_tube: NewTube) -> None:
    tube, most = new_tube("fifottl", aging=1e18), 2**31 - 1

    tube.put_many([PutItem(1, pri=most), PutItem(2, pri=1), PutItem(3, pri=0)])
    tube.put_arrow(pa.table({"data": ["4", "5"], "pri": pa.array([most, 0], pa.int32())}))

    assert [*one_by_one(tube)] == [3, 5, 2, 1, 4]
