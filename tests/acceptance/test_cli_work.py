"""`tubeq work` runs a function, says what became of the tasks, and replaces processes that end or are killed.

Tests that need no further process call the command in their own.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.command_line import invoke
from tests.programs import environment
from tests.waiting import until
from tubeq_spark import PutItem, Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

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

def dies(task):
    note(task)
    if task.data == "killed" and task.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if task.data == "exits":
        os._exit(7)

def fails(task):
    raise ValueError("\x1b[31mno address")

def waits(task):
    note(task)
    while not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a module of handlers and a queue."""
    (tmp_path / "job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUBEQ_ENGINE", "native")
    # Each test imports a module of this name, from a folder that the command adds.
    monkeypatch.delitem(sys.modules, "job", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def queue(place: Path) -> Iterator[Queue]:
    """The queue."""
    with Queue(None, str(place / "q"), engine="native") as opened:
        opened.create_tube("jobs", "fifottl", max_attempts=5)
        yield opened


def worked(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Call `tubeq work` in this process; return its exit code, its result and its standard error."""
    found = invoke("--json", "--location", "q", "work", "jobs", *arguments)
    return found.exit_code, json.loads(found.stdout or "{}"), found.stderr


def started(*arguments: str, tube: str = "jobs", option: str = "--json") -> subprocess.Popen[str]:
    """A call of `tubeq work` that runs."""
    command = [sys.executable, "-m", "tubeq_spark.cli", option, "--location", "q"]
    return subprocess.Popen(
        [*command, "work", tube, *arguments],
        env=environment(),
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


def in_calls(queue: Queue, processes: str) -> subprocess.Popen[str]:
    """A pool of which each process has begun one of 20 tasks, whose calls wait for the file `go`."""
    queue["jobs"].put_many(range(20))
    process = started("job:waits", "--processes", processes)
    until(lambda: len(seen()) == int(processes))
    return process


def await_stopping(process: subprocess.Popen[str], processes: str) -> None:
    """Wait until each process has said that it stops after its call."""
    assert process.stderr is not None
    for _ in range(int(processes)):
        assert json.loads(process.stderr.readline())["note"] == "stopping: 1 call in hand"


def seen() -> list[str]:
    """What the handlers were called with: data and attempts."""
    file = Path("seen")
    return file.read_text().splitlines() if file.exists() else []


def test_work_in_one_process_does_all_tasks_and_ends_with_0_when_there_is_nothing(
    queue: Queue,
) -> None:
    queue["jobs"].put_many(range(30))

    code, result, said = worked("job:note", "--threads", "3", "--idle", "0")

    assert (code, result["done"], result["failed"], said) == (0, 30, 0, "")
    assert len(seen()) == 30
    code, result, _ = worked("job:note", "--idle", "0", "--strict")
    assert (code, result["done"]) == (0, 0)


@pytest.mark.parametrize(("strict", "expected"), [((), 0), (("--strict",), 4)])
def test_work_when_a_task_failed_says_which_and_why_and_ends_with_0_and_if_strict_with_4(
    queue: Queue, strict: tuple[str, ...], expected: int
) -> None:
    task = queue["jobs"].put("a")

    code, result, said = worked("job:fails", "--idle", "0", *strict)

    assert (code, result["failed"]) == (expected, 1)
    line = json.loads(said)
    assert line["note"].startswith(f"task {task.task_id} failed at attempt 1: ValueError: ")
    assert (line["level"], line["tube"], line["pid"]) == ("WARNING", "jobs", os.getpid())
    assert dt.datetime.fromisoformat(line["at"]).tzinfo == dt.UTC
    assert "\x1b" not in said


def test_work_when_all_tasks_fail_gives_up_says_so_and_ends_with_3(queue: Queue) -> None:
    queue["jobs"].put_many(range(50))

    code, result, said = worked("job:fails", "--idle", "0", "--strict")

    assert (code, result["gave_up"]) == (3, True)
    last = json.loads(said.splitlines()[-1])
    note = "jobs: gave up, because call after call failed; tasks are left"
    assert (last["level"], last["note"]) == ("WARNING", note)


@pytest.mark.usefixtures("ctrl_c_comes")
@pytest.mark.parametrize(("processes", "is_in_background"), [("1", False), ("2", True)])
def test_work_when_a_second_signal_cuts_it_off_says_so_by_its_exit_code(
    queue: Queue, processes: str, is_in_background: bool
) -> None:
    if is_in_background:
        # So a shell starts programs in the background.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = in_calls(queue, processes)

    process.send_signal(signal.SIGTERM if is_in_background else signal.SIGINT)
    await_stopping(process, processes)
    process.send_signal(signal.SIGTERM)
    code, _ = ended(process)

    assert code == (143 if is_in_background else 130)
    assert queue.statistics("jobs")["tasks"]["ready"] == 20
    stopped = {task.error for task in queue["jobs"].tasks_by_state("r") if task.attempts}
    assert stopped == {"the worker was stopped before the call ended"}


def test_work_of_subqueues_in_processes_leaves_others_and_logs_each_failure_once_with_its_traceback(
    place: Path, queue: Queue
) -> None:
    hosts = queue.create_tube("hosts", "utube")
    hosts.put_many([PutItem(name, utube=name) for name in "ab"])
    options = ("--utube=b", "--bury", "--idle", "0.1", "--strict", "--processes", "2", "--")

    process = started(*options, "job:fails", tube="hosts", option="--verbose")
    _, said = process.communicate(timeout=WAIT)

    assert process.returncode == 4
    first, *trace = said.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING hosts\[\d+\]: task \d+ failed at attempt 1: "
        r"ValueError: \\x1b\[31mno address",
        first,
    )
    assert trace[0].strip().startswith(f'File "{place}/job.py"')
    assert not [line for line in trace if "tubeq_spark" in line]
    [task] = hosts.tasks_by_state("!")
    assert (task.data, "tubeq_spark" in (task.error or "")) == ("b", False)
    assert [task.data for task in hosts.tasks_by_state("r")] == ["a"]


@pytest.mark.parametrize("function", ["job", "job:nothing", "nomodule:f", "job:os"])
def test_work_when_there_is_no_such_function_ends_with_2(queue: Queue, function: str) -> None:
    queue["jobs"].put("a")

    assert worked(function, "--idle", "0")[:2] == (2, {})
    assert queue.statistics("jobs")["tasks"]["ready"] == 1


def test_work_when_processes_die_starts_others_and_buries_what_ends_them_each_time_with_the_reason(
    queue: Queue,
) -> None:
    queue["jobs"].alter(max_attempts=2)
    queue["jobs"].put_many([*range(10), "killed", "exits"])

    process = started("job:dies", "--processes", "2")
    code, result = stopped(process, queue, total=1, buried=1)

    assert code == 0
    # What the killed processes have done since their last report is not counted.
    assert result["done"] <= 11
    assert (result["failed"], result["buried"], result["died"]) == (3, 1, 3)
    (buried,) = queue["jobs"].tasks_by_state("buried")
    assert buried.data == "exits"
    assert buried.error == "the worker ended with exit code 7 during attempt 2"
    # Tasks that were taken ahead lost no attempt.
    others = {f"{number} 1" for number in range(10)}
    twice = {f"{data} {attempt}" for data in ("killed", "exits") for attempt in (1, 2)}
    assert others <= set(seen()) == others | twice


def test_work_when_a_call_takes_too_long_kills_it_before_its_task_goes_back(queue: Queue) -> None:
    queue["jobs"].put("slow")

    process = started("job:slow_at_first", "--time-limit", "0.5")
    code, result = stopped(process, queue, total=0)

    assert (code, result["done"], result["failed"]) == (0, 1, 1)
    assert seen() == ["slow 1", "slow 2"]


def test_work_when_terminated_finishes_what_is_in_hand(queue: Queue) -> None:
    process = in_calls(queue, "2")

    process.send_signal(signal.SIGTERM)
    await_stopping(process, "2")
    Path("go").touch()
    code, result = ended(process)

    tasks = queue.statistics("jobs")["tasks"]
    assert (code, tasks["taken"]) == (0, 0)
    assert result["done"] == 20 - tasks["ready"] >= 2
    assert {task.attempts for task in queue["jobs"].tasks_by_state("r")} <= {0}


@pytest.mark.parametrize("ends", ["signals", "time"])
def test_work_with_exec_kills_commands_that_are_cut_off_or_take_too_long(
    queue: Queue, ends: str
) -> None:
    queue["jobs"].put("a")
    Path("slow.sh").write_text("echo $$ > pid\nexec sleep 600\n")
    limit = ("--time-limit=0.5",) if ends == "time" else ()
    process = started("--bury", "--exec", "sh -c 'sh slow.sh | cat'", *limit)
    until(lambda: Path("pid").exists() and Path("pid").read_text().strip() != "")
    if ends == "signals":
        process.send_signal(signal.SIGTERM)
        await_stopping(process, "1")
    else:
        until(lambda: queue.statistics("jobs")["tasks"]["buried"] == 1)

    process.send_signal(signal.SIGTERM)
    code, result = ended(process)

    assert (code, result["buried"]) == ((143, 0) if ends == "signals" else (0, 1))
    stat = Path("/proc", Path("pid").read_text().strip(), "stat")
    # Nobody may have waited for it yet.
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyboardInterrupt(signal.SIGTERM)])
def test_work_when_stopped_before_it_has_begun_ends_as_asked(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stopped(*_: object) -> None:
        raise error

    monkeypatch.setattr(Queue, "tube", stopped)

    found = invoke("--location", queue.location, "work", "jobs", "time:sleep")

    assert (found.exit_code, found.output) == (0, "")


@pytest.mark.parametrize(
    ("code", "said"), [("'no settings'", "no settings"), ("0", "0"), ("", "SystemExit")]
)
def test_work_when_the_module_of_its_function_exits_says_so(
    place: Path, code: str, said: str
) -> None:
    (place / "exits.py").write_text(f"import sys\nsys.exit({code})\n")

    exit_code, _, error = worked("exits:handle")

    assert exit_code == 2
    assert json.loads(error) == {
        "error": "BadUseError",
        "message": f"the module of 'exits:handle' cannot be imported: {said}",
        "exit_code": 2,
    }


def test_work_when_its_parent_is_killed_ends(queue: Queue) -> None:
    queue["jobs"].put_many(range(4))
    process = started("job:waits", "--processes", "2")
    until(lambda: len(seen()) == 2)

    os.kill(process.pid, signal.SIGKILL)
    Path("go").touch()
    process.communicate(timeout=WAIT)

    until(lambda: queue.statistics("jobs")["tasks"]["taken"] == 0)
    assert not [session for session in queue.sessions() if session.uuid != queue.session_uuid]
