"""A put decides anew when a rival puts its key, acks the task with a kept key, or fills the tube first."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import stored, two_hosts
from tubeq_spark import Queue, TaskState

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue, Probe
    from tubeq_spark import Task, Tube

_numbers = itertools.count()
KEY, OTHER = "key", "other"


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
    engine: OnSpark, sessions: tuple[Probe, Queue, Queue]
) -> None:
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"two_{next(_numbers)}", "limfifottl", capacity=2)
    rival = rivals[tube.name]
    rival.put("a")

    with probe.interrupted("decided", "put", lambda: rival.put("b")):
        assert tube.put("c") is None

    assert stored(tube) == "ar br"
