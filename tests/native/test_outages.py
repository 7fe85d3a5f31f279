"""A worker loop keeps nearly all attempts of its tasks while something fails that its handler needs."""

from __future__ import annotations

import itertools
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import beat, until
from tubeq_spark import Bury, Queue, QueueConfig
from tubeq_spark.model.failures import GAVE_UP, PATIENCE
from tubeq_spark.runtime import session
from tubeq_spark.testing import InMemoryQueue, ManualClock
from tubeq_spark.workers.brake import UNCOUNTED
from tubeq_spark.workers.handlers import Ears
from tubeq_spark.workers.start import work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tubeq_spark import Task, Tube, WorkReport

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


def run(tube: Tube, handler: Callable[[Task], None], ears: Ears, **options: Any) -> WorkReport:
    """Work on a tube as `Tube.work` does, and call functions meanwhile."""
    usual = {"threads": 1, "batch": 1, "per_utube": 1, "utube": None, "idle": None, "stop": None}
    usual |= {"on_error": "release", "time_limit": None}
    return work(tube, handler, ears=ears, **usual | options)


def run_until_done(tube: Tube, handler: Callable[[Task], None], **options: Any) -> WorkReport:
    """Work on a tube until it has no task but buried ones."""
    stop = threading.Event()

    def look(report: WorkReport) -> None:
        tasks = tube.statistics()["tasks"]
        if tasks["total"] == tasks["buried"]:
            stop.set()

    return run(tube, handler, Ears(look), stop=stop, **options)


class Leaps(ManualClock):
    """A clock by which each pause is at least twenty seconds, for tests of hours."""

    def sleep(self, seconds: float) -> None:
        """Sleep for longer."""
        super().sleep(max(seconds, 20.0))


def filled(queue: Any, tasks: int) -> Tube:
    """A tube with this number of tasks; it buries them after three attempts."""
    tube: Tube = queue.create_tube("mail", "fifottl", max_attempts=3)
    tube.put_many(range(tasks))
    return tube


@pytest.mark.parametrize("threads", [1, 8])
def test_work_when_the_handler_is_down_for_a_while_keeps_the_tasks(
    threads: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 1_000)
        with caplog.at_level(logging.WARNING, "tubeq_spark.workers.brake"):
            report = run_until_done(tube, fails_for(clock, OUTAGE), threads=threads)

        assert (report.done, report.buried, report.gave_up) == (1_000, 0, False)
        assert report.failed < 10 + 2 * threads + 10
        began, ended = [
            record.getMessage() for record in caplog.records if record.name.endswith("brake")
        ]
    assert began == (
        "mail: 10 tasks failed in a row, the last one with ConnectionError('down'): no more are "
        "taken; in 10 s one is tried"
    )
    assert ended.startswith("mail: a task succeeded: after ")


def test_work_when_a_tube_has_only_bad_tasks_buries_them_in_the_end() -> None:
    def handler(task: Task) -> None:
        raise ValueError("bad")

    clock = Leaps()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 12)
        report = run_until_done(tube, handler)
        assert (report.done, report.buried) == (0, 12)
        assert UNCOUNTED < clock.monotonic() < 2 * UNCOUNTED


@pytest.mark.parametrize("idle", [0, 5])
def test_work_when_bad_tasks_come_first_tries_one_of_the_others(idle: float) -> None:
    seen: list[tuple[object, int]] = []

    def handler(task: Task) -> None:
        seen.append((task.data, task.attempts))
        if task.data == "bad":
            raise ValueError("bad")

    with InMemoryQueue(ManualClock()) as queue:
        tube = filled(queue, 0)
        tube.put_many(["bad"] * 12 + ["good"] * 50)
        report = tube.work(handler, idle=idle)

    assert (report.done, report.buried, report.gave_up) == (50, 12 if idle else 0, False)
    assert seen[:11] == [("bad", 1)] * 10 + [("good", 1)]
    # The tasks that were taken with it were given back, and such a take does not count as an attempt.
    assert [attempts for data, attempts in seen if data == "good"] == [1] * 50


def test_work_when_tasks_come_into_the_empty_tube_still_tries_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 10)
        stop = threading.Event()

        def look(_: object) -> None:
            if 5 < clock.monotonic() < 10:
                tube.truncate()
            if clock.monotonic() > 20 and not queue.statistics("mail")["tasks"]["total"]:
                tube.put_many(range(10))
            if clock.monotonic() > 30:
                stop.set()

        report = run(tube, fails_for(clock, 1_000), Ears(look), stop=stop)

    assert report.failed == 11
    begins = [record for record in caplog.records if "failed in a row, the" in record.getMessage()]
    assert len(begins) == 2


def test_work_when_a_loop_waits_for_longer_than_a_lease_other_programs_see_it(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    opened = partial(Queue, None, str(tmp_path / "q"), engine="native", clock=clock)
    with opened() as queue, opened() as other:
        queue.cfg(ttr=5)
        tube = filled(queue, 20)
        waits: dict[int, int] = {}

        def look(_: object) -> None:
            if (now := int(clock.monotonic())) not in waits:
                beat(queue._context.session)
                waits[now] = other.metrics().tubes["mail"].failing_workers

        run(tube, fails_for(clock, 9), Ears(look), idle=12)

    assert {failing for at, failing in waits.items() if 1 <= at < 10} == {1}
    assert waits[max(waits)] == 0


def test_work_when_a_loop_begins_and_ends_to_wait_other_programs_see_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_BEAT_MOST", 1_000)
    clock = ManualClock()
    opened = partial(Queue, None, str(tmp_path / "q"), engine="native", clock=clock)
    with opened() as queue, opened() as other:
        queue.cfg(ttr=3_600)
        tube = filled(queue, 11)
        own, others = (
            lambda q=q: q.metrics().tubes["mail"].failing_workers for q in (queue, other)
        )
        seen: list[int] = []

        def look(_: object) -> None:
            if seen[-1:] != [own()]:
                seen.append(own())
                until(lambda: others() == seen[-1])

        run(tube, fails_for(clock, 5), Ears(look), idle=12)

    assert seen == [0, 1, 0]


def test_work_when_one_call_runs_for_long_tries_another_task_all_the_same() -> None:
    clock, ends, failed = ManualClock(), threading.Event(), list[int]()

    def handler(task: Task) -> None:
        if task.data == 0:
            until(lambda: len(failed) >= 10)
            for _ in range(500):
                clock.advance(1)
                if ends.wait(0.002):
                    return
        elif len(failed) <= 10:
            failed.append(task.data)
            raise ConnectionError("down")
        ends.set()

    with InMemoryQueue(clock) as queue:
        run_until_done(filled(queue, 100), handler, threads=2)

    assert len(failed) == 11
    assert clock.monotonic() < 500


def test_work_when_a_batch_fails_again_and_again_gives_back_what_was_not_tried() -> None:
    called: list[int] = []

    def handler(tasks: list[Task]) -> None:
        called.append(len(tasks))
        raise ConnectionError("down")

    with InMemoryQueue(ManualClock()) as queue:
        tube = filled(queue, 100)
        report = tube.work(handler, batch=100, idle=0)
        begun = [task for task in tube.tasks_by_state("delayed") if task.attempts]
        untried = [task for task in tube.tasks_by_state("ready") if not task.attempts]

    # The last one is the try.
    assert len(called) == PATIENCE + 1
    assert report.failed == len(begun) + 1 == called.count(1)
    assert len(untried) == 100 - len(begun)


def test_work_when_all_fails_during_a_commit_begins_none_of_the_other_tasks_that_were_taken() -> (
    None
):
    seen: list[object] = []

    def handler(task: Task) -> None:
        seen.append(task.data)
        if task.data >= 30:
            raise ConnectionError("down")

    def wait_for_calls(step: str, _: str) -> None:
        before = 0
        while step == "decided" and len(seen) > before:
            before = len(seen)
            threading.Event().wait(0.02)

    with InMemoryQueue(ManualClock(), QueueConfig(observer=wait_for_calls)) as queue:
        tube = filled(queue, 200)
        report = tube.work(handler, idle=0)

    assert (report.done, report.failed) == (30, 11)
    # One of the others is tried.
    assert seen[:-1] == [*range(40)]


def test_work_when_a_type_without_delays_is_down_tries_at_least_once_a_minute() -> None:
    clock, tries = ManualClock(), list[float]()

    def handler(_: Task) -> None:
        tries.append(clock.monotonic())
        if clock.monotonic() < 600:
            raise ConnectionError("down")

    with InMemoryQueue(clock) as queue:
        tube = queue.create_tube("mail", "fifo")
        tube.put("a")
        run(
            tube,
            handler,
            Ears(lambda report: report.done and stop.set()),
            stop=(stop := threading.Event()),
        )

    pauses = [after - before for before, after in itertools.pairwise(tries)]
    assert max(pauses) < 62
    # After ten failures the pauses are those of the brake.
    assert [round(pause / 10) for pause in pauses[9:12]] == [1, 2, 4]


@pytest.mark.parametrize(
    ("idle", "failed", "seconds"), [(0, 11, 0), (5, 11, 5), (45, 13, 45), (600, 22, 600)]
)
def test_work_with_idle_when_a_handler_never_succeeds_gives_up_and_says_so(
    idle: float, failed: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(_: Task) -> None:
        raise ConnectionError("down")

    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 100)
        report = tube.work(handler, idle=idle)
        assert (report.failed, report.buried, report.gave_up) == (failed, 0, True)
        assert seconds <= clock.monotonic() < seconds + 2
        # The tries do not count as attempts. Each was of another task, which has its error.
        tried = [task for state in "r~" for task in tube.tasks_by_state(state) if task.error]
        assert (len(tried), sum(task.attempts for task in tried)) == (failed, 10)
    last = caplog.records[-1]
    assert last.levelno == logging.WARNING
    assert last.getMessage() == f"mail: {GAVE_UP}"


def test_work_when_a_handler_buries_goes_on() -> None:
    def handler(task: Task) -> None:
        raise Bury(f"no use for {task.data}")

    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = filled(queue, 100)
        assert tube.work(handler, idle=5).buried == 100
        assert clock.monotonic() < 10
