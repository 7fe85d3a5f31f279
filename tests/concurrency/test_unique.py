"""Sessions and processes that put at the same time add no key twice, and exceed no capacity."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import WAIT, on_another_host, rows_of, stored, two_hosts
from tests.programs import conversing
from tubeq_spark import Queue, TaskState

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue, Probe
    from tubeq_spark import Task, Tube

_numbers = itertools.count()
KEY, OTHER, APART = "key", "other", "apart"
PROCESSES, KEYS = 4, 1_000


@pytest.fixture(scope="module")
def sessions(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions on two hosts, the first one observed."""
    return two_hosts(open_queue)


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


@pytest.fixture
def two(engine: OnSpark, sessions: tuple[Probe, Queue, Queue]) -> tuple[Probe, Tube, Tube]:
    """A tube for two tasks, as each session sees it."""
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"two_{next(_numbers)}", "limfifottl", capacity=2)
    return probe, tube, rivals[tube.name]


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
@pytest.mark.parametrize("step", ["read", "decided"])
def test_put_when_a_rival_acks_a_task_whose_key_is_kept_meanwhile_adds_none(
    sessions: tuple[Probe, Queue, Queue], step: str
) -> None:
    probe, mine, rivals = sessions
    tube = mine.create_tube(f"kept_{next(_numbers)}", "fifottl", unique_for=1_000)
    rival = rivals[tube.name]
    keyed(rival, "a")
    (taken,) = rival.take_many(1)

    with probe.interrupted(step, "put", lambda: rival.ack(taken.task_id)):
        keyed(tube, "b", OTHER)
    task = keyed(tube, "again")

    assert (task.task_id, task.state) == (taken.task_id, TaskState.DONE)
    # A truncate that stops before it frees the keys frees them the next time.
    assert probe.stopped_after(1, tube.truncate)
    assert keyed(rival, "again").state is TaskState.DONE
    rival.truncate()
    assert keyed(rival, "a").task_id != taken.task_id


# -- capacity -------------------------------------------------------------------------------------


def test_put_when_a_rival_fills_the_tube_first_finds_it_full(
    two: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = two
    rival.put("a")

    with probe.interrupted("decided", "put", lambda: rival.put("b")):
        assert tube.put("c") is None

    assert stored(tube) == "ar br"


@pytest.mark.thorough
def test_four_producers_at_once_fill_the_tube_and_never_exceed_it(open_queue: OpenQueue) -> None:
    capacity, each = 6, 4
    sessions = [on_another_host(open_queue(attempts=60)) for _ in range(4)]
    name = sessions[0].create_tube(f"many_{next(_numbers)}", "limfifottl", capacity=capacity).name
    together = threading.Barrier(len(sessions))

    def produce(queue: Queue) -> int:
        tube = queue[name]
        together.wait(WAIT)
        return sum(tube.put(i) is not None for i in range(each))

    with ThreadPoolExecutor(len(sessions)) as pool:
        put = [future.result() for future in [pool.submit(produce, q) for q in sessions]]

    assert sum(put) == capacity
    assert len(rows_of(sessions[0][name], "task_id")) == capacity


# -- processes ------------------------------------------------------------------------------------

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
        conversing(PRODUCER, location, str(n), str(keys), str(batch)) for n in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        said, _ = process.communicate("\n", timeout=WAIT)
        assert said == "done\n"


@pytest.mark.processes
@pytest.mark.without_spark
def test_four_processes_when_they_put_the_same_keys_add_each_once(location: str) -> None:
    with Queue(None, location, engine="native") as queue:
        queue.create_tube("work")

    produce(location, PROCESSES, KEYS, 50)

    with Queue(None, location, engine="native") as queue:
        tasks = list(queue["work"].tasks_by_state("r"))
    assert sorted(int(str(task.unique)) for task in tasks) == list(range(KEYS))
    assert all(task.data == task.unique for task in tasks)
