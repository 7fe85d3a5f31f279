"""Case 100 and X-H: a `limfifottl` tube never holds more tasks than its capacity, whichever verb puts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, calls, data_of, take
from tubeq_spark import InvalidOptionError, QueueConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.acceptance.support import Engine, InBackground, NewTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


@pytest.fixture(scope="module")
def limited(engine: Engine, queue: Queue) -> Tube:
    """The module's tube for three tasks."""
    return engine.create_tube(queue, "limited", "limfifottl", capacity=3)


@pytest.fixture
def three(engine: Engine, queue: Queue, limited: Tube) -> Tube:
    """It, emptied: cheaper than a new one; the keys that it has seen it remembers."""
    engine.empty(queue, limited.name)
    return limited


def test_full_tube_holds_as_many_tasks_as_its_capacity(three: Tube, queue: Queue) -> None:
    """Cases 100-1, 100-4 and X-H3."""
    made = queue[three.name]
    assert (made.type, made.options.capacity) == ("limfifottl", 3)
    assert len(three.put_many([1, 2])) == 2
    assert three.put_many([3, 4]) == []
    for data in (3, 4):
        three.put(data)
    assert data_of(three.tasks_by_state("r")) == [1, 2, 3]
    assert queue.statistics(three.name)["tasks"]["total"] == 3
    with pytest.raises(InvalidOptionError, match="capacity"):
        queue.create_tube("no_count", "limfifottl", capacity=0)


def test_tube_without_capacity_is_never_full(new_tube: NewTube) -> None:
    """Case 100-5."""
    unlimited = new_tube("limfifottl")
    assert unlimited.take(timeout=0) is None
    assert unlimited.put(1, timeout=5)
    assert unlimited.put(2)


def test_put_on_a_full_tube_is_none_after_its_timeout_and_not_counted(
    new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    """Cases 100-2 and X-H1."""
    tube = new_tube("limfifottl", capacity=2)
    tube.put_many([1, 2])

    before = clock.monotonic()
    assert tube.put(3) is None
    assert clock.monotonic() == before
    assert tube.put(3, timeout=0.1) is None
    assert clock.monotonic() - before == pytest.approx(0.1)
    with pytest.raises(InvalidOptionError):
        tube.put(3, timeout=-1)

    assert calls(queue, tube)["put"] == 2


def test_taken_buried_and_delayed_tasks_occupy_capacity(
    new_tube: NewTube, clock: ManualClock
) -> None:
    """Case X-H2."""
    tube = new_tube("limfifottl", capacity=4)
    tasks = tube.put_many([1, 2, 3])
    assert tube.put(4, delay=1000, ttl=2000)
    take(tube)
    tube.bury(tasks[1].task_id)
    assert tube.put(5) is None

    tube.delete(tasks[1].task_id)
    assert tube.put(5, ttl=1)
    assert tube.put(6) is None
    clock.advance(1)
    assert tube.put(6)
    assert tube.put(7) is None


def test_waiting_puts_use_all_the_room_that_comes(
    new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Cases 100-3 and X-H4."""
    tube = new_live_tube("limfifottl", capacity=2)
    tube.put_many(["a", "b"])
    waiting = [in_background(tube.put, i, timeout=WAIT) for i in range(2)]

    tube.ack_many([task.task_id for task in tube.take_many(2)])

    assert sorted(future.result(WAIT).data for future in waiting) == [0, 1]
    assert tube.put("c") is None


@pytest.mark.thorough
@pytest.mark.frames
def test_put_df_finds_room_for_all_its_rows_or_puts_none(three: Tube, spark: SparkSession) -> None:
    two = spark.sql("SELECT data FROM VALUES ('1'), ('2') AS v(data)")

    assert three.put_df(two).count == 2
    assert three.put_df(two).count == 0
    assert three.put_df(two.limit(1), key="third").count == 1
    assert three.df().count() == 3

    three.ack_many([task.task_id for task in three.take_many(3)])
    assert three.put_df(two.limit(1), key="third").count == 0
    assert three.put_df(two, key="more").count == 2
    assert three.df().count() == 2


@pytest.mark.frames
@pytest.mark.thorough
def test_put_df_with_a_key_older_than_it_is_remembered_adds_its_rows_again(
    three: Tube, spark: SparkSession, clock: ManualClock
) -> None:
    one = spark.sql("SELECT data FROM VALUES ('1') AS v(data)")
    assert three.put_df(one, key="old").count == 1
    clock.advance((QueueConfig().key_days + 1) * 86_400)
    assert three.put_df(one, key="new").count == 1
    assert three.put_df(one, key="old").count == 1
