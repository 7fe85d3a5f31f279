"""The loop of `work` takes enough tasks ahead for the time of each commit, and few ahead of slow calls."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tubeq_spark import Task, TaskState
from tubeq_spark.runtime.stopping import Stop
from tubeq_spark.testing import ManualClock
from tubeq_spark.workers.handlers import Ears, Limits, Outcome
from tubeq_spark.workers.loop import Loop

THREADS = 8
CREATED = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Paced:
    """A pool whose calls end when somebody says so, in their order."""

    def __init__(self) -> None:
        self._waiting: list[Task] = []
        self._ended: list[Task] = []

    def submit(self, tasks: list[Task]) -> None:
        self._waiting += tasks

    def go_on(self, calls: int) -> None:
        self._ended += self._waiting[:calls]
        self._waiting = self._waiting[calls:]

    def ended(self) -> list[Outcome]:
        ended, self._ended = self._ended, []
        return [Outcome(done=ended)]

    def wait(self, _seconds: float) -> None:
        """Wait for a call to end, unless one has ended meanwhile."""
        if not self._ended:
            self.go_on(1)


class Waiting:
    """A tube with tasks; while it commits, calls go on."""

    name = "t"
    takes_ahead = True
    frees_tasks = False

    def __init__(self, pool: Paced, tasks: int, pace: int) -> None:
        self._pool, self._pace, self.commits, self.most = pool, pace, 0, 0
        self._left = [
            Task(number, TaskState.READY, number, 0, None, None, None, CREATED, None, 1)
            for number in range(tasks)
        ]

    def count(self, event: str) -> None:
        """Nothing fails here."""

    def take(self, count: int, timeout: float = 0) -> list[Task]:
        self.commits += 1
        self.most = max(self.most, count)
        self._pool.go_on(self._pace)
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def finish(self, done: list[Task], count: int) -> tuple[list[Task], list[Task], list[Task]]:
        return done, [], self.take(count)


def worked(tasks: int, pace: int) -> Waiting:
    """A tube that was worked off; so many calls end while a commit is made."""
    pool, clock = Paced(), ManualClock()
    source = Waiting(pool, tasks, pace)
    parts: list[Any] = [source, pool]
    limits = Limits(THREADS, 1, 0.0, 0.1)
    report = Loop(*parts, Stop(), limits, clock, Ears()).run()
    assert report.done == tasks
    return source


@pytest.mark.parametrize("pace", [20, 160, 500])
def test_loop_when_calls_are_quick_soon_has_enough_for_the_time_of_each_commit(pace: int) -> None:
    commits = worked(40 * pace, pace).commits

    # 40 would do if enough were taken ahead from the first commit on.
    assert commits <= 60


def test_loop_when_calls_are_slow_takes_no_more_than_some_of_their_number_ahead() -> None:
    # Of eight calls one ends during a commit.
    assert worked(200, 1).most <= 3 * THREADS
