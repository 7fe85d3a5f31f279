"""`Tube.work` calls a handler for each task, then acks, releases or buries the task by the outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import WAIT, calls, counts
from tests.waiting import until
from tubeq_spark import (
    Bury,
    FailedTasks,
    InvalidOptionError,
    PutItem,
    QueueConfig,
    QueueStateError,
    StoreError,
    TaskState,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import InBackground, NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock


def failing(*bad: object) -> Any:
    """A handler that fails at some data."""

    def handle(task: Task) -> None:
        if task.data in bad:
            raise ValueError(task.data)

    return handle


def attempts(tube: Tube, state: TaskState) -> dict[object, int]:
    """How often the tasks of a state were taken, by their data."""
    return {task.data: task.attempts for task in tube.tasks_by_state(state)}


def counted(queue: Queue, tube: Tube, state: str) -> int:
    """How many tasks are in a state."""
    return counts(queue, tube).get(state, 0)


# -- what becomes of tasks ---------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["fifottl", "utube"])
def test_work_when_a_handler_returns_acks_its_tasks(
    queue: Queue, new_tube: NewTube, type_name: str
) -> None:
    tube = new_tube(type_name)
    tube.put_many(range(40))
    seen: list[object] = []

    report = tube.work(lambda task: seen.append(task.data), threads=4, idle=0)

    assert (report.done, report.failed, report.buried) == (40, 0, 0)
    assert sorted(map(int, map(str, seen))) == [*range(40)]
    assert counted(queue, tube, "total") == 0


@pytest.mark.parametrize(
    ("raised", "on_error", "state"),
    [
        (ValueError, "release", TaskState.DELAYED),
        (SystemExit, "release", TaskState.DELAYED),
        (ValueError, "bury", TaskState.BURIED),
        (Bury, "release", TaskState.BURIED),
    ],
)
def test_work_when_a_handler_raises_releases_its_task_with_a_delay_or_buries_it(
    queue: Queue, new_tube: NewTube, raised: type[BaseException], on_error: str, state: TaskState
) -> None:
    tube = new_tube("fifottl")
    tube.put_many(range(3))

    def handle(task: Task) -> None:
        if task.data == 1:
            raise raised

    report = tube.work(handle, idle=0, on_error=on_error)

    is_buried = int(state is TaskState.BURIED)
    assert (report.done, report.failed, report.buried) == (2, 1, is_buried)
    assert attempts(tube, state) == {1: 1}
    verb = "bury" if is_buried else "release"
    assert calls(queue, tube) == {"put": 3, "take": 3, "ack": 2, verb: 1}


def test_work_when_a_task_fails_again_delays_it_for_longer_until_it_is_buried(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", max_attempts=4)
    tube.put("bad")
    delays = []
    for _ in range(3):
        tube.work(failing("bad"), idle=0)
        (task,) = tube.tasks_by_state(TaskState.DELAYED)
        delays.append((task.next_event - clock.now()).total_seconds())
        clock.advance(delays[-1] + 0.001)

    assert [round(delay) for delay in delays] == [1, 2, 4]
    report = tube.work(failing("bad"), idle=0)
    assert (report.failed, report.buried) == (1, 1)


def test_work_when_a_type_cannot_delay_waits_before_it_takes_again(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifo", max_attempts=3)
    tube.put("bad")
    before = clock.monotonic()

    report = tube.work(failing("bad"), idle=0)

    assert (report.failed, report.buried) == (3, 1)
    assert clock.monotonic() - before >= 0.9 * (1 + 2)


def test_work_when_a_type_with_subqueues_cannot_delay_goes_on_with_other_subqueues(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utube", max_attempts=2)
    tube.put_many([PutItem("bad", utube="a"), PutItem("after", utube="a")])
    tube.put_many(range(3), utube="b")
    began, seen = clock.monotonic(), list[tuple[object, bool]]()

    def handle(task: Task) -> None:
        seen.append((task.data, clock.monotonic() - began >= 0.9))
        if task.data == "bad":
            raise ValueError(task.data)
        # Nobody else tries it sooner, and none of its sub-queue comes before it.
        assert task.utube == "a" or tube.take(0, utube="a") is None

    report = tube.work(handle, idle=0)

    assert (report.done, report.failed, report.buried) == (4, 2, 1)
    at_once = [("bad", False), (0, False), (1, False), (2, False)]
    assert seen == [*at_once, ("bad", True), ("after", True)]


# -- batches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("raises", [True, False])
def test_work_when_a_handler_names_failed_tasks_does_the_others(
    new_tube: NewTube, *, raises: bool
) -> None:
    tube = new_tube("fifottl")
    tube.put_many(range(8))
    called = 0

    def handle(tasks: list[Task]) -> FailedTasks:
        nonlocal called
        called += 1
        failed = FailedTasks(
            {t.task_id: Bury("gone") if t.data == 1 else "later" for t in tasks if t.data in (1, 2)}
        )
        if raises:
            raise failed
        return failed

    report = tube.work(handle, batch=8, idle=0)

    assert (report.done, report.failed, report.buried, called) == (6, 2, 1, 1)
    assert attempts(tube, TaskState.BURIED) == {1: 1}
    assert attempts(tube, TaskState.DELAYED) == {2: 1}


# -- coroutines --------------------------------------------------------------------------------------


def test_work_when_a_handler_is_a_coroutine_runs_so_many_at_a_time(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    tube.put_many(range(12))
    running = most = 0

    async def handle(_task: Task) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    report = tube.work(handle, threads=3, idle=0)

    assert report.done == 12
    assert most == 3


def test_work_when_a_coroutine_exceeds_its_time_limit_cancels_it(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    tube.put("long")
    cancelled = []

    async def handle(_task: Task) -> None:
        try:
            await asyncio.sleep(WAIT)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    report = tube.work(handle, idle=0, time_limit=0.05)

    assert (report.done, report.failed, cancelled) == (0, 1, [True])
    assert attempts(tube, TaskState.DELAYED) == {"long": 1}


# -- leases ------------------------------------------------------------------------------------------


def test_work_when_a_handler_outlasts_the_ttr_keeps_its_task(
    queue: Queue, other: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=30, ttl=10_000)
    tube.put("long")
    ends = []

    def handle(task: Task) -> None:
        for _ in range(10):
            before = tube.peek(task.task_id).next_event
            clock.advance(20)
            until(lambda before=before: tube.peek(task.task_id).next_event != before)
        ends.append(tube.peek(task.task_id))
        assert other[tube.name].take(0) is None

    report = tube.work(handle, idle=0)

    assert (report.done, report.failed) == (1, 0)
    (task,) = ends
    assert (task.ttr, task.ttl, task.attempts) == (30, 10_000, 1)
    assert (task.next_event - clock.now()).total_seconds() <= 30
    assert "touch" not in calls(queue, tube)


@pytest.mark.parametrize("reason", [ValueError("bad"), Bury("bad")], ids=["error", "bury"])
def test_work_when_a_task_to_bury_was_deleted_works_on(
    other: Queue, new_tube: NewTube, reason: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tube = new_tube("fifottl", ttr=30)
    tube.put_many(range(3))

    def handle(task: Task) -> None:
        if task.data == 0:
            other[tube.name].delete(task.task_id)
            raise reason

    report = tube.work(handle, idle=0, on_error="bury")

    assert (report.done, report.buried) == (2, 0)
    assert "was lost" in caplog.text


def test_work_when_a_task_that_was_taken_ahead_is_lost_does_not_begin_it(
    other: Queue, new_tube: NewTube, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    tube = new_tube("fifottl", ttr=30)
    ids = [task.task_id for task in tube.put_many(range(12))]
    seen: list[int] = []

    def handle(task: Task) -> None:
        seen.append(task.data)
        if task.data == 5:
            other[tube.name].delete_many(ids[6:])
            clock.advance(20)
            # The loop tells of each one, and forgets them after the last.
            until(lambda: "was lost" in caplog.text and not grows(lambda: caplog.text))

    report = tube.work(handle, idle=0)

    assert (seen, report.done) == ([0, 1, 2, 3, 4, 5], 6)


# -- its end -----------------------------------------------------------------------------------------


def test_work_when_stopped_finishes_what_is_in_hand_and_gives_back_the_rest(
    queue: Queue, new_tube: NewTube, in_background: InBackground
) -> None:
    tube = new_tube("fifottl", max_attempts=3)
    tube.put_many(range(50))
    stop, begun, go_on = threading.Event(), threading.Event(), threading.Event()

    def handle(_task: Task) -> None:
        begun.set()
        assert go_on.wait(WAIT)

    working = in_background(tube.work, handle, threads=2, stop=stop)
    assert begun.wait(WAIT)
    stop.set()
    until(lambda: counted(queue, tube, "taken") <= 2)
    go_on.set()

    assert working.result(WAIT).done == 2
    assert counted(queue, tube, "ready") == 48
    assert set(attempts(tube, TaskState.READY).values()) == {0}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_work_when_an_error_ends_it_gives_back_what_is_held_and_begins_no_other(
    queue: Queue, session: Session, new_tube: NewTube, clock: ManualClock, *, asynchronous: bool
) -> None:
    tube = new_tube("fifottl", ttr=30)
    tube.put_many(range(20))
    go_on = threading.Event()
    seen: list[object] = []

    def handle(task: Task) -> None:
        seen.append(task.data)
        if task.data == 1:
            until(lambda: counted(queue, tube, "taken") > 1)
            clock.advance(20)
            assert go_on.wait(WAIT)

    async def handle_async(task: Task) -> None:
        await asyncio.to_thread(handle, task)

    def fail(step: str, operation: str) -> None:
        if (step, operation) == ("read", "renew"):
            raise StoreError("503", passes=False)

    mine = session(config=QueueConfig(observer=fail))[tube.name]
    with pytest.raises(StoreError, match="503"):
        mine.work(handle_async if asynchronous else handle, idle=0)
    held = counted(queue, tube, "taken")
    go_on.set()

    assert held == 0
    assert not grows(lambda: str(seen))
    assert seen == [0, 1]
    # That of the call that runs was begun; those of the others were not.
    assert attempts(tube, TaskState.READY) == {n: int(n == 1) for n in range(1, 20)}


def test_work_when_idle_ends_after_so_many_seconds(new_tube: NewTube, clock: ManualClock) -> None:
    tube = new_tube("fifottl")
    tube.put("first")
    tube.put("later", delay=5)
    before = clock.monotonic()

    report = tube.work(lambda _: None, idle=10)

    assert report.done == 2
    assert 15 <= clock.monotonic() - before < 20


def test_work_when_the_queue_is_closed_raises(session: Session, new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    tube.put("a")
    opened = session()
    mine = opened[tube.name]

    with pytest.raises(QueueStateError):
        mine.work(lambda _: opened.close(), idle=0)


@pytest.mark.usefixtures("ctrl_c_comes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_when_a_signal_comes_ends_after_the_task_in_hand(
    queue: Queue, new_tube: NewTube, number: int
) -> None:
    tube = new_tube("fifottl")
    tube.put_many(range(20))
    before = signal.getsignal(number)

    report = tube.work(lambda _: os.kill(os.getpid(), number))

    assert report.done >= 1
    assert counted(queue, tube, "taken") == 0
    assert report.done + counted(queue, tube, "ready") == 20
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("type_name", "max_attempts", "state"), [("fifottl", None, "ready"), ("fifo", 1, "buried")]
)
def test_work_when_a_second_signal_comes_gives_back_what_is_in_hand(
    new_tube: NewTube, type_name: str, max_attempts: int | None, state: str
) -> None:
    tube = new_tube(type_name, max_attempts=max_attempts)
    tube.put("endless")
    never = threading.Event()

    def handle(_task: Task) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(0.3)
        never.wait(WAIT)

    report = tube.work(handle)
    never.set()

    assert report.done == 0
    (task,) = tube.tasks_by_state(state)
    assert (task.data, task.attempts) == ("endless", 1)
    assert task.error == "the worker was stopped before the call ended"


# -- bad input ---------------------------------------------------------------------------------------


async def coroutine(_task: Task) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    "bad",
    [
        {"handler": "no function"},
        {"threads": 0},
        {"threads": True},
        {"batch": 0},
        {"per_utube": 2},
        {"idle": -1},
        {"stop": "now"},
        {"on_error": "retry"},
        {"time_limit": 5},
        {"handler": coroutine, "time_limit": 0},
    ],
    ids=" ".join,
)
def test_work_when_an_argument_is_bad_refuses_it_and_takes_nothing(
    queue: Queue, new_tube: NewTube, bad: dict[str, Any]
) -> None:
    tube = new_tube("fifottl")
    tube.put("a")

    with pytest.raises(InvalidOptionError):
        tube.work(**{"handler": lambda _: None, "idle": 0} | bad)

    assert counted(queue, tube, "ready") == 1


def grows(text: Callable[[], str]) -> bool:
    """Whether a text becomes longer within half a second."""
    before = text()
    threading.Event().wait(0.5)
    return text() != before
