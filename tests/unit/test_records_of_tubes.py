"""A queue object uses the newest record of a tube that it has read, also after it meets an older one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import Probe
from tubeq_spark import QueueConfig
from tubeq_spark.testing import InMemoryQueue, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds after which each queue object has seen what another one has altered.
SEEN = 5.0


@pytest.fixture
def probe() -> Probe:
    """Observes `queue`."""
    return Probe()


@pytest.fixture
def queue(probe: Probe) -> Iterator[InMemoryQueue]:
    """A queue that holds a task of its tube `first`."""
    with InMemoryQueue(ManualClock(), QueueConfig(observer=probe)) as queue:
        queue.cfg(ttr=1e6)
        first = queue.create_tube("first", "fifottl", ttr=60)
        first.put("task")
        first.take(0)
        yield queue


@pytest.fixture
def other(queue: InMemoryQueue) -> Iterator[InMemoryQueue]:
    """Another queue object of these tubes."""
    with InMemoryQueue(beside=queue) as other:
        other.cfg(ttr=1e6)
        yield other


def advance(queue: InMemoryQueue, seconds: float) -> None:
    """Let time pass."""
    clock = queue._context.clock
    assert isinstance(clock, ManualClock)
    clock.advance(seconds)


def sweep(queue: InMemoryQueue, probe: Probe, meanwhile: Callable[[], object]) -> None:
    """Sweep; do something while the first tube is swept, and all records of tubes were read."""
    advance(queue, 60)
    with probe.interrupted("read", "end_due", meanwhile):
        queue.sweep()


@pytest.mark.parametrize("is_known", [True, False])
def test_take_when_the_tube_is_paused_during_a_sweep_finds_nothing(
    queue: InMemoryQueue, other: InMemoryQueue, probe: Probe, *, is_known: bool
) -> None:
    """Also where the sweep itself has looked at the tube for the first time, before the pause."""
    (queue if is_known else other).create_tube("work").put("task")

    def pause() -> None:
        other["work"].pause()
        advance(queue, SEEN)

    sweep(queue, probe, pause)

    assert queue._tubes["work"].take(0) is None


def test_take_when_the_queue_joins_another_session_keeps_the_tube_paused(
    queue: InMemoryQueue, other: InMemoryQueue
) -> None:
    tube = queue["first"]
    tube.put("task")
    other["first"].pause()
    advance(queue, SEEN)
    assert tube.take(0) is None

    queue.identify(other.identify())

    assert tube.take(0) is None


def test_tube_when_it_is_made_anew_during_a_sweep_is_the_new_one(
    queue: InMemoryQueue, other: InMemoryQueue, probe: Probe
) -> None:
    queue.create_tube("work")
    found = []

    def make_anew() -> None:
        advance(queue, 1)
        other["work"].drop()
        found.append(other.create_tube("work") and queue["work"])

    sweep(queue, probe, make_anew)
    [tube] = found

    assert queue["work"] is tube
    tube.put("task")
    task = tube.take(0)
    queue.close()
    assert other["work"].peek(task.task_id).state == "r"
