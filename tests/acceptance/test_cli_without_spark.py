"""The command line `tubeq`: what it prints, what it leaves behind, and with which code it ends.

It starts no Spark here; what it does on Spark is in `test_cli_on_spark.py`.
"""

from __future__ import annotations

import datetime as dt
import errno
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pytest
from typer.testing import CliRunner

from tests.acceptance.support import Native, calls, counts, data_of, outliving, put_and_take, take
from tests.programs import environment
from tubeq_spark import Backoff, Queue, Rate, Task, TaskState, Tube
from tubeq_spark.cli.app import app
from tubeq_spark.cli.call import Outside
from tubeq_spark.model.ids import tick_at, ticks
from tubeq_spark.model.times import to_us
from tubeq_spark.programs import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typer.testing import Result

    from tests.acceptance.support import Engine, NewTube, Session
    from tubeq_spark.testing import ManualClock


class Tubeq(Protocol):
    """Runs a command on the module's queue."""

    def __call__(self, *arguments: str, stdin: str = "") -> Result: ...


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Opens the queues of the tests, without Spark."""
    return Native()


@pytest.fixture
def shared_location(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A location for each test: many commands look at all tubes."""
    return str(tmp_path_factory.mktemp("queue"))


@pytest.fixture
def queue(engine: Engine, shared_location: str, clock: ManualClock) -> Iterator[Queue]:
    """A queue whose session outlives every step of the clock."""
    yield from outliving(engine, shared_location, clock)


@pytest.fixture
def fifo(queue: Queue) -> Tube:
    return queue.create_tube("shared_fifo")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those of the test."""
    for name in ("TUBEQ_LOCATION", "TUBEQ_REMOTE", "TUBEQ_ENGINE", "TUBEQ_CONFIG", "TUBEQ_SESSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


class SparkAskedForError(Exception):
    """Somebody wanted a Spark session."""


def no_spark(remote: str | None) -> NoReturn:
    raise SparkAskedForError(remote)


@pytest.fixture
def tubeq(
    shared_location: str,
    clock: ManualClock,
) -> Tubeq:
    """The command line in this process, on the module's clock."""
    outside = Outside(open_spark=no_spark, clock=clock)

    def run(*arguments: str, stdin: str = "") -> Result:
        found = CliRunner().invoke(
            app,
            ["--location", shared_location, *arguments],
            input=stdin,
            obj=outside,
            prog_name="tubeq",
        )
        assert found.exception is None or isinstance(found.exception, SystemExit)
        return found

    return run


def fail_to_print(_text: str) -> NoReturn:
    """Stands in for a pipe that nobody reads."""
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def results(result: Result) -> list[Any]:
    """What a command that went well printed with `--json`."""
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_tube_when_created_is_listed_counted_and_dropped(tubeq: Tubeq, queue: Queue) -> None:
    [made] = results(tubeq("create", "web", "fifottl", "--ttr=60", "--max-attempts=3", "--json"))
    assert (made["tube"], made["type"], made["options"]["ttr"]) == ("web", "fifottl", 60)
    assert queue.tube("web").options.max_attempts == 3

    put = tubeq("put", "web", "--pri=2", stdin='{"n": 1}\n\n"zwei"\n')
    assert put.exit_code == 0
    assert put.stdout.startswith("put 2 tasks into web: ")
    assert put.stderr == ""
    queue.tube("web").put("first", pri=1)

    assert "web" in tubeq("tubes").stdout.splitlines()
    [stats] = results(tubeq("stats", "web", "--json"))
    assert (stats["tasks"]["ready"], stats["calls"]["put"]) == (
        3,
        2,
    )  # the third put is not told of yet
    header, *rows = [line.split() for line in tubeq("top", "--once").stdout.splitlines()]
    assert header[:4] == ["tube", "type", "ready", "taken"]
    assert ["web", "fifottl", "3", "0"] in [row[:4] for row in rows]
    assert ["web", "fifottl", "3", "0"] in [
        line.split()[:4] for line in tubeq("stats").stdout.splitlines()
    ]
    [listed] = [tube for tube in results(tubeq("stats", "--json")) if tube["tube"] == "web"]
    assert listed == stats
    looks = results(tubeq("--json", "top", "--looks=2", "--interval=5"))
    assert [look["look"] for look in looks if look["tube"] == "web"] == [1, 2]

    assert tubeq("take", "web").stdout.endswith('\ttaken\t"first"\n')
    assert [task["data"] for task in results(tubeq("take", "web", "-n5", "--json"))] == [
        {"n": 1},
        "zwei",
    ]
    nothing = tubeq("take", "web")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (1, "", "")
    assert tubeq("drop", "web", "--yes").stdout == "dropped web\n"
    assert "web" not in queue.tubes()


def test_put_of_a_file_when_a_line_is_bad_names_it_and_keeps_whole_batches(
    tubeq: Tubeq, new_tube: NewTube, tmp_path: Path, queue: Queue
) -> None:
    tube = new_tube("fifo")
    lines = tmp_path / "tasks.jsonl"
    lines.write_text("1\n2\n3\n4\n5\n{bad\n")

    result = tubeq("put", tube.name, str(lines), "--batch=2")

    assert (result.exit_code, result.stdout) == (2, "")
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"tubeq: line 6 of {lines} is no JSON: ")
    assert sentence.endswith("4 tasks were put before")
    assert data_of(tube.tasks_by_state("r")) == [1, 2, 3, 4]
    for line in ("NaN", '"\\ud800"'):
        refused = tubeq("put", tube.name, stdin=f"5\n{line}\n")
        assert (refused.exit_code, refused.stderr.count("line 2 of standard input")) == (2, 1)
    assert counts(queue, tube) == {"ready": 4, "total": 4}


def test_put_when_keys_are_there_puts_the_others_and_counts_these(
    tubeq: Tubeq, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    lines = '{"url": "a"}\n{"url": "b"}\n{"url": "a"}\n{"n": 1}\n'

    first = tubeq("put", tube.name, "--unique-field=url", "--json", stdin=lines)
    again = tubeq("put", tube.name, "--unique-field=url", "--batch=2", "--json", stdin=lines)
    one = tubeq("put", tube.name, "--unique=a", stdin="5\n6\n")
    bad = tubeq("put", tube.name, "--unique-field=url", stdin='{"url": [1]}\n')

    assert [results(result)[0]["count"] for result in (first, again)] == [3, 1]
    assert one.stdout == f"put 0 tasks into {tube.name}\n"
    assert (bad.exit_code, "unique" in bad.stderr) == (2, True)
    assert data_of(tube.tasks_by_state("r")) == [{"url": "a"}, {"url": "b"}, {"n": 1}, {"n": 1}]


def test_put_when_the_tube_is_full_says_so(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("limfifottl", capacity=3)

    result = tubeq("put", tube.name, "--batch=2", "--json", stdin="1\n2\n3\n4\n")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["count"] == 2
    said = f"tube {tube.name} is full; 2 tasks were put before"
    assert json.loads(result.stderr) == {"note": said}


def test_put_when_a_later_batch_is_refused_tells_what_was_put_before(
    tubeq: Tubeq, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    lines = '{"url": "a"}\n{"url": "b"}\n{"url": "c"}\n{"url": [1]}\n'

    result = tubeq("put", tube.name, "--unique-field=url", "--batch=2", stdin=lines)

    assert (result.exit_code, result.stdout) == (2, "")
    told, refused = result.stderr.splitlines()
    assert told == "tubeq: 2 tasks were put before"
    assert "unique" in refused
    assert data_of(tube.tasks_by_state("r")) == [{"url": "a"}, {"url": "b"}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_put_when_a_signal_comes_finishes_the_batch_in_hand_and_tells_what_was_put(
    tubeq: Tubeq, new_tube: NewTube, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    tube = new_tube("fifo")
    put_many = Tube.put_many

    def put_when_signalled(self: Tube, items: list[Any], **options: Any) -> list[Task]:
        if items == [3, 4]:
            signal.raise_signal(number)
        return put_many(self, items, **options)

    monkeypatch.setattr(Tube, "put_many", put_when_signalled)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    result = tubeq("put", tube.name, "--batch=2", stdin="1\n2\n3\n4\n5\n")

    assert result.exit_code == 128 + number
    assert "tubeq: 4 tasks were put before\n" in result.stderr
    assert data_of(tube.tasks_by_state("r")) == [1, 2, 3, 4]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_put_when_a_second_signal_comes_says_that_the_batch_in_hand_is_perhaps_put(
    tubeq: Tubeq, new_tube: NewTube, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    tube = new_tube("fifo")
    put_many = Tube.put_many

    def put_when_signalled(self: Tube, items: list[Any], **options: Any) -> list[Task]:
        tasks = put_many(self, items, **options)
        if items == [3, 4]:
            signal.raise_signal(number)
            signal.raise_signal(number)
        return tasks

    monkeypatch.setattr(Tube, "put_many", put_when_signalled)

    result = tubeq("put", tube.name, "--batch=2", stdin="1\n2\n3\n4\n5\n")

    assert result.exit_code == 128 + number
    assert "tubeq: 2 tasks were put before, and perhaps the next 2\n" in result.stderr


def test_put_when_its_result_cannot_be_printed_tells_what_was_put(
    tubeq: Tubeq, new_tube: NewTube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = new_tube("fifo")
    monkeypatch.setattr("tubeq_spark.cli.call.print_line", fail_to_print)

    result = tubeq("put", tube.name, stdin="1\n2\n")

    assert result.exit_code == 3
    assert result.stderr.startswith("tubeq: 2 tasks were put before\n")
    assert data_of(tube.tasks_by_state("r")) == [1, 2]


def test_take_with_exec_acks_what_the_command_did_and_gives_back_what_it_did_not(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, tmp_path: Path
) -> None:
    tube = new_tube("fifo")
    tube.put_many(["good", "bad", "good too"])
    seen = tmp_path / "seen"
    script = tmp_path / "work.py"
    script.write_text(
        "import json, os, pathlib, sys\n"
        "data = json.load(sys.stdin)\n"
        f"with open({str(seen)!r}, 'a') as file: print(data, os.environ['TUBEQ_ATTEMPTS'], file=file)\n"
        "sys.exit(data == 'bad')\n"
    )
    work = f"{sys.executable} {script}"

    stopped = tubeq("take", tube.name, "-n5", "--exec", work)

    assert (stopped.exit_code, stopped.stdout) == (3, "1 done, 1 failed\n")
    assert stopped.stderr.endswith("was released: the command ended with 1\n")
    assert counts(queue, tube) == {"ready": 2, "done": 1, "total": 2}
    [report] = [
        json.loads(tubeq("take", tube.name, "-n5", "--bury", "--json", "--exec", work).stdout)
    ]
    assert (report["done"], report["failed"]) == (1, 1)
    assert seen.read_text() == "good 1\nbad 1\nbad 2\ngood too 1\n"
    assert counts(queue, tube) == {"buried": 1, "done": 2, "total": 1}
    assert tubeq("kick", tube.name, "5").stdout == f"kicked 1 tasks of {tube.name}\n"
    assert tubeq("take", tube.name, "--exec", "no-such-program").exit_code == 2
    assert counts(queue, tube) == {"ready": 1, "done": 2, "total": 1}


def test_take_with_exec_passes_what_no_environment_can_hold_in_a_file(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, tmp_path: Path
) -> None:
    tube = new_tube("utube")
    utubes = ["plain", "a\0b", "x" * 200_000, "é" * 16_384, "é" * 16_385]
    for number, utube in enumerate(utubes):
        tube.put({"n": number, "text": "y" * 300_000}, utube=utube)
    seen = tmp_path / "seen"
    script = tmp_path / "work.py"
    script.write_text(
        "import json, os, pathlib, sys\n"
        "task = json.loads(pathlib.Path(os.environ['TUBEQ_TASK_FILE']).read_text('utf-8'))\n"
        "assert task['data'] == json.load(sys.stdin)\n"
        "assert str(task['task_id']) == os.environ['TUBEQ_TASK_ID']\n"
        "known = os.environ.get('TUBEQ_UTUBE')\n"
        "assert known in (None, task['utube'])\n"
        f"with open({str(seen)!r}, 'a', encoding='utf-8') as file:\n"
        "    print(json.dumps([task['utube'], known is not None]), file=file)\n"
    )

    done = tubeq("take", tube.name, "-n9", "--exec", f"{sys.executable} {script}")

    assert (done.exit_code, done.stdout) == (0, "5 done, 0 failed\n"), done.stderr
    assert counts(queue, tube) == {"done": 5}
    found = [json.loads(line) for line in seen.read_text("utf-8").splitlines()]
    given = [True, False, False, True, False]
    assert sorted(found) == sorted(map(list, zip(utubes, given, strict=True)))


def test_take_when_its_command_takes_longer_than_the_ttr_renews_the_lease_until_it_has_ended(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, clock: ManualClock, tmp_path: Path
) -> None:
    tube = new_tube("fifottl", ttr=0.3)
    task, end, ended = tube.put("a"), tmp_path / "end", threading.Event()

    def lease_end() -> dt.datetime:
        return tube.peek(task.task_id).next_event or clock.now()

    def let_time_pass() -> None:
        while not counts(queue, tube).get("taken"):
            if ended.wait(0.02):
                return
        # Its first lease is over then.
        for _ in range(3):
            before = lease_end()
            clock.advance(0.2)
            while lease_end() <= before:
                if ended.wait(0.02):
                    return
        found, ttr = counts(queue, tube), tube.peek(task.task_id).ttr
        end.touch()
        assert (found, ttr) == ({"taken": 1, "total": 1}, 0.3)

    command = f"sh -c 'until test -e {end}; do sleep 0.02; done'"
    with ThreadPoolExecutor() as other:
        passing = other.submit(let_time_pass)
        try:
            done = tubeq("take", tube.name, "--exec", command)
        finally:
            ended.set()
        passing.result()

    assert (done.exit_code, done.stdout, done.stderr) == (0, "1 done, 0 failed\n", "")
    assert counts(queue, tube) == {"done": 1}


def test_take_with_keep_leaves_tasks_to_a_session_until_its_time_is_over(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=3_600)
    tube.put_many(["a", "b", "c"])
    kept = results(tubeq("take", tube.name, "-n3", "--keep=100", "--json"))
    a, b, c = [str(task["task_id"]) for task in kept]
    [session] = {task["session"] for task in kept}
    assert counts(queue, tube) == {"taken": 3, "total": 3}
    assert calls(queue, tube)["take"] == 3

    clock.advance(90)
    assert results(tubeq("ack", tube.name, a, "--session", session, "--json"))[0]["state"] == "-"
    # Who joined it and left did not end it.
    touched = tubeq("touch", tube.name, b, "60", "--session", session)
    assert touched.stdout == f'{b}\ttaken\t"b"\n'
    back = tubeq("release", tube.name, b, "--session", session, "--delay=5", "--json")
    assert results(back)[0]["state"] == "~"
    assert counts(queue, tube) == {"taken": 1, "delayed": 1, "done": 1, "total": 2}

    clock.advance(20)
    late = tubeq("ack", tube.name, c, "--session", session)
    assert (late.exit_code, late.stdout) == (2, "")
    assert late.stderr == f"tubeq: session {session} is unknown or no longer alive\n"
    queue.sweep()
    assert data_of([take(tube), take(tube)]) == ["b", "c"]


def test_take_with_keep_when_nobody_can_read_the_session_gives_the_tasks_back(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = new_tube("utubettl", ttr=3_600)
    tube.put("a", utube="u")
    monkeypatch.setattr("tubeq_spark.cli.call.print_line", fail_to_print)

    result = tubeq("take", tube.name, "--keep=100000")

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "tubeq: failed: Broken pipe\n"
    assert counts(queue, tube) == {"ready": 1, "total": 1}
    assert take(tube).data == "a"


@pytest.mark.parametrize("keep", ["-5", "0", "nan"])
def test_take_when_keep_is_no_time_takes_nothing(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, keep: str
) -> None:
    tube = new_tube("fifottl", max_attempts=1)
    tube.put("a")

    result = tubeq("take", tube.name, "--keep", keep)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("tubeq: keep=")
    # Its only attempt was not used up.
    assert counts(queue, tube) == {"ready": 1, "total": 1}
    assert calls(queue, tube).get("take", 0) == 0


@pytest.mark.parametrize(("type_name", "delay"), [("fifo", "5"), ("fifottl", "-1")])
def test_take_with_exec_when_its_delay_is_bad_runs_no_command(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, tmp_path: Path, type_name: str, delay: str
) -> None:
    tube = new_tube(type_name)
    tube.put("a")
    seen = tmp_path / "seen"

    result = tubeq("take", tube.name, "--exec", f"touch {seen}", "--delay", delay)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "delay=" in result.stderr
    assert not seen.exists()
    assert calls(queue, tube).get("take", 0) == 0


def test_ids_in_json_are_texts_and_are_taken_so(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("fifottl", ttr=60)
    [put] = results(tubeq("--json", "put", tube.name, stdin='"a"\n"b"\n'))
    tasks = [tube.take(0), tube.take(0)]
    ids = [str(task.task_id) for task in tasks if task is not None]
    assert [put["first_task_id"], put["last_task_id"]] == ids

    [first] = results(tubeq("--json", "peek", tube.name, ids[0]))
    assert first["task_id"] == ids[0]
    # As `jq .task_id` prints it.
    [second] = results(tubeq("--json", "peek", tube.name, json.dumps(ids[1])))
    assert (second["task_id"], second["data"]) == (ids[1], "b")
    assert tubeq("peek", tube.name, "one").exit_code == 2


def test_put_reserves_numbers_for_seconds_only(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    """Where many calls hold all slots, those of later ones would run ahead of the clock."""
    tube = new_tube("fifo")
    before = {lease.slot: lease for lease in queue._context.slots._leased().values()}
    assert tubeq("put", tube.name, stdin="1\n").exit_code == 0

    leased = queue._context.slots._leased()
    [bound] = [lease.bound for slot, lease in leased.items() if before.get(slot) != lease]
    assert bound <= tick_at(to_us(clock.now())) + ticks(10)


def test_tasks_of_others_when_named_can_be_peeked_buried_and_deleted_but_not_acked(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("utube")
    task = put_and_take(tube, {"n": 1}, utube="u")
    number = str(task.task_id)

    [peeked] = results(tubeq("peek", tube.name, number, "--json"))
    assert (peeked["state"], peeked["utube"], peeked["data"]) == ("t", "u", {"n": 1})
    foreign = tubeq("ack", tube.name, number, "--session", str(queue.identify()))
    assert foreign.exit_code == 0  # that session holds it, whoever speaks for it
    other = put_and_take(tube, "x", utube="u")
    assert tubeq("bury", tube.name, str(other.task_id)).stdout == f'{other.task_id}\tburied\t"x"\n'
    assert tube.peek(other.task_id).state is TaskState.BURIED
    assert tubeq("delete", tube.name, str(other.task_id)).exit_code == 0
    assert counts(queue, tube) == {"done": 2}


def test_errors_when_given_are_kept_and_shown(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    backoff = {"first": 9.0, "factor": 2.0, "most": 3600.0, "jitter": 0.0}
    tube.alter(backoff=Backoff(**backoff))
    first, second = put_and_take(tube, "a"), put_and_take(tube, "b")
    session = ("--session", str(queue.identify()))

    why = "it is\x1b[31m broken\nfor ever"
    tubeq("release", tube.name, str(first.task_id), *session, "--error", why)
    tubeq("bury", tube.name, str(second.task_id), "--error", "it is hopeless")

    assert tube.peek(first.task_id).error == why
    [delayed] = results(tubeq("tasks", tube.name, "--state", "delayed", "--json"))
    assert delayed["error"] == why
    assert tube.peek(first.task_id).next_event == clock.now() + dt.timedelta(seconds=9)
    table = tubeq("tasks", tube.name).stdout
    assert "it is hopeless" in table
    assert "broken" in table
    assert "for ever" not in table
    assert "\x1b" not in table
    [shown] = results(tubeq("show", tube.name, "--json"))
    assert shown["options"]["backoff"] == backoff
    assert "backoff: " in tubeq("show", tube.name).stdout


def test_take_with_exec_when_the_command_fails_keeps_its_exit_code(
    tubeq: Tubeq, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    task = tube.put("a")
    assert task is not None

    tubeq("take", tube.name, "--exec", "false")
    clock.advance(5)

    assert tube.peek(task.task_id).error == "the command ended with 1"


def test_sweep_tells_what_time_has_changed(
    tubeq: Tubeq, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    tube.put("later", delay=10)
    clock.advance(10)

    swept = {found["tube"]: found for found in results(tubeq("sweep", "--json"))}

    assert (swept[tube.name]["readied"], swept[tube.name]["error"]) == (1, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["take", "nowhere"], "no tube named 'nowhere'"),
        (["create", "bad-name"], "name='bad-name': must be "),
        (["create", "x", "stack"], "stack"),
        (["create", "x", "fifo", "--ttl=5"], "fifo has no such option"),
        (["take", "shared_fifo", "--timeout=-1"], "timeout=-1.0: must be "),
        (["peek", "shared_fifo", "77"], "77"),
        (["ack", "shared_fifo", "77", "--session=x"], "session_uuid='x': must be "),
        (["ack", "shared_fifo", "77"], "Missing option '--session'"),
        (["put", "shared_fifo", "no-such-file"], "no-such-file"),
        (["take", "shared_fifo", "--keep=5", "--exec=true"], "--keep and --exec exclude each other"),
        (["take", "shared_fifo", "--nonsense"], "No such option: --nonsense"),
    ],
)  # fmt: skip
def test_bad_use_is_refused_with_a_sentence(
    tubeq: Tubeq, arguments: list[str], said: str, fifo: object
) -> None:
    result = tubeq(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_defaults_come_from_a_file_unless_the_command_line_knows_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_location: str, queue: Queue
) -> None:
    def tubes(*options: str) -> Result:
        outside = Outside(open_spark=no_spark)
        return CliRunner().invoke(app, [*options, "tubes"], obj=outside, prog_name="tubeq")

    def asks_spark(*options: str) -> str:
        found = tubes(*options)
        assert found.exit_code == 3
        return found.stderr

    assert tubes().exit_code == 2
    Path("tubeq.toml").write_text(f'location = "{shared_location}"\nttr = 5\n')
    assert tubes().stdout.splitlines() == queue.tubes()
    assert asks_spark("--engine=spark") == "tubeq: failed: None\n"
    with Path("tubeq.toml").open("a") as file:
        file.write('remote = "sc://there"\nengine = "spark"\n')
    # A location follows no file, and needs no session where commits are native.
    assert tubes().exit_code == tubes("--remote=sc://here").exit_code == 0
    assert asks_spark("--engine=spark") == "tubeq: failed: sc://there\n"
    assert asks_spark("--engine=spark", "--remote=sc://here") == "tubeq: failed: sc://here\n"
    monkeypatch.setenv("TUBEQ_ENGINE", "spark")
    assert tubes().exit_code == 0
    # But a new one does.
    assert asks_spark("--location=new") == "tubeq: failed: sc://there\n"
    monkeypatch.setenv("TUBEQ_ENGINE", "native")
    assert tubes("--location=new").exit_code == 2
    other = tmp_path / "other.toml"
    for text, said in (
        ("loction = 1", "loction=1: must be absent"),
        ("ttr = 0", "ttr=0: must be "),
        ("[queue]\nattempts = 0", "attempts=0: must be "),
        ("=", "is no TOML"),
    ):
        other.write_text(text)
        refused = tubes("--config", str(other))
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"tubeq: {other}: ")
        assert said in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--location=main.queues", "tubes"], 3, "failed: None"),
        (["--location=gs://bucket/queue", "tubes"], 3, "failed: None"),
        (
            ["--location=main.queues", "--engine=native", "tubes"],
            3,
            "main.queues is a schema of a catalog",
        ),
        (
            ["--location=q", "--engine=native", "create", "t", "--schema=n VARCHAR(3)"],
            3,
            "schema='n VARCHAR(3)': VARCHAR needs a Spark session: ",
        ),
        (
            ["--location=q", "--engine=fast", "tubes"],
            2,
            "engine='fast': must be one of auto, spark, native",
        ),
    ],
)
def test_engine_when_spark_is_needed_is_spark_unless_the_other_was_asked_for(
    arguments: list[str], code: int, said: str
) -> None:
    outside = Outside(open_spark=no_spark)

    found = CliRunner().invoke(app, arguments, obj=outside, prog_name="tubeq")

    assert (found.exit_code, found.stdout) == (code, "")
    assert found.stderr.startswith(f"tubeq: {said}")


def test_completion_when_a_shell_asks_names_commands_and_tubes_and_makes_no_queue(
    shared_location: str, queue: Queue, tmp_path: Path
) -> None:
    queue.create_tube("completed_one")
    queue.create_tube("completed_two")

    def complete(*words: str, location: str = shared_location) -> list[str]:
        asked = {"_TUBEQ_COMPLETE": "complete_bash", "TUBEQ_LOCATION": location}
        place = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        return CliRunner().invoke(app, [], env=asked | place, prog_name="tubeq").stdout.split()

    assert complete("tubeq", "sw") == ["sweep", "sweeper"]
    assert complete("tubeq", "put", "completed_") == ["completed_one", "completed_two"]
    assert complete("tubeq", "stats", "completed_t") == ["completed_two"]
    assert complete("tubeq", "put", "c", location="main.queues") == []
    assert complete("tubeq", "put", "c", location=str(tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()


def test_client_of_object_stores_when_it_is_missing_leaves_the_call_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    call = ["--location", "s3://bucket/queue", "tubes"]
    outside = Outside(open_spark=no_spark)

    by_itself = CliRunner().invoke(app, call, obj=outside, prog_name="tubeq")
    asked = CliRunner().invoke(app, ["--engine=native", *call], obj=outside, prog_name="tubeq")

    assert by_itself.stderr == "tubeq: failed: None\n"
    assert asked.stderr.startswith(
        "tubeq: obstore is needed to reach object stores without Spark: pip "
    )
    # As where any other package is missing.
    assert asked.exit_code == 2


# -- looking ---------------------------------------------------------------------------------------


def rows(result: Result) -> list[dict[str, str]]:
    """The rows of a table without spaces in its cells, by their columns."""
    assert result.exit_code == 0, result.stderr
    header, *lines = [line.split() for line in result.stdout.splitlines()]
    return [dict(zip(header, line, strict=False)) for line in lines]


def test_stats_when_nothing_was_called_has_the_same_columns(
    tubeq: Tubeq, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    before = tubeq("stats", tube.name).stdout.splitlines()
    tube.put("a")
    tube.bury(tube.put("b").task_id)

    after = tubeq("stats", tube.name).stdout.splitlines()

    assert before[0].split() == after[0].split()
    assert before[0].split() == [
        *("tube", "type", "ready", "taken", "delayed", "buried", "done", "total"),
        *("put", "take", "ack", "release", "bury", "kick", "delete"),
        "paused",
    ]


def test_tasks_and_show_tell_of_one_tube(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("utubettl", ttr=60)
    tube.put("held", utube="a")
    take(tube)
    buried = tube.put("set aside", utube="b")
    tube.bury(buried.task_id)
    tube.put_many(["c", "d"], utube="c")

    listed = rows(tubeq("tasks", tube.name))
    one = results(tubeq("tasks", tube.name, "--state", "ready", "-n1", "--json"))
    by_letter = results(tubeq("tasks", tube.name, "--state=!", "--json"))
    [shown] = results(tubeq("show", tube.name, "--json"))

    assert [row["state"] for row in listed] == ["taken", "ready", "ready", "buried"]
    assert [task["data"] for task in one] == ["c"]
    assert [task["task_id"] for task in by_letter] == [str(buried.task_id)]
    assert (shown["options"]["ttr"], shown["tasks"]["total"], shown["type"]) == (60, 4, "utubettl")
    assert "  ttr: 60.0\n" in tubeq("show", tube.name).stdout
    refused = tubeq("tasks", tube.name, "--state=tired")
    assert (refused.exit_code, "must be one of ready, " in refused.stderr) == (2, True)


def test_history_tells_which_verb_changed_how_many_tasks_for_whom(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifo")
    tube.put_many([1, 2, 3])
    tube.ack_many([task.task_id for task in tube.take_many(2)])

    told = results(tubeq("history", tube.name, "--json"))

    assert [(commit["operation"], commit["tasks"]) for commit in told] == [
        ("ack", 2),
        ("take", 2),
        ("put", 3),
        ("create", 0),
    ]
    assert {commit["session"] for commit in told} == {str(queue.session_uuid), None}
    assert [row["version"] for row in rows(tubeq("history", tube.name, "-n2"))] == ["3", "2"]


def test_sessions_tells_who_holds_what(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many([1, 2])
    [first, _] = results(tubeq("take", tube.name, "-n2", "--keep=100", "--json"))

    told = {info["uuid"]: info for info in results(tubeq("sessions", "--json"))}
    listed = {row["session"]: row for row in rows(tubeq("sessions"))}

    info = told[first["session"]]
    assert (info["holds"], info["tubes"], info["pid"]) == (2, {tube.name: 2}, os.getpid())
    assert listed[first["session"]]["host"] == info["host"] == socket.gethostname()
    tube.release_all()


def test_take_of_named_subqueues_takes_from_no_other(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("utube")
    for utube in ("a", "b", "7", "c"):
        tube.put(utube, utube=utube)

    named = ["--utube", "7", "--utube=b"]
    taken = results(tubeq("take", tube.name, "-n9", *named, "--keep=100", "--json"))

    assert [task["utube"] for task in taken] == ["b", "7"]
    assert tubeq("take", tube.name, *named).exit_code == 1
    done = results(tubeq("take", tube.name, "-n9", "--utube=c", "--exec=true", "--json"))
    assert (done[0]["done"], data_of(tube.tasks_by_state("r"))) == (1, ["a"])
    other = new_tube("fifo")
    refused = tubeq("take", other.name, "--utube=a")
    assert (refused.exit_code, "has no sub-queues" in refused.stderr) == (2, True)
    tube.release_all()


def test_utubes_tells_the_tasks_of_each_subqueue(
    tubeq: Tubeq, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl")
    begin = clock.now()
    tube.put_many(["a", "b"], utube="long")
    tube.put("c", utube="")
    tube.put("d", delay=1_000)
    clock.advance(240)

    told = results(tubeq("utubes", tube.name, "--json"))
    listed = rows(tubeq("utubes", tube.name))

    assert [row["utube"] for row in told] == ["long", None, ""]
    assert told[0] == {
        "utube": "long",
        "ready": 2,
        "taken": 0,
        "delayed": 0,
        "buried": 0,
        "oldest": begin.isoformat(),
    }
    assert listed[0] == {
        "utube": "long",
        "ready": "2",
        "taken": "0",
        "delayed": "0",
        "buried": "0",
        "oldest": "4m",
    }
    assert results(tubeq("utubes", tube.name, "--limit=1", "--json")) == told[:1]
    take(tube)
    [taken] = rows(tubeq("utubes", tube.name, "--taken"))
    assert (taken["utube"], taken["taken"]) == ("long", "1")
    assert results(tubeq("utubes", tube.name, "--taken", "--json"))[0]["taken"] == 1
    refused = tubeq("utubes", new_tube("fifo").name)
    assert (refused.exit_code, "has no sub-queues" in refused.stderr) == (2, True)


def test_why_tells_in_one_sentence_why_a_task_waits(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    first, second = (task.task_id for task in tube.put_many(["a", "b"]))

    said = tubeq("why", tube.name, str(second))

    assert (said.exit_code, said.stdout) == (0, f"Task {second} waits: 1 task comes before it.\n")
    assert results(tubeq("why", tube.name, str(first), "--json")) == [
        {"tube": tube.name, "task_id": str(first), "why": tube.why(first)}
    ]
    unknown = tubeq("why", tube.name, "1")
    assert (unknown.exit_code, "1 not found" in unknown.stderr) == (2, True)


def test_metrics_tells_depth_and_ages_and_prometheus_text(
    tubeq: Tubeq, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    tube.put_many([1, 2])
    clock.advance(240)

    [told] = [each for each in results(tubeq("metrics", "--json")) if each["tube"] == tube.name]
    [row] = [row for row in rows(tubeq("metrics")) if row["tube"] == tube.name]
    text = tubeq("metrics", "--prometheus").stdout

    assert (told["ready"], told["oldest_ready_age"], told["commits"]) == (2, 240, 1)
    assert (row["ready"], row["oldest"]) == ("2", "4m")
    assert f'tubeq_tasks{{state="ready",tube="{tube.name}"}} 2.0\n' in text


def test_health_when_something_wants_attention_ends_with_1(
    tubeq: Tubeq, new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    tube.put("a", delay=1)
    queue.sweep()
    clock.advance(1_000)

    # The clock of the tests is not the storage's.
    told = tubeq("health", "--json", "--drift=1e12")
    said = tubeq("health", "--drift=1e12")
    queue.sweep()
    well = [tubeq("health", "--drift=1e12", *json) for json in ([], ["--json"])]

    assert (told.exit_code, said.exit_code) == (1, 1)
    # Other tests of this queue may have left tasks that are due, too.
    problems = {(p["kind"], p["tube"]) for p in map(json.loads, told.stdout.splitlines())}
    assert ("sweeper", tube.name) in problems
    assert f"sweeper: {tube.name}: 1 tasks wait for a sweep, " in said.stdout
    assert [each.exit_code for each in well] == [0, 0]
    assert [each.stdout for each in well] == ["nothing wants attention\n", ""]


def test_top_shows_what_all_processes_do_a_second(
    tubeq: Tubeq, new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    other = session()[tube.name]
    tube.put_many(range(9))
    held = session()[tube.name].take_many(1)
    clock.advance(10)
    sleep = clock.sleep

    def work(seconds: float) -> None:
        other.put_many(range(10))
        tasks = other.take_many(6)
        other.exchange(ack=[task.task_id for task in tasks[:4]], take=2)
        other.bury(tasks[5].task_id)
        sleep(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "sleep", work)
        told = results(tubeq("top", "--looks=2", "--interval=2", "--json"))
    first, second = [look for look in told if look["tube"] == tube.name]

    assert len(held) == 1
    assert (first["per_second"], first["holders"], first["oldest_ready_age"]) == (None, 1, 10)
    # Four verbs, and what compacts at times.
    assert second["per_second"].pop("commits") >= 2
    assert second["per_second"] == {"put": 5, "take": 4, "done": 2}
    assert (second["holders"], second["tasks"]["buried"]) == (2, 1)
    tube.release_all()


def test_top_sorts_by_a_column(tubeq: Tubeq, new_tube: NewTube) -> None:
    few, many = new_tube("fifo"), new_tube("fifo")
    few.put_many(range(100))
    many.put_many(range(200))

    listed = [row["tube"] for row in rows(tubeq("top", "--once", "--sort=ready"))]

    assert listed[:2] == [many.name, few.name]
    refused = tubeq("top", "--once", "--sort=colour")
    assert (refused.exit_code, "must be one of tube, ready, " in refused.stderr) == (2, True)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_top_when_keys_are_pressed_sorts_and_quits(location: str) -> None:
    import pty  # noqa: PLC0415  not on every system

    with Queue(None, location) as queue:
        queue.create_tube("few").put("a")
        queue.create_tube("many").put_many(["a", "b"])
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tubeq_spark.cli", "--location", location, "top"]
    with subprocess.Popen(
        command, env=environment(TERM="xterm", COLUMNS="150"), stdin=theirs, stdout=theirs
    ) as process:
        os.close(theirs)
        shown = read_until(ours, lambda text: "q quit" in text)
        os.write(ours, b"r")
        shown = read_until(ours, lambda text: 0 < text.find("many") < text.rfind("few"))
        os.write(ours, b"xq")
        read_until(ours, lambda _: process.poll() is not None)
        os.close(ours)

    assert process.returncode == 0, shown


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_table_when_the_terminal_is_narrow_cuts_payloads_and_no_numbers(location: str) -> None:
    import pty  # noqa: PLC0415  not on every system

    with Queue(None, location) as queue:
        task = queue.create_tube("narrow_one").put("x" * 300)
    shown = {}
    for command in ("tasks narrow_one", "stats", "top --once"):
        ours, theirs = pty.openpty()
        words = [sys.executable, "-m", "tubeq_spark.cli", "--location", location, *command.split()]
        with subprocess.Popen(
            words, env=environment(TERM="xterm", COLUMNS="60"), stdin=theirs, stdout=theirs
        ) as process:
            os.close(theirs)
            shown[command] = read_until(ours, lambda _: False)
            os.close(ours)
        assert process.returncode == 0

    assert task is not None
    assert str(task.task_id) in shown["tasks narrow_one"]
    assert '"xxxxx' in shown["tasks narrow_one"]
    assert "x" * 100 not in shown["tasks narrow_one"]
    assert "narrow_one  fifo      1 " in shown["stats"]
    assert "delete" in shown["stats"]
    assert "narrow_one      1 " in shown["top --once"]
    assert "fifo" not in shown["top --once"]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_put_when_a_bar_is_on_the_terminal_prints_its_result_to_standard_output(
    location: str, tmp_path: Path
) -> None:
    import pty  # noqa: PLC0415  not on every system

    with Queue(None, location) as queue:
        queue.create_tube("t")
    lines = tmp_path / "lines"
    lines.write_text("1\n" * 30)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tubeq_spark.cli", "--location", location]
    with subprocess.Popen(
        [*command, "put", "t", str(lines), "--batch=10"],
        env=environment(TERM="xterm"),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        shown = read_until(ours, lambda _: False)
        said, _ = process.communicate()
        os.close(ours)

    assert process.returncode == 0
    assert said.startswith("put 30 tasks into t: ")
    assert "put 20 " in shown


def read_until(terminal: int, done: Callable[[str], bool]) -> str:
    """What a program shows on a terminal until then; it ends, or the test's time is over."""
    text = ""
    while not done(text):
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                text += os.read(terminal, 65_536).decode(errors="replace")
            except OSError:  # Linux: the other side has closed it
                break
    return text


# -- changing --------------------------------------------------------------------------------------


def test_kick_of_named_tasks_kicks_these(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    ids = [task.task_id for task in tube.put_many(range(4))]
    tube.bury_many(ids)
    named = [f"--id={ids[3]}", f"--id={ids[1]}"]

    assert results(tubeq("kick", tube.name, *named, "--json")) == [{"tube": tube.name, "kicked": 2}]

    assert data_of(tube.tasks_by_state("r")) == [1, 3]
    again = tubeq("kick", tube.name, f"--id={ids[0]}", *named)
    assert (again.exit_code, again.stderr.endswith("is ready, not buried\n")) == (2, True)
    assert data_of(tube.tasks_by_state("!")) == [0, 2]
    both = tubeq("kick", tube.name, "2", *named)
    assert (both.exit_code, both.stderr) == (2, "tubeq: a count and --id exclude each other\n")
    assert tubeq("kick", tube.name).stdout == f"kicked 1 tasks of {tube.name}\n"


def test_kick_where_a_condition_holds_kicks_the_first_so_many_or_all(
    tubeq: Tubeq, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    tube.bury_many([task.task_id for task in tube.put_many(range(6))])

    assert tubeq("kick", tube.name, "--where", "data >= '4'").stdout == (
        f"kicked 1 tasks of {tube.name}\n"
    )
    assert results(tubeq("kick", tube.name, "2", "--where=data < '4'", "--json")) == [
        {"tube": tube.name, "kicked": 2}
    ]
    assert data_of(tube.tasks_by_state("r")) == [0, 1, 4]
    assert results(tubeq("kick", tube.name, "--all", "--where=data < '4'", "--json")) == [
        {"tube": tube.name, "kicked": 2}
    ]
    assert tubeq("kick", tube.name, "--all").stdout == f"kicked 1 tasks of {tube.name}\n"
    assert data_of(tube.tasks_by_state("!")) == []


def test_kick_when_its_options_are_bad_kicks_nothing(tubeq: Tubeq, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    task = tube.put("a")
    tube.bury(task.task_id)
    named = f"--id={task.task_id}"

    for arguments, said in {
        ("--all", "2"): "a count and --all exclude each other",
        ("--all", named): "--all and --id exclude each other",
        (named, "--where=TRUE"): "--id and --where exclude each other",
        ("--where=nothing = 1",): "where='nothing = 1': nothing is not possible; possible are ",
        ("--where=",): "where='': must be a text that is not empty",
    }.items():
        done = tubeq("kick", tube.name, *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"tubeq: {said}")

    assert data_of(tube.tasks_by_state("!")) == ["a"]


@pytest.mark.parametrize(
    ("command", "nothing", "done", "left"),
    [
        ("drop", "nothing was dropped", {"dropped": True}, None),
        ("truncate", "nothing was removed", {"truncated": True}, {}),
        ("release-all", "nothing was released", {"released": 1}, {"ready": 2, "total": 2}),
    ],
)
def test_command_that_destroys_without_a_terminal_asks_for_yes(
    command: str,
    nothing: str,
    done: dict[str, object],
    left: dict[str, int] | None,
    tubeq: Tubeq,
    new_tube: NewTube,
    queue: Queue,
) -> None:
    tube = new_tube("fifo")
    tube.put_many([1, 2])
    take(tube)

    refused = tubeq(command, tube.name)

    assert (refused.exit_code, refused.stdout) == (2, "")
    said = f"{nothing}: without a terminal to ask at, say --yes"
    assert refused.stderr == f"tubeq: {said}\n"
    assert counts(queue, tube) == {"ready": 1, "taken": 1, "total": 2}
    assert json.loads(tubeq("--json", command, tube.name).stderr)["message"] == said
    if command == "drop":
        tube.release_all()
    assert results(tubeq(command, tube.name, "--yes", "--json")) == [{"tube": tube.name, **done}]
    assert (counts(queue, tube) if tube.name in queue else None) == left


# -- errors and other people's text ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message", "code"),
    [
        (["peek", "nowhere", "1"], "TubeNotFoundError", "no tube named 'nowhere'", 2),
        (["peek", "--nonsense"], "BadUseError", "No such option: --nonsense", 2),
        (["--nonsense"], "BadUseError", "No such option: --nonsense", 2),
        (["put", "shared_fifo", "no-such-file"], "FileNotFoundError", "no-such-file", 2),
        (["--engine=spark", "tubes"], "SparkAskedForError", "failed: None", 3),
        (["--engine=fast", "tubes"], "InvalidOptionError", "engine='fast': must be ", 2),
    ],
)
def test_error_with_json_is_one_object_on_standard_error(
    arguments: list[str], error: str, message: str, code: int, tubeq: Tubeq, fifo: object
) -> None:
    for place in (0, len(arguments)):
        result = tubeq(*arguments[:place], "--json", *arguments[place:])

        assert (result.exit_code, result.stdout) == (code, "")
        said = json.loads(result.stderr)
        assert (said["error"], said["exit_code"], sorted(said)) == (
            error,
            code,
            ["error", "exit_code", "message"],
        )
        assert message in said["message"]
    with_trace = json.loads(tubeq("--json", "--verbose", "peek", "nowhere", "1").stderr)
    assert with_trace["trace"].startswith("Traceback")


#: Clears a screen, rings, begins a title, by one character and by two; turns the direction around.
EVIL = "\x1b[2J\x07\x1b]0;title\x9b31m\x7f\r\u202e[bold]"
CONTROLS = set(EVIL) - set("[]0;title31mboldJ2")


def test_text_of_others_when_it_controls_a_terminal_is_shown_escaped(
    tubeq: Tubeq, new_tube: NewTube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = new_tube("utubettl", ttr=60)
    monkeypatch.setattr("socket.gethostname", lambda: EVIL)
    tube.put({EVIL: EVIL}, utube=EVIL)
    number = str(tube.put(EVIL, utube=EVIL).task_id)
    [held] = results(tubeq("take", tube.name, "--keep=100", "--json"))
    calls = [
        tubeq("tasks", tube.name),
        tubeq("tasks", tube.name, "--json"),
        tubeq("peek", tube.name, number),
        tubeq("peek", tube.name, number, "--json"),
        tubeq("sessions"),
        tubeq("sessions", "--json"),
        tubeq("history", tube.name),
        tubeq("utubes", tube.name),
        tubeq("utubes", tube.name, "--json"),
        tubeq("why", tube.name, number),
        tubeq("why", tube.name, number, "--json"),
        tubeq("peek", EVIL, "1"),
        tubeq("peek", EVIL, "1", "--json"),
        tubeq("peek", EVIL, "1", "--verbose"),
        tubeq("put", tube.name, "no" + EVIL),
        tubeq("bury", tube.name, number),
        tubeq("take", tube.name),
    ]

    for call in calls:
        shown = (call.stdout + call.stderr).replace("\n", "")
        assert not CONTROLS & set(shown), ascii(shown)
    table, as_json, *_ = [call.stdout for call in calls]
    assert "\\x1b[2J\\x07" in table
    assert "[bold]" in table
    assert {json.loads(line)["utube"] for line in as_json.splitlines()} == {EVIL}
    assert held["data"] == {EVIL: EVIL}
    [info] = [i for i in results(calls[5]) if i["uuid"] == held["session"]]
    assert info["host"] == EVIL
    tube.truncate()


# -- ready-made programs ---------------------------------------------------------------------------


def test_sweeper_as_a_command_sweeps_the_queue_that_is_named_before_it(
    shared_location: str, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, arguments, obj=Outside(), prog_name="tubeq")
        return done.exit_code, done.stdout, done.stderr

    swept = call("--location", shared_location, "sweeper", "--once")
    nowhere = call("--location", f"{shared_location}/none", "sweeper", "--once")
    bad = call("--location", shared_location, "sweeper", "--onze")

    assert swept[0] == 0
    assert swept[2] == ""
    assert nowhere[:2] == (2, "")
    assert nowhere[2].startswith("tubeq sweeper: no queue at ")
    assert not Path(shared_location, "none").exists()
    assert (bad[0], "tubeq sweeper: error: " in bad[2]) == (2, True)


@pytest.mark.parametrize(
    ("name", "package", "extras"),
    [
        ("consume", "pyspark", ("spark",)),
        ("enqueue", "pyspark", ("spark",)),
    ],
)
def test_program_as_a_command_when_a_package_is_missing_says_which_extra_brings_it(
    name: str, package: str, extras: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.startswith("tubeq_spark.jobs")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [m for m in sys.modules if m == package or m.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)

    call = ["--location=/q", name, "--help"]
    done = CliRunner().invoke(app, call, obj=Outside(open_spark=no_spark), prog_name="tubeq")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"tubeq: {package} is not installed: {how_to_install(*extras)}\n"


@pytest.mark.processes
def test_program_when_there_is_neither_spark_nor_java_prints_nothing_but_its_results(
    location: str, tmp_path: Path
) -> None:
    missing = "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'py4j', 'delta']))"
    call = f"{missing}; import tubeq_spark.cli as c; c.main()"

    def tubeq(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", call, "--location", location, *arguments],
            env=environment() | {"JAVA_HOME": str(tmp_path)},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    made = tubeq("create", "t", "--json")
    put = tubeq("put", "t", "--json", stdin='{"n": 1}\n')
    taken = tubeq("take", "t", "--json")
    on_spark = tubeq("--engine=spark", "tubes")

    assert [(found.returncode, found.stderr) for found in (made, put, taken)] == [(0, "")] * 3
    assert json.loads(made.stdout)["tube"] == "t"
    assert json.loads(put.stdout)["count"] == 1
    assert json.loads(taken.stdout)["data"] == {"n": 1}
    assert (on_spark.returncode, on_spark.stdout) == (2, "")
    assert on_spark.stderr.startswith("tubeq: pyspark is not installed, and this needs Spark: pip ")


@pytest.mark.processes
def test_package_without_typer_says_how_to_get_it() -> None:
    program = "import sys; sys.modules['typer'] = None; import tubeq_spark.cli as c; c.main()"

    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"tubeq: typer is not installed: {how_to_install('cli')}\n"


# -- options, pause and format ----------------------------------------------------------------------


def test_create_when_options_are_given_sets_them(tubeq: Tubeq, queue: Queue) -> None:
    options = (
        "--backoff=first=2,most=60",
        "--parallel=3",
        "--rate=5/1",
        "--order=fair",
        "--most-taken=100",
        "--unique-for=60",
    )

    [made] = results(tubeq("--json", "create", "limited", "utubettl", *options))

    assert made["options"]["rate"] == {"tasks": 5, "seconds": 1.0}
    assert made["options"]["backoff"]["most"] == 60
    found = queue["limited"].options
    assert (found.parallel, found.rate, found.order) == (3, Rate(5, 1), "fair")
    assert (found.most_taken, found.unique_for, found.backoff) == (100, 60, Backoff(2, most=60))
    results(tubeq("--json", "create", "aged", "fifottl", "--aging=60"))
    assert queue["aged"].options.aging == 60


def test_alter_when_options_are_given_changes_these_and_resets_others(
    tubeq: Tubeq, new_tube: NewTube
) -> None:
    tube = new_tube("utubettl", ttr=9, ttl=8)

    altered = tubeq("alter", tube.name, "--ttr", "5", "--rate", "10/0.5", "--parallel", "2")
    [shown] = results(
        tubeq("--json", "alter", tube.name, "--reset=rate", "--reset=most-taken", "--reset", "ttl")
    )

    assert altered.stdout == f"altered ttr, parallel, rate of {tube.name}\n"
    assert shown["tube"] == tube.name
    options = shown["options"]
    assert (options["ttr"], options["parallel"], options["rate"], options["ttl"]) == (
        5,
        2,
        None,
        None,
    )
    assert tubeq("show", tube.name).stdout.count("parallel: 2") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to alter"),
        (("--rate=5/0",), "seconds=0.0"),
        (("--rate=five",), "'five' must be tasks and seconds"),
        (("--backoff=first=x",), "must be of first, factor, most and jitter"),
        (("--backoff=last=1",), "must be of first, factor, most and jitter"),
        (("--backoff=first=-1",), "first=-1.0"),
        (("--order=random",), "order='random'"),
        (("--reset=schema",), "'schema' must be one of aging, backoff"),
        (("--ttr=5", "--reset=ttr"), "ttr cannot be set and reset at once"),
        (("--capacity=5",), "capacity=5"),
        (("--parallel=0",), "parallel=0"),
    ],
)
def test_alter_when_an_option_is_bad_ends_with_2_and_changes_nothing(
    tubeq: Tubeq, new_tube: NewTube, arguments: tuple[str, ...], message: str
) -> None:
    tube = new_tube("utubettl", ttr=9)
    before = dict(tube.options)

    found = tubeq("--json", "alter", tube.name, *arguments)

    assert found.exit_code == 2
    assert message in json.loads(found.stderr)["message"]
    assert dict(tube.options) == before
    assert tubeq("alter", "nothing", "--ttr=5").exit_code == 2


def test_pause_when_a_tube_is_paused_is_told_everywhere_until_it_resumes(
    tubeq: Tubeq, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    tube.put(1)

    assert tubeq("pause", tube.name).stdout == f"paused {tube.name}\n"
    assert results(tubeq("--json", "pause", tube.name)) == [{"tube": tube.name, "paused": True}]

    assert tubeq("take", tube.name).exit_code == 1
    for command in (("stats",), ("top", "--once"), ("metrics",)):
        [line] = [
            each for each in tubeq(*command).stdout.splitlines() if each.startswith(f"{tube.name} ")
        ]
        assert line.endswith("paused"), command
        [told] = [each for each in results(tubeq("--json", *command)) if each["tube"] == tube.name]
        assert told["paused"] is True
    assert "paused: true" in tubeq("show", tube.name).stdout
    assert f"paused: {tube.name}: is paused, and 1 tasks are ready" in tubeq("health").stdout
    if importlib.util.find_spec("prometheus_client") is not None:
        assert f'tubeq_paused{{tube="{tube.name}"}} 1.0' in tubeq("metrics", "--prometheus").stdout

    assert tubeq("resume", tube.name).stdout == f"resumed {tube.name}\n"
    assert results(tubeq("--json", "resume", tube.name)) == [{"tube": tube.name, "paused": False}]
    assert tubeq("take", tube.name).exit_code == 0
    assert f"paused: {tube.name}" not in tubeq("health").stdout
    assert tubeq("pause", "nothing").exit_code == tubeq("resume", "nothing").exit_code == 2
