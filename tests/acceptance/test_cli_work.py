"""`tubeq work` runs a function in threads and processes, and replaces processes that end or are killed."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.command_line import invoke
from tests.programs import environment, ran
from tests.waiting import until
from tubeq_spark import PutItem, Queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT = 120.0
JOB = """
import os, signal, time
from pathlib import Path

def note(task):
    with open("seen", "a") as file:
        file.write(f"{task.data} {task.attempts}\\n")

def slow_at_first(task):
    note(task)
    if task.data == "slow" and task.attempts == 1:
        time.sleep(600)

def dies_at_first(task):
    note(task)
    if task.data == "bad" and task.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)

def exits(task):
    note(task)
    if task.data == "bad":
        os._exit(7)

def fails(task):
    raise ValueError("\x1b[31mno address")

def waits(task):
    note(task)
    while not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with a module of handlers, and a queue."""
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


@pytest.fixture
def queue(place: Path) -> Iterator[Queue]:
    """The queue."""
    with Queue(None, str(place / "q"), engine="native") as opened:
        opened.create_tube("jobs", "fifottl", max_attempts=5)
        yield opened


def started(place: Path, *arguments: str, tube: str = "jobs") -> subprocess.Popen[str]:
    """A call of `tubeq work` that runs."""
    command = [sys.executable, "-m", "tubeq_spark.cli", "--json", "--location", "q"]
    return subprocess.Popen(
        [*command, "work", tube, *arguments],
        cwd=place,
        env=environment(TUBEQ_ENGINE="native"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    """The exit code of a call, and its result."""
    out, err = process.communicate(timeout=3 * WAIT)
    lines = out.splitlines()
    return process.returncode, json.loads(lines[-1]) if lines else {"err": err}


def stopped(
    process: subprocess.Popen[str], queue: Queue, **left: int
) -> tuple[int, dict[str, Any]]:
    """Stop a call once the tube has these numbers of tasks by state; return its exit code and its result."""
    tasks = left.items()
    until(lambda: tasks <= queue.statistics("jobs")["tasks"].items())
    process.send_signal(signal.SIGTERM)
    return ended(process)


def in_calls(place: Path, queue: Queue, processes: str) -> subprocess.Popen[str]:
    """A pool of which each process has begun one of 20 tasks, whose calls wait for the file `go`."""
    queue["jobs"].put_many(range(20))
    process = started(place, "job:waits", "--processes", processes)
    until(lambda: len(seen(place)) == int(processes))
    return process


def await_stopping(process: subprocess.Popen[str], processes: str) -> None:
    """Wait until each process has said that it stops after its call."""
    assert process.stderr is not None
    for _ in range(int(processes)):
        assert json.loads(process.stderr.readline())["note"] == "stopping: 1 call in hand"


def seen(place: Path) -> list[str]:
    """What the handlers were called with: data and attempts."""
    file = place / "seen"
    return file.read_text().splitlines() if file.exists() else []


def test_work_in_one_process_does_all_tasks(place: Path, queue: Queue) -> None:
    queue["jobs"].put_many(range(30))

    code, result = ended(started(place, "job:note", "--threads", "3", "--idle", "0"))

    assert (code, result["done"], result["failed"]) == (0, 30, 0)
    assert len(seen(place)) == 30


def test_work_when_it_names_subqueues_leaves_the_others(place: Path, queue: Queue) -> None:
    hosts = queue.create_tube("hosts", "utube")
    hosts.put_many([PutItem(name, utube=name) for name in "abcd"])

    options = ("--utube", "b", "--utube=d", "--processes=2", "--idle", "1", "--")
    code, result = ended(started(place, *options, "job:note", tube="hosts"))

    assert (code, result["done"]) == (0, 2)
    assert [task.data for task in hosts.tasks_by_state("r")] == ["a", "c"]


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_work_when_there_is_nothing_ends_with_0(
    place: Path, queue: Queue, strict: tuple[str, ...]
) -> None:
    code, result = ended(started(place, "job:note", "--idle", "0", *strict))

    assert (code, result["done"]) == (0, 0)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(("strict", "expected"), [((), 0), (("--strict",), 4)])
def test_work_when_tasks_failed_ends_with_0_and_if_strict_with_4(
    place: Path, queue: Queue, strict: tuple[str, ...], expected: int, processes: str
) -> None:
    queue["jobs"].put("a")

    options = ("--bury", "--idle", "0.1", f"--processes={processes}", *strict)
    code, result = ended(started(place, "job:fails", *options))

    assert (code, result["buried"]) == (expected, 1)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_work_when_all_tasks_fail_gives_up_says_so_and_ends_with_3(
    place: Path, queue: Queue, processes: str
) -> None:
    queue["jobs"].put_many(range(50))

    options = ("--idle", "0", "--strict", "--processes", processes)
    process = started(place, "job:fails", *options)
    out, err = process.communicate(timeout=WAIT)

    assert (process.returncode, json.loads(out)["gave_up"]) == (3, True)
    last = json.loads(err.splitlines()[-1])
    said = "jobs: gave up, because call after call failed; tasks are left"
    assert (last["level"], last["note"]) == ("WARNING", said)


@pytest.mark.usefixtures("ctrl_c_comes")
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("is_in_background", [False, True])
def test_work_when_a_second_signal_cuts_it_off_says_so_by_its_exit_code(
    place: Path, queue: Queue, processes: str, is_in_background: bool
) -> None:
    if is_in_background:
        # So a shell starts programs in the background.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = in_calls(place, queue, processes)

    process.send_signal(signal.SIGTERM if is_in_background else signal.SIGINT)
    await_stopping(process, processes)
    process.send_signal(signal.SIGTERM)
    code, _ = ended(process)

    assert code == (143 if is_in_background else 130)
    assert queue.statistics("jobs")["tasks"]["ready"] == 20
    stopped = {task.error for task in queue["jobs"].tasks_by_state("r") if task.attempts}
    assert stopped == {"the worker was stopped before the call ended"}


def test_work_when_a_call_fails_says_of_which_task_and_why(place: Path, queue: Queue) -> None:
    task = queue["jobs"].put("a")

    process = started(place, "job:fails", "--idle", "0")
    out, err = process.communicate(timeout=WAIT)

    assert (process.returncode, json.loads(out)["failed"]) == (0, 1)
    (line,) = [json.loads(line) for line in err.splitlines()]
    assert line["note"].startswith(f"task {task.task_id} failed at attempt 1: ValueError: ")
    assert (line["level"], line["tube"], line["pid"]) == ("WARNING", "jobs", process.pid)
    assert dt.datetime.fromisoformat(line["at"]).tzinfo == dt.UTC
    assert "\x1b" not in err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_work_when_verbose_logs_each_failure_once_with_the_traceback_of_the_handler(
    place: Path, queue: Queue, processes: str
) -> None:
    queue["jobs"].put("a")
    command = ("-m", "tubeq_spark.cli", "--location", "q", "--verbose", "work", "jobs", "job:fails")
    options = ("--bury", "--idle", "0.1", "--processes", processes)

    done = ran(*command, *options, cwd=place, TUBEQ_ENGINE="native")

    assert done.returncode == 0

    first, *trace = done.stderr.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING jobs\[\d+\]: task \d+ failed at attempt 1: "
        r"ValueError: \\x1b\[31mno address",
        first,
    )
    assert trace[0].strip().startswith(f'File "{place}/job.py"')
    assert not [line for line in trace if "tubeq_spark" in line]
    [task] = queue["jobs"].tasks_by_state("!")
    assert "tubeq_spark" not in (task.error or "")


@pytest.mark.parametrize("function", ["job", "job:nothing", "nomodule:f", "job:os"])
def test_work_when_there_is_no_such_function_ends_with_2(
    place: Path, queue: Queue, function: str
) -> None:
    queue["jobs"].put("a")

    code, _ = ended(started(place, function, "--idle", "0"))

    assert code == 2
    assert queue.statistics("jobs")["tasks"]["ready"] == 1


def test_work_when_a_process_is_killed_starts_another_and_does_all_tasks(
    place: Path, queue: Queue
) -> None:
    queue["jobs"].put_many([*range(10), "bad"])

    process = started(place, "job:dies_at_first", "--processes", "2")
    code, result = stopped(process, queue, total=0)

    assert code == 0
    # What the killed process has done since its last report is not counted.
    assert result["done"] <= 11
    assert (result["failed"], result["buried"], result["died"]) == (1, 0, 1)
    assert queue.statistics("jobs")["tasks"]["total"] == 0
    # Tasks that were taken ahead lost no attempt.
    others = {f"{number} 1" for number in range(10)}
    assert others <= set(seen(place)) == others | {"bad 1", "bad 2"}


def test_work_when_a_task_ends_its_process_each_time_buries_it_with_the_reason(
    place: Path, queue: Queue
) -> None:
    queue["jobs"].alter(max_attempts=2)
    (task,) = queue["jobs"].put_many(["bad"])

    process = started(place, "job:exits", "--processes", "2")
    code, result = stopped(process, queue, buried=1)

    assert (code, result["done"], result["failed"], result["buried"]) == (0, 0, 2, 1)
    (buried,) = queue["jobs"].tasks_by_state("buried")
    assert buried.error == "the worker ended with exit code 7 during attempt 2"
    assert buried.task_id == task.task_id


def test_work_when_a_call_takes_too_long_kills_it_before_its_task_goes_back(
    place: Path, queue: Queue
) -> None:
    queue["jobs"].put("slow")

    process = started(place, "job:slow_at_first", "--time-limit", "0.5")
    code, result = stopped(process, queue, total=0)

    assert (code, result["done"], result["failed"]) == (0, 1, 1)
    assert seen(place) == ["slow 1", "slow 2"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_work_when_terminated_finishes_what_is_in_hand(
    place: Path, queue: Queue, processes: str
) -> None:
    process = in_calls(place, queue, processes)

    process.send_signal(signal.SIGTERM)
    await_stopping(process, processes)
    (place / "go").touch()
    code, result = ended(process)

    tasks = queue.statistics("jobs")["tasks"]
    assert (code, tasks["taken"]) == (0, 0)
    assert result["done"] == 20 - tasks["ready"] >= int(processes)
    assert {task.attempts for task in queue["jobs"].tasks_by_state("r")} <= {0}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_work_when_stopped_before_it_has_begun_ends_as_asked(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stopped(*_: object) -> None:
        raise error

    monkeypatch.setattr(Queue, "tube", stopped)

    found = invoke("--location", queue.location, "work", "jobs", "time:sleep")

    assert (found.exit_code, found.output) == (0, "")


@pytest.mark.parametrize("code", ["'no settings'", "0", ""])
def test_work_when_the_module_of_its_function_exits_says_so(place: Path, code: str) -> None:
    (place / "exits.py").write_text(f"import sys\nsys.exit({code})\n")

    ended_with, result = ended(started(place, "exits:handle"))

    assert ended_with == 2
    said = {"'no settings'": "no settings", "0": "0", "": "SystemExit"}[code]
    assert result["err"] == (
        '{"error": "BadUseError", "message": "the module of \'exits:handle\' cannot be imported: '
        f'{said}", "exit_code": 2}}\n'
    )


def test_work_when_its_parent_is_killed_ends(place: Path, queue: Queue) -> None:
    queue["jobs"].put_many(range(4))
    process = started(place, "job:waits", "--processes", "2")
    until(lambda: len(seen(place)) == 2)

    os.kill(process.pid, signal.SIGKILL)
    (place / "go").touch()
    process.communicate(timeout=WAIT)

    until(lambda: queue.statistics("jobs")["tasks"]["taken"] == 0)
    assert not [session for session in queue.sessions() if session.uuid != queue.session_uuid]
