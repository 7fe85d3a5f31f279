"""The age of a ready task begins with the put, delay, lease, release or kick that made it ready, swept or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

HOUR = 3_600


def delayed(tube: Tube, clock: ManualClock) -> None:
    tube.put("a", delay=HOUR)
    clock.advance(HOUR)


def with_an_ended_lease(tube: Tube, clock: ManualClock) -> None:
    tube.put("a", ttr=HOUR)
    tube.take(0)
    clock.advance(HOUR)


def released(tube: Tube, clock: ManualClock) -> None:
    tube.put("a", ttr=2 * HOUR)
    task = tube.take(0)
    clock.advance(HOUR)
    tube.release(task)


def kicked(tube: Tube, clock: ManualClock) -> None:
    tube.bury(tube.put("a"))  # type: ignore[arg-type]  (no capacity)
    clock.advance(HOUR)
    tube.kick()


@pytest.mark.parametrize("sweeps", [False, True])
@pytest.mark.parametrize("begin", [delayed, with_an_ended_lease, released, kicked])
def test_ages_when_a_task_becomes_ready_after_an_hour_begin_then(
    anywhere: Queue, clock: ManualClock, begin: Callable[[Tube, ManualClock], None], sweeps: bool
) -> None:
    tube = anywhere.create_tube("work", "fifottl")
    begin(tube, clock)
    clock.advance(5)
    if sweeps:
        anywhere.sweep()
    clock.advance(5)

    found = anywhere.metrics().tubes["work"]
    assert (found.ready, found.oldest_ready_age, found.oldest_put_age) == (1, 10, HOUR + 10)


def test_ages_when_tasks_were_put_begin_at_the_first_put(
    anywhere: Queue, clock: ManualClock
) -> None:
    tube = anywhere.create_tube("work", "fifottl")
    assert anywhere.metrics().tubes["work"].oldest_ready_age is None
    for _ in range(2):
        tube.put("a")
        clock.advance(7)

    found = anywhere.metrics().tubes["work"]
    assert (found.oldest_ready_age, found.oldest_put_age) == (14, 14)
