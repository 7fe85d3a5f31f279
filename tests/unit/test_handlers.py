"""A handler, and all that it starts, can fail its own tasks, and cannot break the loop of work."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import until
from tubeq_spark import Bury, FailedTasks, InvalidOptionError, TaskState
from tubeq_spark.streams.process import in_thread
from tubeq_spark.testing import InMemoryQueue, ManualClock
from tubeq_spark.workers.handlers import Ears
from tubeq_spark.workers.loop import Loop
from tubeq_spark.workers.start import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark import Task, Tube, WorkReport

WAIT = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Iterator[InMemoryQueue]:
    with InMemoryQueue(clock) as opened:
        yield opened


@pytest.fixture
def tube(queue: InMemoryQueue) -> Tube:
    return queue.create_tube("jobs", "fifottl", ttr=60, max_attempts=3)


def report_of(tube: Tube, handler: Any, **options: Any) -> WorkReport:
    """The report of a loop that must come to its end."""
    return in_thread(lambda: tube.work(handler, idle=0, **options)).result(WAIT)


def left(tube: Tube, state: TaskState = TaskState.DELAYED) -> dict[Any, str]:
    """The data and the errors of the tasks in a state."""
    return {str(task.data): task.error or "" for task in tube.tasks_by_state(state)}


#: What a child of `tubeq work --processes` does by default.
AS_CHILD: dict[str, Any] = {
    "threads": 1, "batch": 1, "per_utube": 1, "utube": None, "idle": 0, "stop": None,
    "on_error": "release", "time_limit": None,
}  # fmt: skip


def work_as_child(tube: Tube, handler: Callable[[Any], None], ears: Ears, **options: Any) -> None:
    """Work as such a child."""
    work(tube, handler, ears=ears, **AS_CHILD | options)


def workers() -> int:
    """How many threads of loops there are."""
    return sum(thread.name.startswith("tubeq-worker") for thread in threading.enumerate())


# -- what does not run when it is called --------------------------------------------------------------


async def coroutine(task: Task) -> None:
    """A coroutine function; what it returns has not run."""


def generator(_task: Task) -> Any:
    """A generator function; so has this."""
    yield


async def asynchronous_generator(_task: Task) -> Any:
    """And this."""
    yield


def returning(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that returns what another one returns, and does not look like that one."""

    def handle(given: Any) -> Any:
        return function(given)

    return handle


class Called:
    """An object whose calls are coroutines."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def __call__(self, task: Task, **_options: object) -> None:
        self.seen.append(task.data)


async def returns_another(task: Task) -> Any:
    """A coroutine that forgets to await another one."""
    return coroutine(task)


@pytest.mark.parametrize(
    "handler",
    [
        returning(coroutine),
        returning(generator),
        returning(asynchronous_generator),
        returns_another,
    ],
    ids=["coroutine", "generator", "asynchronous generator", "coroutine of a coroutine"],
)
def test_work_when_what_a_handler_returns_has_not_run_its_task_has_failed(
    tube: Tube, handler: Any
) -> None:
    tube.put("a")

    report = report_of(tube, handler)

    assert (report.done, report.failed) == (0, 1)
    assert "nothing of it has run" in left(tube)["a"]


@pytest.mark.parametrize("handler", [coroutine, generator, asynchronous_generator, Called()])
def test_handler_when_it_would_not_run_is_refused_where_nothing_awaits_it(
    queue: InMemoryQueue, tube: Tube, handler: Any
) -> None:
    tube.put("a")
    batch = tube.take_arrow(1)

    if handler in (generator, asynchronous_generator):
        with pytest.raises(InvalidOptionError, match="handler"):
            tube.work(handler, idle=0)
    with pytest.raises(InvalidOptionError, match="handler"):
        batch.process(handler)
    with pytest.raises(InvalidOptionError, match="callback"):
        tube.on_task_change(handler)
    with pytest.raises(InvalidOptionError, match="on_task_change"):
        queue.create_tube("other", on_task_change=handler)
    assert batch.release() == 1


# -- errors -------------------------------------------------------------------------------------------


class UnnamedError(FailedTasks):
    """One that does not have what it promises."""

    def __init__(self) -> None:
        """Leave the reasons out."""


class SilentBury(Bury):
    """One that cannot say why."""

    def __str__(self) -> str:
        """Fail."""
        raise ValueError


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "coroutine"])
@pytest.mark.parametrize(
    ("error", "state", "said"),
    [(UnnamedError, TaskState.DELAYED, "reasons"), (SilentBury, TaskState.BURIED, "Bury")],
)
def test_work_when_an_error_does_not_say_what_its_class_promises_the_task_has_failed(
    tube: Tube, error: type[Exception], state: TaskState, said: str, *, asynchronous: bool
) -> None:
    tube.put_many(["bad", "good"])

    def handle(task: Task) -> None:
        if task.data == "bad":
            raise error

    async def handle_async(task: Task) -> None:
        handle(task)

    report = report_of(tube, handle_async if asynchronous else handle)

    assert (report.done, report.failed) == (1, 1)
    assert said in left(tube, state)["bad"]


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_work_when_what_a_coroutine_begins_exits_its_task_has_failed_and_the_others_go_on(
    tube: Tube, ends: type[BaseException]
) -> None:
    tube.put_many(["bad", *range(5)])

    async def part() -> None:
        raise ends

    async def handle(task: Task) -> None:
        if task.data == "bad":
            await asyncio.gather(part())

    report = report_of(tube, handle, threads=2)

    assert (report.done, report.failed) == (5, 1)
    assert ends.__name__ in left(tube)["bad"]
    until(lambda: not workers())


def nothing(_task: Task) -> None:
    """A handler of nothing."""


def test_work_when_not_all_threads_can_be_started_ends_the_others(
    tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[str]()

    def start_two(thread: threading.Thread) -> None:
        if thread.name.startswith("tubeq-worker"):
            started.append(thread.name)
            if len(started) > 2:
                msg = "can't start new thread"
                raise RuntimeError(msg)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="new thread"):
        tube.work(nothing, idle=0, threads=8)

    until(lambda: not workers())


# -- calls with several tasks -------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "coroutine"])
def test_work_when_a_handler_that_changes_payloads_fails_calls_it_again_with_payloads_as_stored(
    tube: Tube, *, asynchronous: bool
) -> None:
    tube.put_many([{"to": ["ann"]}, {"to": ["bob"]}, {"to": ["nobody"]}, {"to": ["eve"]}])

    def handle(tasks: list[Task]) -> None:
        for task in tasks:
            if task.data["to"].pop() == "nobody":
                raise ValueError("no address")

    async def handle_async(tasks: list[Task]) -> None:
        handle(tasks)

    report = report_of(tube, handle_async if asynchronous else handle, batch=4)

    assert (report.done, report.failed) == (3, 1)
    assert left(tube).keys() == {"{'to': ['nobody']}"}


def test_work_when_nothing_is_to_be_taken_ahead_and_a_call_is_not_full_takes_no_more(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("few", "fifottl", ttr=60, most_taken=100)
    tube.put_many(range(3))
    steps, seen = list[object](), list[tuple[int, int]]()

    def handle(tasks: list[Task]) -> None:
        if not seen:
            tube.put_many(range(7))
            clock.advance(1)
            before = len(steps)
            until(lambda: len(steps) > before + 2)
        seen.append((len(tasks), queue.statistics(tube.name)["tasks"]["ready"]))

    work_as_child(tube, handle, Ears(steps.append), batch=10)

    # What came while the only thread had a call stayed in the tube, where others find it.
    assert seen == [(3, 7), (7, 0)]


def test_work_when_nothing_is_to_be_taken_ahead_and_a_call_has_lost_its_task_takes_the_others_after_it(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("few", "fifottl", ttr=60, most_taken=100)
    tube.put_many(["first", "second"])
    steps, seen = list[object](), list[object]()

    def handle(task: Task) -> None:
        seen.append(task.data)
        if task.data == "first":
            tube.ack(task.task_id)
            clock.advance(40)
            before = len(steps)
            # The loop finds out that the task is lost, and goes on.
            until(lambda: len(steps) > before + 2)

    work_as_child(tube, handle, Ears(steps.append))

    assert seen == ["first", "second"]
    assert queue.statistics(tube.name)["tasks"]["done"] == 2


def test_work_when_a_service_manager_and_the_parent_signal_a_child_finishes_what_is_in_hand(
    tube: Tube,
) -> None:
    tube.put("in hand")
    steps = list[object]()

    def handle(_task: Task) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            before = len(steps)
            until(lambda before=before: len(steps) > before + 1)

    work_as_child(tube, handle, Ears(steps.append, hands_on=True))

    assert not left(tube, TaskState.READY)


@pytest.mark.usefixtures("ctrl_c_comes")
@pytest.mark.parametrize("hangs", [True, False])
def test_work_when_a_second_signal_comes_says_whether_it_cut_a_call_off(
    tube: Tube, hangs: bool
) -> None:
    tube.put("in hand")
    cut_off, never = list[signal.Signals](), threading.Event()

    def signals() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    def handle(_task: Task) -> None:
        if hangs:
            signals()
            never.wait(WAIT)

    def told(report: WorkReport) -> None:
        if report.done:
            # In its next step the loop holds nothing.
            signals()

    work_as_child(tube, handle, Ears(told, cut_off=cut_off.append), idle=30)
    never.set()

    assert cut_off == [signal.SIGINT] * hangs


def test_work_when_it_waits_for_calls_has_told_of_all_that_it_acked(
    queue: InMemoryQueue, tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube.put_many(range(20))
    told, acked, wait = [0], [0], Loop._wait_for_calls

    def waits(loop: Loop) -> None:
        acked.append(queue.statistics(tube.name)["tasks"]["done"])
        assert told[-1] == acked[-1]
        wait(loop)

    monkeypatch.setattr(Loop, "_wait_for_calls", waits)
    work_as_child(tube, nothing, Ears(lambda report: told.append(report.done)))

    assert told[-1] == 20
    assert acked[-1] > 0


def test_work_when_a_batch_fails_tells_of_the_begin_and_the_end_of_each_call(tube: Tube) -> None:
    tube.put_many(range(4))
    seen: list[tuple[list[object], bool]] = []

    def handle(tasks: list[Task]) -> None:
        if any(task.data == 1 for task in tasks):
            raise ValueError

    def watch(tasks: Any, begins: bool) -> None:
        seen.append(([task.data for task in tasks], begins))

    work_as_child(tube, handle, Ears(calls=watch), batch=4)

    parts = [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3]]
    assert seen == [(part, begins) for part in parts for begins in (True, False)]


def test_log_of_a_failed_task_begins_with_the_frames_of_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_: Task) -> None:
        raise ValueError("no such host")

    with InMemoryQueue() as queue:
        tube = queue.create_tube("t", max_attempts=1)
        tube.put("a")
        tube.work(fails, idle=0)

    text = caplog.text
    assert "no such host" in text
    assert ", in fails" in text
    assert "handlers.py" not in text.partition("Traceback")[2].replace("test_handlers.py", "")
