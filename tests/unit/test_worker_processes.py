"""The parent of worker processes restarts dead children, kills silent ones, and fails only the tasks in their calls."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import uuid
from contextlib import nullcontext
from textwrap import indent
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.cli import work
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.errors import CommitUnknownError, ConflictError, SessionError, StoreError
from tubeq_spark.runtime.stopping import Stop
from tubeq_spark.testing import InMemoryQueue, ManualClock
from tubeq_spark.tube import Tube
from tubeq_spark.workers import start
from tubeq_spark.workers.handlers import WorkReport
from tubeq_spark.workers.processes import (
    BAD_USE,
    ChildFailedError,
    Death,
    Processes,
    settle_death,
)

if TYPE_CHECKING:
    import logging
    from pathlib import Path


#: What each child begins with: how it tells its parent something, and where it is the first of a directory.
CHILD = """
import os, sys, time

def tell(text):
    os.write(int(sys.argv[-1]), text.encode() + b"\\n")

def is_first(name):
    try:
        os.mkdir(os.path.join(sys.argv[1], name))
    except FileExistsError:
        return False
    return True
"""


class Parent:
    """Runs children in a directory; time passes only while it has none."""

    time_limit = float("inf")

    def __init__(self, place: Path, child: str, count: int = 1) -> None:
        self.clock = ManualClock()
        self.asked = threading.Event()
        self.given_back: list[Death] = []
        self.reports: list[WorkReport] = []
        # Without the site directories it begins at once.
        command = [sys.executable, "-I", "-S", "-c", CHILD + child, str(place)]
        self._place, self.stop = place, Stop(self.asked)
        self._processes = Processes(
            command,
            count,
            stop=self.stop,
            clock=self.clock,
            give_back=self.give_back,
            told=self.told,
            time_limit=self.time_limit,
        )

    def run(self) -> WorkReport:
        """Run them until all have ended."""
        return self._processes.run()

    def give_back(self, death: Death) -> int:
        """Note what a dead child held."""
        self.given_back.append(death)
        return 0

    def told(self, report: WorkReport) -> None:
        """Note what all have done so far."""
        self.reports.append(report)

    def kill(self) -> None:
        """Kill what runs still."""
        for child in self._processes._children:
            child.process.kill()


def without_pid(record: logging.LogRecord) -> str:
    """A line of the log about a process."""
    return re.sub(r"process \d+", "process N", record.getMessage())


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("os._exit(7)", "ended with exit code 7"),
        ("os._exit(0)", "ended with exit code 0"),
    ],
)
def test_child_when_it_dies_in_a_call_fails_its_task_and_gives_back_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ends: str, cause: str
) -> None:
    child = f"""
if not is_first('a'): os._exit(0)
tell('{{"session": "s"}}')
tell('{{"begun": [[1, 1], [2, 1]]}}')
tell('{{"over": [[1, 1], [2, 1]]}}')
tell('{{"begun": [[3, 2]]}}')
tell('{{"done": 2}}')
{ends}
"""
    parent = Parent(tmp_path, child)

    report = parent.run()

    assert (report.done, report.failed) == (2, 1)
    assert parent.clock.monotonic() >= 1
    assert parent.given_back == [Death("s", {(3, 2): f"the worker {cause} during attempt 2"})]
    assert [without_pid(record) for record in caplog.records] == [
        f"worker process N {cause} during task 3 (attempt 2); another one begins in 2 s"
    ]


def test_child_when_an_earlier_attempt_of_a_task_is_over_is_still_in_the_call_of_the_later_one(
    tmp_path: Path,
) -> None:
    child = """
if not is_first('a'): os._exit(0)
tell('{"session": "s"}')
tell('{"begun": [[1, 1]]}')
tell('{"begun": [[1, 2]]}')
tell('{"over": [[1, 1]]}')
os._exit(7)
"""
    parent = Parent(tmp_path, child)

    parent.run()

    (death,) = parent.given_back
    assert death.errors == {(1, 2): "the worker ended with exit code 7 during attempt 2"}


def test_child_when_it_dies_before_its_first_call_holds_no_tasks_to_settle(tmp_path: Path) -> None:
    parent = Parent(tmp_path, "tell('{\"session\": \"s\"}')\nos._exit(not not is_first('a'))")

    parent.run()

    # A queue is not opened for that; with Spark this would start a JVM.
    assert not parent.given_back


def test_death_settles_only_the_attempts_that_it_names_and_reads_no_tasks_of_others() -> None:
    with InMemoryQueue(ManualClock()) as queue, InMemoryQueue(beside=queue) as other:
        tube = queue.create_tube("jobs", max_attempts=2)
        tube.put_many(["others", "early", "bad", "not begun"])
        assert other["jobs"].take(0).data == "others"
        tube.release(tube.take(0).task_id)
        early, bad, _ = tube.take_many(3)
        assert (early.attempts, bad.attempts) == (2, 1)
        errors = {(early.task_id, 1): "it was long ago", (bad.task_id, 1): "the worker ended"}
        read: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tube, "tasks_by_state", lambda *_: read.append("all"))
            buried = settle_death(tube, Death(str(queue.session_uuid), errors), buries=False)
        left = {task.data: task for state in "r~" for task in tube.tasks_by_state(state)}

    assert (buried, read) == (0, [])
    assert {data: task.attempts for data, task in left.items()} == {
        "early": 1,
        "bad": 1,
        "not begun": 0,
    }
    assert [task.error for task in left.values()].count("the worker ended") == 1


class Stopped(Parent):
    """It is asked to end once a child has told something."""

    def told(self, report: WorkReport) -> None:
        if report.done:
            self.asked.set()


@pytest.mark.parametrize("code", ["-15", "143", "1"])
def test_child_when_it_ends_after_a_stop_was_asked_for_has_died_only_by_other_codes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    ends = "" if code == "-15" else f"signal.signal(15, lambda *_: os._exit({code}))"
    parent = Stopped(tmp_path, f"import signal\n{ends}\ntell('{{\"done\": 1}}')\ntime.sleep(600)")

    assert parent.run().done == 1

    logged = [without_pid(record) for record in caplog.records]
    died = ["worker process N ended with exit code 1 without a task in a call"]
    assert logged == (died if code == "1" else [])


class LeftAlone(Parent):
    """It tells a child that the other one has ended."""

    def told(self, report: WorkReport) -> None:
        if len(self._processes._children) == 1:
            (self._place / "alone").mkdir(exist_ok=True)


@pytest.mark.parametrize("is_last", [False, True])
def test_parent_when_a_child_gave_up_has_given_up_unless_another_one_has_done_the_rest(
    tmp_path: Path, is_last: bool
) -> None:
    child = f"""
gives_up = is_first('a')
tell('{{"gave_up": true}}' if gives_up else '{{"done": 1}}')
while gives_up is {is_last} and not os.path.exists(os.path.join(sys.argv[1], 'alone')):
    time.sleep(0.01)
"""
    assert LeftAlone(tmp_path, child, 2).run().gave_up is is_last


class StoppedTwice(Parent):
    """Two signals come at once; it tells the child when it has handed them on."""

    def told(self, report: WorkReport) -> None:
        if self.stop.is_urgent:
            (self._place / "sent").touch()
        elif report.done:
            self.stop._came(signal.SIGTERM, None)
            self.stop._came(signal.SIGTERM, None)


def test_child_when_two_signals_come_while_it_is_in_a_long_call_gets_both(tmp_path: Path) -> None:
    child = """
import signal
came = []
both = [signal.SIGTERM, signal.SIGINT]
for each in both: signal.signal(each, lambda *_: came.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, both)
tell('{"done": 1}')
while not os.path.exists(os.path.join(sys.argv[1], "sent")): time.sleep(0.01)
signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
tell('{"done": %d}' % len(came))
"""
    assert StoppedTwice(tmp_path, child).run().done == 2


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_parent_when_two_signals_come_knows_whether_a_child_was_cut_off(
    tmp_path: Path, is_cut_off: bool
) -> None:
    child = f"""
import signal
asked = []
for each in [signal.SIGTERM, signal.SIGINT]: signal.signal(each, lambda *_: asked.append(1))
tell('{{"begun": [[1, 1]]}}')
tell('{{"done": 1}}')
while len(asked) < 2: time.sleep(0.01)
if {is_cut_off}: tell('{{"cut_off": 15}}')
else: tell('{{"over": [[1, 1]]}}')
"""
    parent = StoppedTwice(tmp_path, child)

    assert parent.run().failed == 0
    assert parent._processes.has_cut_off is is_cut_off


class Limited(Parent):
    """Its calls may run for 5 s; time passes until it has asked a child to end."""

    time_limit = 5.0

    def told(self, report: WorkReport) -> None:
        super().told(report)
        if any(self.waits_for(child) for child in self._processes._children):
            self.clock.advance(2)

    def waits_for(self, child: Any) -> bool:
        """Whether time passes in a call of a child."""
        return bool(child.in_calls) and child.asked is None


class Unanswered(Limited):
    """Time also passes after that."""

    def waits_for(self, child: Any) -> bool:
        return bool(child.in_calls)


#: A child that is asked to end because of a call; another call that begins then; and how it settles the rest.
OVERDUE = """
import signal
asked = []
signal.signal(15, lambda *_: asked.append(1))
tell('{"session": "s"}')
tell('{"begun": [[1, 2]]}')
while not asked: time.sleep(0.01)
"""
LATER = "tell('{\"begun\": [[2, 1]]}')"
SETTLES = """
tell('{"done": 3}')
tell('{"stopping": 2}')
while True:
  tell('{"done": 4}')
  time.sleep(0.1)
"""
#: Only the task of the call that took too long has failed.
DEATH = Death(
    "s",
    {(1, 2): "the call took longer than 5 s: the worker was killed by SIGKILL during attempt 2"},
)


def test_child_when_a_call_is_overdue_is_killed_after_it_has_settled_and_another_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parent = Limited(tmp_path, f"if is_first('a'):{indent(OVERDUE + LATER + SETTLES, '  ')}")

    assert parent.run().done == 4

    assert parent.given_back == [DEATH]
    assert without_pid(caplog.records[0]) == (
        "worker process N was killed by SIGKILL, because the call took longer than 5 s, during "
        "task 1 (attempt 2); another one begins in 0 s"
    )


@pytest.mark.parametrize("is_ending", [False, True])
def test_child_when_it_lets_no_other_thread_run_is_killed_all_the_same(
    tmp_path: Path, is_ending: bool
) -> None:
    said = "tell('{\"stopping\": 1}')" * is_ending
    parent = Unanswered(
        tmp_path, f"if is_first('a'):{indent(OVERDUE + said, '  ')}\n  time.sleep(600)"
    )

    parent.run()

    assert (1, 2) in parent.given_back[0].errors
    assert parent.clock.monotonic() > 35


def test_child_when_the_overdue_call_ends_in_time_is_not_killed_and_another_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = f"""
if is_first('a'):{indent(OVERDUE, "  ")}
  tell('{{"over": [[1, 2]]}}')
tell('{{"done": 1}}')
"""
    parent = Limited(tmp_path, child)

    assert parent.run().done == 2

    assert not parent.given_back
    assert not caplog.records


def test_child_when_the_terminal_signals_its_parents_group_does_not_get_the_signal(
    tmp_path: Path,
) -> None:
    parent = Parent(tmp_path, "tell('{\"done\": %d}' % (os.getpgrp() == os.getpid()))")

    assert parent.run().done == 1


def ended(parent: Parent) -> Exception | None:
    """What the run of a parent raised; it has to end."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            parent.run()
        except Exception as error:  # noqa: BLE001  (it is what is asked for)
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    still_runs = thread.is_alive()
    parent.kill()
    assert not still_runs
    return raised[0] if raised else None


#: Two children: the first one does something once it is told to end, the other one is what nothing can help.
SECOND_FAILS = """
import signal
if not is_first("a"):
    while not os.path.exists(os.path.join(sys.argv[1], "listens")): time.sleep(0.01)
    os._exit(2)
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
is_first("listens")
while not asked: time.sleep(0.01)
"""


def test_parent_when_an_error_ends_it_kills_a_child_whose_call_is_overdue_then(
    tmp_path: Path,
) -> None:
    parent = Limited(tmp_path, SECOND_FAILS + OVERDUE.replace("asked = []", "") + SETTLES, 2)

    error = ended(parent)

    assert isinstance(error, ChildFailedError)
    assert error.code == BAD_USE
    assert parent.given_back == [DEATH]


def test_parent_when_an_error_ends_it_reads_what_children_tell_until_they_end(
    tmp_path: Path,
) -> None:
    # More than a pipe holds.
    parent = Parent(
        tmp_path, SECOND_FAILS + "for n in range(20_000): tell('{\"done\": %d}' % n)", 2
    )

    assert isinstance(ended(parent), ChildFailedError)

    assert parent.reports[-1].done == 19_999


class Failing(Limited):
    """Its first call that gives something back fails."""

    def __init__(self, place: Path, error: Exception) -> None:
        super().__init__(
            place, f"if is_first('a'):{indent(OVERDUE + SETTLES, '  ')}\ntell('{{\"done\": 1}}')"
        )
        self._error = error

    def give_back(self, death: Death) -> int:
        super().give_back(death)
        raise self._error


def test_parent_when_the_session_of_a_killed_child_is_over_goes_on(tmp_path: Path) -> None:
    parent = Failing(tmp_path, SessionError("it is over"))

    assert ended(parent) is None

    assert (parent.reports[-1].done, parent.reports[-1].failed) == (5, 1)


@pytest.mark.parametrize(
    "error",
    [
        StoreError("no answer", passes=True),
        CommitUnknownError("no answer"),
        ConflictError("rivals"),
    ],
)
def test_parent_when_the_storage_fails_for_a_moment_leaves_tasks_of_a_killed_child_to_their_leases(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    parent = Failing(tmp_path, error)

    assert ended(parent) is None

    assert parent.reports[-1].done == 5
    assert caplog.records[-1].getMessage() == (
        f"the tasks of a dead worker process come back when their leases end: {error}"
    )


def test_progress_is_told_now_and_then_if_there_is_any(caplog: pytest.LogCaptureFixture) -> None:
    tell = work._teller()
    with caplog.at_level("INFO", "tubeq_spark.cli"):
        for report in [(0, 15.0), (3, 16.0), (3, 40.0), (4, 41.0), (5, 45.0)]:
            tell(WorkReport(done=report[0], seconds=report[1]))

    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["3 done", "4 done"]


# -- a child -----------------------------------------------------------------------------------------


def test_child_when_it_begins_to_work_has_said_what_its_session_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, pipe = os.pipe()
    os.set_blocking(theirs, False)
    said: list[bytes] = []

    def loop(_tube: Any, _handler: Any, **_: Any) -> WorkReport:
        said.append(os.read(theirs, 100))
        return WorkReport(done=1)

    monkeypatch.setattr(start, "work", loop)
    queue = SimpleNamespace(session_uuid=uuid.uuid4(), tube=lambda _: None)
    call: Any = SimpleNamespace(
        queue=lambda **_: nullcontext(queue), logged=lambda _: nullcontext()
    )
    work._child(call, "t", None, {"time_limit": None}, pipe)
    for each in (pipe, theirs):
        os.close(each)

    assert said[0].startswith(b'{"session": ')


@pytest.mark.parametrize("is_read", [True, False])
def test_child_when_a_call_is_overdue_and_its_parent_was_killed_ends_itself(
    monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    codes, ends = list[int](), threading.Event()
    parents = [7, 1] if is_read else [1]

    def leave(code: int) -> None:
        codes.append(code)
        ends.set()

    def loop(
        _tube: Any, _handler: Any, *, stop: threading.Event, ears: Any, **_: Any
    ) -> WorkReport:
        ears.progress(WorkReport())
        assert stop.is_set()
        assert ends.wait(30)
        return WorkReport()

    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0) if len(parents) > 1 else parents[0])
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(work, "_MORE", 0.0)
    monkeypatch.setattr(start, "work", loop)
    queue = SimpleNamespace(session_uuid=uuid.uuid4(), tube=lambda _: None)
    call: Any = SimpleNamespace(
        queue=lambda **_: nullcontext(queue), logged=lambda _: nullcontext()
    )
    theirs, pipe = os.pipe()
    if not is_read:
        os.close(theirs)
    work._child(call, "t", None, {"time_limit": 0.01}, pipe)
    for each in [pipe, *([theirs] if is_read else [])]:
        os.close(each)

    assert codes == [ExitCode.FAILED]
