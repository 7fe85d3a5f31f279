"""Wall clocks that jump, and clocks of several processes that are an hour apart: delays, but no task held for nobody."""

from __future__ import annotations

import datetime as dt
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import NotTakenError, QueueConfig, StoreError
from tubeq_spark.testing import InMemoryQueue, ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark import Tube

HOUR = 3_600.0


class Wall:
    """The wall clock of one process: the common time, and an offset that jumps."""

    def __init__(self, common: ManualClock) -> None:
        self._common, self.ahead = common, 0.0

    def now(self) -> dt.datetime:
        return self._common.now() + dt.timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return self._common.monotonic()

    def sleep(self, seconds: float) -> None:
        self._common.sleep(seconds)


class Lost:
    """An observer that ends the thread of a take after its commit, and lets the storage fail for a while."""

    def __init__(self) -> None:
        self.loses, self.fails = True, False

    def __call__(self, step: str, operation: str) -> None:
        if self.loses and (step, operation) == ("committed", "take"):
            raise SystemExit
        if self.fails and operation == "give_back":
            msg = "the storage fails"
            raise StoreError(msg)


@pytest.fixture
def common() -> ManualClock:
    return ManualClock()


@pytest.fixture
def wall(common: ManualClock) -> Wall:
    return Wall(common)


@pytest.fixture
def lost() -> Lost:
    return Lost()


@pytest.fixture
def held_for_nobody(wall: Wall, lost: Lost) -> Iterator[Tube]:
    """A tube whose task a take holds of which nobody knows the end."""
    with InMemoryQueue(wall, QueueConfig(observer=lost)) as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        with suppress(SystemExit):
            tube.take(0)
        lost.loses = False
        yield tube


def look(tube: Tube) -> list[str]:
    """The ready tasks after the heart has looked for the take."""
    tube._ctx.queue.unknown_takes.look()
    return [task.data for task in tube.tasks_by_state("r")]


def test_take_whose_end_is_unknown_when_the_clock_jumps_while_the_storage_fails_is_given_back(
    held_for_nobody: Tube, wall: Wall, lost: Lost
) -> None:
    lost.fails = True
    wall.ahead = HOUR
    assert look(held_for_nobody) == []

    lost.fails = False
    assert look(held_for_nobody) == ["a"]


def test_take_whose_end_is_unknown_when_the_storage_fails_for_longer_than_requests_last_is_given_back(
    held_for_nobody: Tube, common: ManualClock, lost: Lost
) -> None:
    lost.fails = True
    common.advance(2 * HOUR)
    assert look(held_for_nobody) == []

    lost.fails = False
    assert look(held_for_nobody) == ["a"]


def test_session_when_a_clock_that_is_ahead_has_found_it_dead_says_so(
    common: ManualClock, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    with InMemoryQueue(common) as queue, InMemoryQueue(wall, beside=queue) as other:
        tube = queue.create_tube("work")
        tube.put("a")
        (task,) = tube.take_many(1)
        wall.ahead = HOUR
        assert [each.data for each in other["work"].take_many(1)] == ["a"]

        with caplog.at_level(logging.WARNING):
            # A take renews the lease, as a heartbeat does.
            common.advance(40)
            assert tube.take(0) is None

        assert [str(queue.identify()) in message for message in caplog.messages] == [True]
        with pytest.raises(NotTakenError):
            tube.ack(task.task_id)
