"""Keys of tasks under rivals, stops and processes: no two stored tasks have one key, and none is lost."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.concurrency.support import Probe, ids_of, names, on_another_host, rows_of, stored
from tests.programs import environment
from tubeq_spark import ConflictError, PutItem, Queue, TaskState, TubeNotFoundError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Task, Tube

_numbers = itertools.count()
KEY, OTHER, APART = "key", "other", "apart"
PROCESSES, KEYS, WAIT = 4, 1_000, 300


@pytest.fixture(scope="module")
def sessions(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions on two hosts, the first one observed."""
    probe = Probe()
    mine, rivals = open_queue(observer=probe), open_queue()
    return probe, on_another_host(mine), on_another_host(rivals)


@pytest.fixture
def tubes(engine: OnSpark, sessions: tuple[Probe, Queue, Queue]) -> tuple[Probe, Tube, Tube]:
    """A tube whose tasks have keys, as each session sees it."""
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"keyed_{next(_numbers)}", "fifottl")
    return probe, tube, rivals[tube.name]


def keyed(tube: Tube, data: str, key: str = KEY) -> Task:
    """Put a task with a key."""
    task = tube.put(data, unique=key)
    assert task is not None
    return task


@pytest.mark.thorough
def test_put_when_a_rival_puts_the_key_first_returns_its_task(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes

    with probe.interrupted("decided", "put", lambda: keyed(rival, "b")):
        task = keyed(tube, "a")

    assert (task.data, stored(tube)) == ("b", "br")
    assert task == rival.put("c", unique=KEY)


@pytest.mark.without_spark
def test_put_when_a_rival_puts_another_key_first_decides_anew(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    before = tube._ctx.queue.loop.tally.total()

    with probe.interrupted("decided", "put", lambda: keyed(rival, "b", OTHER)):
        keyed(tube, "a")

    assert sorted(stored(tube).split()) == ["ar", "br"]
    assert tube._ctx.queue.loop.tally.total() == before + 1


@pytest.mark.parametrize("key", [KEY, OTHER])
@pytest.mark.without_spark
def test_put_when_a_rival_puts_without_a_key_or_takes_or_acks_conflicts_with_none(
    tubes: tuple[Probe, Tube, Tube], key: str
) -> None:
    probe, tube, rival = tubes
    first = keyed(rival, "a", OTHER)
    before = tube._ctx.queue.loop.tally.total(), rival._ctx.queue.loop.tally.total()

    def others() -> None:
        rival.put("c")
        rival.ack_many(ids_of(rival.take_many(1)))

    with probe.interrupted("decided", "put", others):
        task = keyed(tube, "b", KEY)

    assert task != first
    assert sorted(stored(tube).split()) == ["br", "cr"]
    assert (tube._ctx.queue.loop.tally.total(), rival._ctx.queue.loop.tally.total()) == before


@pytest.mark.without_spark
def test_put_when_a_rival_acks_the_task_with_the_key_returns_it_or_adds_one(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    a = keyed(rival, "a")
    (taken,) = rival.take_many(1)

    with probe.interrupted("read", "put", lambda: rival.ack(taken.task_id)):
        assert keyed(tube, "b").data == "b"
    assert stored(tube) == "br"
    assert a.task_id == taken.task_id


@pytest.mark.without_spark
def test_put_when_a_rival_acks_and_another_puts_the_key_between_read_and_commit_adds_nothing(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes

    def others() -> None:
        keyed(rival, "a")
        rival.ack_many(ids_of(rival.take_many(1)))
        keyed(rival, "b")

    with probe.interrupted("decided", "put", others):
        assert keyed(tube, "c").data == "b"

    assert stored(tube) == "br"


@pytest.mark.without_spark
def test_put_when_a_rival_drops_the_tube_first_finds_no_tube(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    keyed(tube, "a", OTHER)

    with (
        probe.interrupted("decided", "put", rival.drop),
        pytest.raises(TubeNotFoundError),
    ):
        keyed(tube, "b")

    assert rows_of(tube, "task_id") == [{"task_id": None}]  # the tombstone


@pytest.mark.without_spark
def test_put_when_a_rival_truncates_the_tube_first_is_there(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    keyed(rival, "a", OTHER)

    with probe.interrupted("decided", "put", rival.truncate):
        keyed(tube, "b")

    assert stored(tube) == "br"


@pytest.mark.without_spark
def test_put_when_a_touch_comes_before_the_end_of_a_life_is_written_returns_the_task(
    tubes: tuple[Probe, Tube, Tube], open_queue: OpenQueue, clock: ManualClock
) -> None:
    probe, tube, _ = tubes
    # It began to touch while the lease lasted, and was suspended.
    late = on_another_host(open_queue(clock=ManualClock(clock.now())))[tube.name]
    late.put("a", unique=KEY, ttl=10, ttr=10)
    (taken,) = late.take_many(1)
    clock.advance(10)

    with probe.interrupted("decided", "end_due", lambda: late.touch(taken.task_id, 100)):
        task = keyed(tube, "b")

    assert (task.data, task.state) == ("a", TaskState.TAKEN)
    assert stored(tube) == "at"


@pytest.mark.without_spark
def test_put_arrow_when_a_rival_puts_one_of_the_keys_first_adds_the_others(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    rows = pa.table({"data": ['"a"', '"b"', '"c"'], "unique": [KEY, APART, None]})

    with probe.interrupted("decided", "put", lambda: keyed(rival, "x")):
        result = tube.put_arrow(rows, key="once")

    assert result.count == 2
    assert sorted(stored(tube).split()) == ["br", "cr", "xr"]
    tube.truncate()
    assert rival.put_arrow(rows, key="once").count == 0


def begun(tube: Tube) -> None:
    """Put once, so that the next puts make no other commit."""
    tube.put("first")
    tube.truncate()


@pytest.mark.without_spark
def test_put_when_it_stops_at_any_step_has_put_or_not_and_the_next_adds_none_twice(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    begun(tube)
    for point, left in enumerate(("", "", "ar")):
        assert probe.stopped(point, lambda: keyed(tube, "a"))
        assert stored(rival) == left

    assert keyed(rival, "b").data == "a"


@pytest.mark.without_spark
def test_put_when_it_stops_after_it_has_written_down_an_ended_life_adds_the_key_the_next_time(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    begun(tube)
    rival.put("a", unique=KEY, ttl=1)
    tube._ctx.queue.clock.advance(1)  # type: ignore[attr-defined]

    assert probe.stopped_after(1, lambda: keyed(tube, "b"))
    assert stored(rival) == ""
    assert keyed(rival, "c").data == "c"


@pytest.mark.without_spark
def test_put_when_rivals_always_come_first_gives_up_and_has_written_nothing(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes

    def come_first() -> None:
        rival.delete(keyed(rival, "x", OTHER).task_id)

    with (
        probe.interrupted("decided", "put", come_first, nth=0),
        pytest.raises(ConflictError),
    ):
        keyed(tube, "a")

    assert stored(tube) == ""


@pytest.mark.without_spark
def test_put_with_a_capacity_when_a_rival_puts_first_decides_anew(
    engine: OnSpark, sessions: tuple[Probe, Queue, Queue]
) -> None:
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"keyed_{next(_numbers)}", "limfifottl", capacity=2)
    rival = rivals[tube.name]

    with probe.interrupted("decided", "put", lambda: keyed(rival, "x")):
        assert names(tube.put_many([PutItem("a", unique=KEY), PutItem("b", unique=APART)])) == "xb"
    assert tube.put("c") is None
    assert tube.put("c", unique="new") is None
    assert keyed(tube, "c").data == "x"


#: A producer: puts all keys in batches, in an order of its own, and tells how many tasks it got.
PRODUCER = """
import random, sys
from tubeq_spark import PutItem, Queue, QueueConfig

location, number, keys, batch = sys.argv[1], *map(int, sys.argv[2:])
with Queue(None, location, engine="native", config=QueueConfig(attempts=1_000, retry_seconds=600)) as queue:
    tube, names = queue["work"], [str(n) for n in range(keys)]
    random.Random(number).shuffle(names)
    print("ready", flush=True)
    sys.stdin.readline()
    for first in range(0, keys, batch):
        items = names[first : first + batch]
        tasks = tube.put_many([PutItem(name, unique=name) for name in items])
        assert [task.unique for task in tasks] == items
print("done", flush=True)
"""


def produce(location: str, processes: int, keys: int, batch: int) -> None:
    """Let processes put all keys at once; returns when all have."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER, location, str(n), str(keys), str(batch)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        said, _ = process.communicate("\n", timeout=WAIT)
        assert said == "done\n"


def assert_each_once(location: str, keys: int) -> None:
    """Each key has one stored task, with its data."""
    with Queue(None, location, engine="native") as queue:
        tasks = list(queue["work"].tasks_by_state("r"))
    assert sorted(int(str(task.unique)) for task in tasks) == list(range(keys))
    assert all(task.data == task.unique for task in tasks)


@pytest.mark.processes
@pytest.mark.without_spark
def test_four_processes_when_they_put_the_same_keys_add_each_once(location: str) -> None:
    with Queue(None, location, engine="native") as queue:
        queue.create_tube("work")

    produce(location, PROCESSES, KEYS, 50)

    assert_each_once(location, KEYS)
