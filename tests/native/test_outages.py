"""A worker loop keeps nearly all attempts of its tasks while something fails that its handler needs."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Bury
from tubeq_spark.testing import InMemoryQueue, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Task, Tube

#: Seconds for which the handler fails.
OUTAGE = 37


def fails_for(clock: ManualClock, seconds: float) -> Callable[[Task], None]:
    """A handler that needs a moment for each task, and fails at the beginning."""
    began = clock.monotonic()

    def handler(_: Task) -> None:
        clock.advance(0.001)
        if clock.monotonic() - began < seconds:
            raise ConnectionError("down")

    return handler


def filled(queue: Any, tasks: int, type_name: str = "fifottl") -> Tube:
    """A tube with this number of tasks; it buries them after three attempts."""
    tube: Tube = queue.create_tube("mail", type_name, max_attempts=3)
    more = {"utube": "a"} if type_name == "utube" else {}
    tube.put_many(range(tasks), **more)
    return tube


@pytest.mark.parametrize("threads", [1, 8])
def test_work_when_the_handler_is_down_for_a_while_keeps_the_tasks(
    threads: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 1_000)
        with caplog.at_level(logging.WARNING, "tubeq_spark.workers.brake"):
            report = tube.work(fails_for(clock, OUTAGE), threads=threads, idle=5)

        assert report.buried <= threads
        assert report.done + report.buried == 1_000
        assert report.failed < 10 + 2 * threads + 10
        began, ended = [
            record.getMessage() for record in caplog.records if record.name.endswith("brake")
        ]
    assert began == (
        "mail: 10 tasks failed in a row, the last one with ConnectionError('down'): no more are "
        "taken; in 10 s one is tried"
    )
    assert ended.startswith("mail: a task succeeded: after ")


def test_metrics_and_health_when_a_loop_waits_say_so() -> None:
    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 30)
        seen = []
        fails = fails_for(clock, OUTAGE)

        def handler(task: Task) -> None:
            seen.append(queue.metrics().tubes["mail"].failing_workers)
            fails(task)

        tube.work(handler, idle=5)
        assert seen[:10] == [0] * 10
        assert 1 in seen
        assert seen[-1] == queue.metrics().tubes["mail"].failing_workers == 0


@pytest.mark.parametrize("type_name", ["fifo", "utube"])
def test_work_when_a_type_without_delays_is_down_keeps_the_tasks(type_name: str) -> None:
    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 50, type_name)
        report = tube.work(fails_for(clock, OUTAGE), idle=5)
        # Without delays the first task is tried again and again: ten failures bury three tasks.
        assert report.buried <= 4
        assert report.done + report.buried == 50


def test_work_when_bad_tasks_come_first_tries_one_of_the_others() -> None:
    def handler(task: Task) -> None:
        if task.data == "bad":
            raise ValueError("bad")

    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 0)
        tube.put_many(["bad"] * 12 + ["good"] * 50)
        report = tube.work(handler, idle=5)
        assert (report.done, report.buried) == (50, 12)


def test_work_when_the_tube_is_empty_after_an_outage_waits_for_nothing() -> None:
    def handler(_: Task) -> None:
        raise ConnectionError("down")

    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 10)
        stop = threading.Event()
        failing = []

        def sleep(seconds: float) -> None:
            clock.advance(seconds)
            failing.append(queue.metrics().tubes["mail"].failing_workers)
            if clock.monotonic() > 5:
                tube.truncate()
            if clock.monotonic() > 30:
                stop.set()

        clock.sleep = sleep  # type: ignore[method-assign]
        tube.work(handler, stop=stop)
        assert 1 in failing
        assert failing[-1] == 0


@pytest.mark.parametrize(("idle", "failed", "seconds"), [(0, 10, 0), (5, 13, 75)])
def test_work_with_idle_when_a_handler_never_succeeds_gives_up(
    idle: float, failed: int, seconds: float
) -> None:
    def handler(_: Task) -> None:
        raise ConnectionError("down")

    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 100)
        report = tube.work(handler, idle=idle)
        assert report.failed == failed
        assert report.buried <= 1
        assert seconds <= clock.monotonic() < seconds + 2


def test_work_when_a_handler_buries_goes_on() -> None:
    def handler(task: Task) -> None:
        raise Bury(f"no use for {task.data}")

    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 100)
        assert tube.work(handler, idle=5).buried == 100
        assert clock.monotonic() < 10
