"""Commands of `tubeq` on tubes and the queue work without Spark, as do settings, errors, help and completion."""

from __future__ import annotations

import datetime as dt
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.acceptance.command_line import invoke
from tests.acceptance.support import counts, put_and_take, take
from tests.programs import environment, ran, started
from tubeq_spark import Backoff, Queue, Rate
from tubeq_spark.cli import app
from tubeq_spark.cli.call import Outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.acceptance.command_line import Tubeq


def test_tube_when_created_is_listed_counted_and_dropped(tubeq: Tubeq) -> None:
    [made] = tubeq.json("create", "web", "fifottl", "--ttr=60", "--max-attempts=3")
    assert (made["tube"], made["type"], made["options"]["ttr"]) == ("web", "fifottl", 60)
    web = tubeq.queue["web"]
    assert web.options.max_attempts == 3

    put = tubeq("put", "web", "--pri=2", stdin='{"n": 1}\n\n"zwei"\n')
    assert put.stdout.startswith("put 2 tasks into web: ")
    assert put.stderr == ""
    web.put("first", pri=1)

    assert "web" in tubeq("tubes").stdout.splitlines()
    [stats] = tubeq.json("stats", "web")
    # The third put is not told of yet.
    assert (stats["tasks"]["ready"], stats["calls"]["put"]) == (3, 2)
    for command in (("top", "--once"), ("stats",), ("stats", "web")):
        header, row = [line.split() for line in tubeq(*command).stdout.splitlines()]
        assert header[:4] == ["tube", "type", "ready", "taken"]
        assert row[:4] == ["web", "fifottl", "3", "0"]
    assert tubeq.json("stats") == [stats]
    looks = tubeq.json("top", "--refreshes=2", "--interval=5")
    assert [look["look"] for look in looks] == [1, 2]

    assert tubeq("take", "web").stdout.endswith('\ttaken\t"first"\n')
    assert [task["data"] for task in tubeq.json("take", "web", "-n5")] == [{"n": 1}, "zwei"]
    nothing = tubeq("take", "web")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (1, "", "")
    assert tubeq("drop", "web", "--yes").stdout == "dropped web\n"
    assert tubeq.queue.tubes() == []


# -- looking -------------------------------------------------------------------------------------------


def test_tasks_and_show_tell_of_one_tube(tubeq: Tubeq) -> None:
    tube = tubeq.tube("utubettl", ttr=60)
    put_and_take(tube, "held", utube="a")
    buried = tube.put("set aside", utube="b")
    tube.bury(buried.task_id)
    tube.put_many(["c", "d"], utube="c")

    listed = tubeq.rows("tasks", tube.name)
    one = tubeq.json("tasks", tube.name, "--state", "ready", "-n1")
    by_letter = tubeq.json("tasks", tube.name, "--state=!")
    [shown] = tubeq.json("show", tube.name)

    assert [row["state"] for row in listed] == ["taken", "ready", "ready", "buried"]
    assert [task["data"] for task in one] == ["c"]
    assert [task["task_id"] for task in by_letter] == [str(buried.task_id)]
    assert (shown["options"]["ttr"], shown["tasks"]["total"], shown["type"]) == (60, 4, "utubettl")
    assert "  ttr: 60.0\n" in tubeq("show", tube.name).stdout


def test_history_and_sessions_tell_which_verbs_of_whom_changed_or_hold_how_many_tasks(
    tubeq: Tubeq,
) -> None:
    tube = tubeq.tube()
    tube.put_many([1, 2, 3])
    tube.ack_many([task.task_id for task in tube.take_many(2)])

    told = tubeq.json("history", tube.name)
    verbs = [(commit["operation"], commit["tasks"]) for commit in told]
    assert verbs == [("ack", 2), ("take", 2), ("put", 3), ("create", 0)]
    assert {commit["session"] for commit in told} == {str(tubeq.queue.session_uuid), None}
    assert [row["version"] for row in tubeq.rows("history", tube.name, "-n2")] == ["3", "2"]

    [task] = tubeq.json("take", tube.name, "--keep=100")
    [info] = [each for each in tubeq.json("sessions") if each["uuid"] == task["session"]]
    assert (info["holds"], info["tubes"], info["pid"]) == (1, {tube.name: 1}, os.getpid())
    [row] = [each for each in tubeq.rows("sessions") if each["session"] == task["session"]]
    assert row["host"] == info["host"] == socket.gethostname()


def test_utubes_tells_the_tasks_of_each_subqueue(tubeq: Tubeq) -> None:
    tube = tubeq.tube("utubettl")
    begin = tubeq.clock.now()
    tube.put_many(["a", "b"], utube="long")
    tube.put("c", utube="")
    tube.put("d", delay=1_000)
    tubeq.clock.advance(240)

    told = tubeq.json("utubes", tube.name)
    [listed, *_] = tubeq.rows("utubes", tube.name)

    assert [row["utube"] for row in told] == ["long", None, ""]
    numbers = {"ready": 2, "taken": 0, "delayed": 0, "buried": 0}
    assert told[0] == {"utube": "long", "oldest": begin.isoformat(), **numbers}
    texts = {name: str(number) for name, number in numbers.items()}
    assert listed == {"utube": "long", "oldest": "4m", **texts}
    assert tubeq.json("utubes", tube.name, "--limit=1") == told[:1]
    take(tube)
    [taken] = tubeq.rows("utubes", tube.name, "--taken")
    assert (taken["utube"], taken["taken"]) == ("long", "1")
    assert tubeq.json("utubes", tube.name, "--taken")[0]["taken"] == 1


def test_why_and_metrics_tell_of_tasks_that_wait(tubeq: Tubeq) -> None:
    tube = tubeq.tube()
    first, second = (task.task_id for task in tube.put_many(["a", "b"]))
    tubeq.clock.advance(240)

    said = tubeq("why", tube.name, str(second)).stdout
    assert said == f"Task {second} waits: 1 task comes before it.\n"
    [told] = tubeq.json("why", tube.name, str(first))
    assert told == {"tube": tube.name, "task_id": str(first), "why": tube.why(first)}
    [told] = tubeq.json("metrics")
    assert (told["ready"], told["oldest_ready_age"], told["commits"]) == (2, 240, 1)
    [row] = tubeq.rows("metrics")
    assert (row["ready"], row["oldest"]) == ("2", "4m")


def test_health_when_something_wants_attention_ends_with_1(tubeq: Tubeq) -> None:
    tube = tubeq.tube("fifottl")
    tube.put("a", delay=1)
    tubeq.queue.sweep()
    tubeq.clock.advance(1_000)
    # The clock of the tests is not the storage's.
    health = ("health", "--drift=1e12")

    told, said = tubeq(*health, "--json"), tubeq(*health)

    assert (told.exit_code, said.exit_code) == (1, 1)
    assert [(p["kind"], p["tube"]) for p in map(json.loads, told.stdout.splitlines())] == [
        ("sweeper", tube.name)
    ]
    assert f"sweeper: {tube.name}: 1 task due for a sweep, " in said.stdout
    tubeq.queue.sweep()
    assert tubeq(*health).stdout == "no problems\n"
    assert tubeq.json(*health) == []


def test_top_shows_what_all_processes_do_a_second_and_sorts_by_a_column(tubeq: Tubeq) -> None:
    tube, clock = tubeq.tube(), tubeq.clock
    tubeq.tube().put_many(range(99))
    tube.put_many(range(9))
    sleep = clock.sleep
    tube.take(0)
    clock.advance(10)

    with (
        Queue(None, tubeq.queue.location, clock=clock) as queue,
        pytest.MonkeyPatch.context() as patch,
    ):
        other = queue[tube.name]

        def work(seconds: float) -> None:
            other.put_many(range(10))
            tasks = other.take_many(6)
            other.exchange(ack=[task.task_id for task in tasks[:4]], take=2)
            other.bury(tasks[5].task_id)
            sleep(seconds)

        patch.setattr(clock, "sleep", work)
        told = tubeq.json("top", "--refreshes=2", "--interval=2")
    first, second = [look for look in told if look["tube"] == tube.name]

    assert (first["flow"], first["oldest_ready_age"]) == (None, 10)
    assert second["flow"] == {"added": 5, "done": 2, "seconds": 2}
    assert second["buried"] == 1
    assert len(tubeq.rows("top", "--once")) == 2


# -- terminals -------------------------------------------------------------------------------------------


class Terminal(NamedTuple):
    """A program on a terminal."""

    process: subprocess.Popen[str]
    ours: int

    def read(self, done: Callable[[str], bool] = lambda _: False) -> str:
        """What it shows until then; it ends, or the test's time is over."""
        text = ""
        while not done(text):
            if select.select([self.ours], [], [], 0.05)[0]:
                try:
                    text += os.read(self.ours, 65_536).decode(errors="replace")
                except OSError:  # Linux: the other side has closed it
                    break
        return text


@contextmanager
def on_terminal(
    location: str, *words: str, columns: int = 150, out: int | None = None
) -> Iterator[Terminal]:
    """Run `tubeq` on a terminal of so many columns; its standard output may go elsewhere."""
    import pty  # noqa: PLC0415  not on every system

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tubeq_spark.cli", "--location", location, *words]
    surroundings = environment(TERM="xterm", COLUMNS=str(columns))
    with subprocess.Popen(
        command, env=surroundings, stdin=theirs, stdout=out or theirs, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        yield Terminal(process, ours)
        os.close(ours)
    assert process.returncode == 0


has_terminals = pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")


@pytest.mark.processes
@has_terminals
def test_top_on_a_terminal_is_drawn_again_until_ctrl_c(tubeq: Tubeq) -> None:
    tubeq.queue.create_tube("few").put("a")
    tubeq.queue.create_tube("many").put_many(["a", "b"])

    with on_terminal(tubeq.queue.location, "top", "--interval=0.1") as terminal:
        terminal.read(lambda text: text.count("many") > 1)
        terminal.process.send_signal(signal.SIGINT)
        terminal.read(lambda _: terminal.process.poll() is not None)


@pytest.mark.processes
@has_terminals
def test_table_when_the_terminal_is_narrow_cuts_payloads_and_no_numbers(tubeq: Tubeq) -> None:
    task = tubeq.queue.create_tube("narrow_one").put("x" * 300)
    shown = {}
    for command in ("tasks narrow_one", "stats"):
        words = command.split()
        with on_terminal(tubeq.queue.location, *words, columns=60) as terminal:
            shown[command] = terminal.read()

    assert str(task.task_id) in shown["tasks narrow_one"]
    assert '"xxxxx' in shown["tasks narrow_one"]
    assert "x" * 100 not in shown["tasks narrow_one"]
    assert "narrow_one  fifo      1 " in shown["stats"]
    assert "delete" in shown["stats"]


@pytest.mark.processes
@has_terminals
def test_put_when_a_bar_is_on_the_terminal_prints_its_result_to_standard_output(
    tubeq: Tubeq, tmp_path: Path
) -> None:
    tubeq.queue.create_tube("t")
    lines = tmp_path / "lines"
    lines.write_text("1\n" * 30)
    put = ("put", "t", str(lines), "--batch=10")

    with on_terminal(tubeq.queue.location, *put, out=subprocess.PIPE) as terminal:
        shown = terminal.read()
        said, _ = terminal.process.communicate()

    assert said.startswith("put 30 tasks into t: ")
    assert "60/60 bytes" in shown


# -- changing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "nothing", "done", "left"),
    [
        ("drop", "nothing was dropped", {"dropped": True}, None),
        ("truncate", "nothing was removed", {"truncated": True}, {}),
        ("release-all", "nothing was released", {"released": 1}, {"ready": 2, "total": 2}),
    ],
)
def test_command_that_destroys_without_a_terminal_asks_for_yes(
    command: str, nothing: str, done: dict[str, object], left: dict[str, int] | None, tubeq: Tubeq
) -> None:
    tube, queue = tubeq.tube(), tubeq.queue
    tube.put_many([1, 2])
    take(tube)

    said = f"{nothing}: without a terminal it needs --yes"
    assert tubeq.refusal(command, tube.name) == f"tubeq: {said}"
    assert counts(queue, tube) == {"ready": 1, "taken": 1, "total": 2}
    if command == "drop":
        tube.release_all()
    assert tubeq.json(command, tube.name, "--yes") == [{"tube": tube.name, **done}]
    assert (counts(queue, tube) if tube.name in queue else None) == left


def test_create_and_alter_when_options_are_given_set_them(tubeq: Tubeq) -> None:
    options = ("--backoff=first=2,most=60", "--parallel=3", "--rate=5/1", "--order=fair")
    more = ("--most-taken=100", "--unique-for=60", "--ttr=9", "--ttl=8")

    [made] = tubeq.json("create", "limited", "utubettl", *options, *more)

    assert made["options"]["rate"] == {"tasks": 5, "seconds": 1.0}
    assert made["options"]["backoff"]["most"] == 60
    found = tubeq.queue["limited"].options
    assert (found.parallel, found.rate, found.order) == (3, Rate(5, 1), "fair")
    assert (found.most_taken, found.unique_for, found.backoff) == (100, 60, Backoff(2, most=60))
    tubeq.json("create", "aged", "fifottl", "--aging=60")
    assert tubeq.queue["aged"].options.aging == 60

    altered = tubeq("alter", "limited", "--ttr", "5", "--rate", "10/0.5", "--parallel", "2")
    reset = ("--reset=rate", "--reset=most-taken", "--reset", "ttl")
    [shown] = tubeq.json("alter", "limited", *reset)

    assert altered.stdout == "altered ttr, parallel, rate of limited\n"
    now = [shown["options"][name] for name in ("ttr", "parallel", "rate", "most_taken", "ttl")]
    assert now == [5, 2, None, None, None]
    assert tubeq("show", "limited").stdout.count("parallel: 2") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to alter"),
        (("--rate=5/0",), "seconds=0.0"),
        (("--rate=five",), "'five' must be a whole number >= 1"),
        (("--backoff=first=x",), "'x' must be a duration"),
        (("--backoff=last=1",), "must be of first, factor, most and jitter"),
        (("--backoff=first=9,most=1",), "most=1.0: must be at least first"),
        (("--ttr=nan",), "'nan' must be a duration"),
        (("--parallel=1.5",), "'1.5' must be a whole number"),
        (("--reset=schema",), "'schema' must be one of aging, backoff"),
        (("--ttr=5", "--reset=ttr"), "ttr cannot be set and reset at once"),
        (("--capacity=5",), "capacity=5"),
    ],
)
def test_alter_when_an_option_is_bad_changes_nothing(
    tubeq: Tubeq, arguments: tuple[str, ...], message: str
) -> None:
    tube = tubeq.tube("utubettl", ttr=9)
    before = dict(tube.options)

    assert message in tubeq.refusal("alter", tube.name, *arguments)
    assert dict(tube.options) == before


def test_pause_when_a_tube_is_paused_is_told_everywhere_until_it_resumes(tubeq: Tubeq) -> None:
    tube = tubeq.tube()
    tube.put(1)

    assert tubeq("pause", tube.name).stdout == f"paused {tube.name}\n"
    assert tubeq.json("pause", tube.name) == [{"tube": tube.name, "paused": True}]

    assert tubeq("take", tube.name).exit_code == 1
    for command in (("stats",), ("top", "--once"), ("metrics",)):
        _, line = tubeq(*command).stdout.splitlines()
        assert line.endswith("paused"), command
        assert [each["paused"] for each in tubeq.json(*command)] == [True]
    assert "paused: true" in tubeq("show", tube.name).stdout
    assert f"paused: {tube.name}: is paused with 1 ready task" in tubeq("health").stdout

    assert tubeq("resume", tube.name).stdout == f"resumed {tube.name}\n"
    assert tubeq.json("resume", tube.name) == [{"tube": tube.name, "paused": False}]
    assert tubeq("take", tube.name).exit_code == 0
    assert f"paused: {tube.name}" not in tubeq("health").stdout


@pytest.mark.parametrize("text", ["90", "90s", "1.5m", "0.025h"])
def test_duration_when_it_has_a_unit_is_that_many_seconds(tubeq: Tubeq, text: str) -> None:
    tube = tubeq.tube("utubettl", ttr=1)

    [altered] = tubeq.json("alter", tube.name, f"--ttr={text}", f"--rate=100/{text}")
    options = altered["options"]
    tubeq("put", tube.name, f"--delay={text}", "--ttl=1d", stdin="1\n")

    assert (options["ttr"], options["rate"]) == (90, {"tasks": 100, "seconds": 90})
    [task] = tube.tasks_by_state("~")
    assert task.next_event == tubeq.clock.now() + dt.timedelta(seconds=90)


def test_create_when_a_tube_has_other_options_names_them_or_refuses(tubeq: Tubeq) -> None:
    tubeq.queue.create_tube("t", "fifottl", ttr=60)
    create = ("create", "t", "fifottl", "--ttr=99", "--if-not-exists")
    differs = "tube 't' exists already, with ttr=60.0, not 99.0"

    found = tubeq(*create)
    same = tubeq("create", "t", "fifottl", "--ttr=60", "--if-same")

    assert (found.exit_code, found.stdout) == (0, "tube t of type fifottl\n")
    assert found.stderr.startswith(f"tubeq: {differs}: its own options stay in force")
    assert (same.exit_code, same.stderr) == (0, "")
    assert tubeq.refusal(*create[:-1], "--if-same") == f"tubeq: {differs}"


def test_options_without_a_parser_are_text_paths_or_flags() -> None:
    """What typer would convert for other types stays text here."""
    for command in map(app._made, app._COMMANDS):
        for param in command.params:
            about = getattr(param, "type_descriptor", None)
            if about is not None and about.parameter_info.parser is None:
                assert about.annotation in (str, bool, Path, list[str]), (command.name, param.name)


def test_options_of_all_commands_are_taken_anywhere(tubeq: Tubeq) -> None:
    tube = tubeq.tube()

    found = invoke("stats", tube.name, "--location", tubeq.queue.location, "--json")

    assert (found.exit_code, json.loads(found.stdout)["tube"]) == (0, tube.name)


def test_help_has_groups_of_commands_whose_summaries_fit_a_narrow_terminal() -> None:
    found = invoke("--help", COLUMNS="80", TERMINAL_WIDTH="80").stdout
    titles = ["Tasks:", "Tubes:", "Workers:", "Operations:"]

    assert [line for line in found.splitlines() if line in titles] == titles
    assert "..." not in found.partition("Tasks:")[2]
    assert max(map(len, found.splitlines())) <= 80


@pytest.mark.processes
def test_command_when_nobody_reads_its_output_ends_silently(tubeq: Tubeq) -> None:
    tube = tubeq.tube()
    tube.put_many(["x" * 1_000] * 200)
    command = ("-m", "tubeq_spark.cli", "--location", tubeq.queue.location, "--verbose")
    with started(*command, "tasks", tube.name, "-n200") as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 141)


@pytest.mark.processes
@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_command_when_interrupted_at_its_start_prints_no_traceback(
    tubeq: Tubeq, seconds: float
) -> None:
    begun = threading.Event()
    # A shell ignores Ctrl-C for a program in the background, such as a run of these tests.
    usual = "import signal as s; s.signal(s.SIGINT, s.default_int_handler)"
    program = f"{usual}; import os, tubeq_spark.cli as c; os.write(1, b'.'); c.main()"
    with started("-c", program, "--location", tubeq.queue.location, "top") as process:
        process.stdout.read(1)
        begun.wait(seconds)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode in (-signal.SIGINT, 130, 0)
    assert "Traceback" not in said


# -- bad use, and other people's text ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "bad-name"], "name='bad-name': must be "),
        (["create", "x", "stack"], "stack"),
        (["create", "x", "fifo", "--ttl=5"], "fifo has no such option"),
        (["take", "t", "--timeout=-1"], "'-1' must be a duration, such as 90, 90s, 5m, 2h or 1d"),
        (["take", "t", "--count=0"], "'0' must be a whole number >= 1"),
        (["metrics", "--port=70000"], "'70000' must be a whole number from 0 to 65535"),
        (["top", "--interval=0"], "'0' must be a duration of at least 0.1 s"),
        (["verify", "--since=today"], "'today' must be a moment such as 2026-11-21"),
        (["touch", "t", "1", "inf", "--session=x"], "'inf' must be a duration"),
        (["put", "t", "--unique-field=id"], "line 1 of standard input lacks the field id of --unique-field; it has n, url"),
        (["work", "t", "--exec=true", "--batch=2"], "it needs a function, or --exec without --batch"),
        (["take", "t", "--nonsense"], "No such option: --nonsense"),
        (["peek", "t", "77"], "77"),
        (["peek", "t", "one"], "'one' must be a whole number"),
        (["ack", "t", "77", "--session=x"], "session_uuid='x': must be "),
        (["ack", "t", "77"], "Missing option '--session'"),
        (["tasks", "t", "--state=tired"], "must be one of ready, "),
        (["utubes", "t"], "has no sub-queues"),
        (["why", "t", "1"], "1 not found"),
        *(([verb, "nowhere"], "no tube named 'nowhere'") for verb in ("take", "pause", "resume")),
    ],
)  # fmt: skip
def test_bad_use_is_refused_with_a_sentence(tubeq: Tubeq, arguments: list[str], said: str) -> None:
    tubeq.queue.create_tube("t")

    refusal = tubeq.refusal(*arguments, stdin='{"n": 1, "url": "a"}\n')

    assert said in refusal
    assert tubeq.queue.statistics("t")["tasks"]["total"] == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message", "code"),
    [
        (["peek", "nowhere", "1"], "TubeNotFoundError", "no tube named 'nowhere'", 2),
        (["--nonsense"], "BadUseError", "No such option: --nonsense", 2),
        (["put", "t", "no-such-file"], "FileNotFoundError", "no-such-file", 2),
        (["drop", "t"], "BadUseError", "it needs --yes", 2),
        (["--engine=spark", "tubes"], "SparkAskedForError", "failed: None", 3),
        (["--engine=fast", "tubes"], "InvalidOptionError", "engine='fast': must be ", 2),
    ],
)
def test_error_with_json_is_one_object_on_standard_error(
    arguments: list[str], error: str, message: str, code: int, tubeq: Tubeq
) -> None:
    tubeq.queue.create_tube("t")

    for place in (0, len(arguments)):
        result = tubeq(*arguments[:place], "--json", *arguments[place:])

        assert (result.exit_code, result.stdout) == (code, "")
        said = json.loads(result.stderr)
        assert message in said.pop("message")
        assert said == {"error": error, "exit_code": code}
    with_trace = json.loads(tubeq("--json", "--verbose", "peek", "nowhere", "1").stderr)
    assert with_trace["trace"].startswith("Traceback")


#: Clears a screen, rings, begins a title, by one character and by two; turns the direction around.
EVIL = "\x1b[2J\x07\x1b]0;title\x9b31m\x7f\r\u202e[bold]"
CONTROLS = set(EVIL) - set("[]0;title31mboldJ2")


def test_text_of_others_when_it_controls_a_terminal_is_shown_escaped(
    tubeq: Tubeq, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = tubeq.tube("utubettl", ttr=60)
    monkeypatch.setattr("socket.gethostname", lambda: EVIL)
    tube.put({EVIL: EVIL}, utube=EVIL)
    number = str(tube.put(EVIL, utube=EVIL).task_id)
    [held] = tubeq.json("take", tube.name, "--keep=100")

    of_tasks = [("tasks", tube.name), ("peek", tube.name, number), ("why", tube.name, number)]
    of_queue = [("sessions",), ("history", tube.name), ("utubes", tube.name), ("peek", EVIL, "1")]
    shown = {}
    for command in (*of_tasks, *of_queue, ("put", tube.name, "no" + EVIL)):
        for option in ("", "--json", "--verbose"):
            found = tubeq(*command, *([option] if option else []))
            shown[command[0], option] = found.stdout
            text = (found.stdout + found.stderr).replace("\n", "")
            assert not CONTROLS & set(text), ascii(text)
    assert "\\x1b[2J\\x07" in shown["tasks", ""]
    assert "[bold]" in shown["tasks", ""]
    lines = shown["tasks", "--json"].splitlines()
    assert {json.loads(line)["utube"] for line in lines} == {EVIL}
    assert held["data"] == {EVIL: EVIL}
    [info] = [i for i in tubeq.json("sessions") if i["uuid"] == held["session"]]
    assert info["host"] == EVIL


# -- settings and engines ------------------------------------------------------------------------------------


def test_defaults_come_from_a_file_unless_the_command_line_knows_better(
    tubeq: Tubeq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tubeq.queue.create_tube("t")

    def asks_spark(*options: str) -> str:
        found = invoke(*options, "tubes")
        assert found.exit_code == 3
        return found.stderr

    assert invoke("tubes").exit_code == 2
    Path("tubeq.toml").write_text(f'location = "{tubeq.queue.location}"\nttr = 5\n')
    assert invoke("tubes").stdout.splitlines() == ["t"]
    assert asks_spark("--engine=spark") == "tubeq: failed: None\n"
    with Path("tubeq.toml").open("a") as file:
        file.write('remote = "sc://there"\nengine = "spark"\n')
    # A location follows no file, and needs no session where commits are native.
    assert invoke("tubes").exit_code == invoke("--remote=sc://here", "tubes").exit_code == 0
    assert asks_spark("--engine=spark") == "tubeq: failed: sc://there\n"
    assert asks_spark("--engine=spark", "--remote=sc://here") == "tubeq: failed: sc://here\n"
    monkeypatch.setenv("TUBEQ_ENGINE", "spark")
    assert invoke("tubes").exit_code == 0
    # But a new one does.
    assert asks_spark("--location=new") == "tubeq: failed: sc://there\n"
    monkeypatch.setenv("TUBEQ_ENGINE", "native")
    assert invoke("--location=new", "tubes").exit_code == 2
    other = tmp_path / "other.toml"
    for text, said in (
        ("loction = 1", "loction=1: must be absent"),
        ("ttr = 0", "ttr=0: must be "),
        ("[queue]\nattempts = 0", "attempts=0: must be "),
        ("=", "is not valid TOML"),
    ):
        other.write_text(text)
        refused = tubeq.refusal("--config", str(other), "tubes")
        assert refused.startswith(f"tubeq: {other}: ")
        assert said in refused


@pytest.mark.usefixtures("tubeq")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--location=main.queues", "tubes"], 3, "failed: None"),
        (["--location=gs://bucket/queue", "tubes"], 3, "failed: None"),
        (["--location=main.q", "--engine=native", "tubes"], 3, "main.q is a schema of a catalog"),
        (
            ["--location=q", "--engine=native", "create", "t", "--schema=n TIMESTAMP_NTZ"],
            3,
            "schema='n TIMESTAMP_NTZ': TIMESTAMP_NTZ needs a Spark session: ",
        ),
    ],
)
def test_engine_when_spark_is_needed_is_spark_unless_the_other_was_asked_for(
    arguments: list[str], code: int, said: str
) -> None:
    found = invoke(*arguments)

    assert (found.exit_code, found.stdout) == (code, "")
    assert found.stderr.startswith(f"tubeq: {said}")


# -- packages that are missing ------------------------------------------------------


def test_sweep_when_a_queue_is_named_before_it_sweeps_that_one(tubeq: Tubeq) -> None:
    location = tubeq.queue.location

    swept = invoke("--location", location, "sweep", outside=Outside())
    nowhere = invoke("--location", f"{location}/none", "sweep", outside=Outside())
    bad = invoke("--location", location, "sweep", "--onze", outside=Outside())

    assert (swept.exit_code, swept.stderr) == (0, "")
    assert (nowhere.exit_code, nowhere.stdout) == (2, "")
    assert nowhere.stderr.startswith("tubeq: no queue at ")
    assert not Path(location, "none").exists()
    assert (bad.exit_code, "No such option: --onze" in bad.stderr) == (2, True)


@pytest.mark.processes
@pytest.mark.usefixtures("tubeq")
def test_program_when_there_is_neither_spark_nor_java_prints_nothing_but_its_results(
    location: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text('{"n": 1}\n')
    calls = ["create t", "put t lines", "take t", "--engine=spark tubes"]
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'py4j', 'delta']))\n"
        "from tubeq_spark.cli import run_tubeq\n"
        "for call in sys.argv[1:]: print(run_tubeq('--json', *call.split()))"
    )

    place = {"JAVA_HOME": str(tmp_path), "TUBEQ_LOCATION": location}
    done = ran("-c", program, *calls, cwd=tmp_path, **place)

    made, put, taken, on_spark = done.stdout.split("0\n")
    assert json.loads(made)["tube"] == "t"
    assert json.loads(put)["count"] == 1
    assert json.loads(taken)["data"] == {"n": 1}
    assert on_spark == "2\n"
    refusal = "pyspark is not installed: pip "
    assert json.loads(done.stderr)["message"].startswith(refusal)
