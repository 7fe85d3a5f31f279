"""Commands of `tubeq` on tasks work without Spark, and lose no task when they fail or a signal stops them."""

from __future__ import annotations

import datetime as dt
import errno
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow.parquet as pq
import pytest

from tests.acceptance.support import calls, counts, data_of, put_and_take, take
from tubeq_spark import Backoff, Queue, Task, TaskState, Tube
from tubeq_spark.cli.call import Call
from tubeq_spark.verbs import settle

if TYPE_CHECKING:
    from tests.acceptance.command_line import Tubeq
    from tubeq_spark import SweepReport


def fail_to_print(_text: str) -> NoReturn:
    """Stands in for a pipe that nobody reads."""
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def script(tmp_path: Path, *lines: str) -> str:
    """A command that runs a program; `seen` is a file that it adds lines to."""
    file = tmp_path / "work.py"
    seen = f"seen = open({str(tmp_path / 'seen')!r}, 'a', encoding='utf-8')"
    file.write_text("\n".join(("import json, os, pathlib, sys", seen, *lines)), encoding="utf-8")
    return f"{sys.executable} {file}"


def test_command_when_a_data_file_is_damaged_says_that_tasks_are_left_out(tubeq: Tubeq) -> None:
    tube = tubeq.tube()
    tube.put("a")
    [file] = (Path(tubeq.queue.location) / tube.name).glob("segment=*/*.parquet")
    file.write_bytes(file.read_bytes()[:-9])

    for command in ("tasks", "stats", "take"):
        said = tubeq(command, tube.name).stderr
        assert said.startswith(f"tubeq: {file} has "), command
        assert said.endswith(": reads leave its segment out\n")
        assert said.count("\n") == 1


# -- put ---------------------------------------------------------------------------------------------


def test_put_of_a_file_when_a_line_is_bad_names_it_and_keeps_whole_batches(
    tubeq: Tubeq, tmp_path: Path
) -> None:
    tube = tubeq.tube()
    lines = tmp_path / "tasks.jsonl"
    lines.write_text("1\n2\n3\n4\n5\n{bad\n")

    count, error = tubeq("put", tube.name, str(lines), "--batch=2").stderr.splitlines()

    assert count == "tubeq: 4 tasks put"
    assert error.startswith(f"tubeq: line 6 of {lines} is not valid JSON: ")
    for line, why in (("NaN", "data=nan: must be a JSON value"), ('"\\ud800"', "JSON value")):
        said = tubeq.refusal("put", tube.name, stdin=f"5\n{line}\n")
        assert "line 2 of standard input" in said
        assert why in said
    assert data_of(tube.tasks_by_state("r")) == [1, 2, 3, 4]


def test_put_when_keys_are_there_puts_the_others_and_counts_these(tubeq: Tubeq) -> None:
    tube = tubeq.tube()
    put = ("put", tube.name, "--unique-field=url", "--batch=2")
    lines = '{"url": "a"}\n{"url": "b"}\n{"url": "a"}\n{"url": null}\n'

    assert tubeq.json(*put, stdin=lines)[0]["count"] == 3
    assert tubeq.json(*put, stdin=lines)[0]["count"] == 1
    one = tubeq("put", tube.name, "--unique=a", stdin="5\n")
    assert one.stdout == f"put 0 tasks into {tube.name}\n"
    assert tubeq("put", tube.name, "--unique=b", stdin="5\n6\n").exit_code == 2
    bad = tubeq(*put, stdin='{"url": "c"}\n{"url": "d"}\n{"url": [1]}\n')
    assert (bad.exit_code, bad.stdout) == (2, "")
    before, refused = bad.stderr.splitlines()
    assert (before, "unique" in refused) == ("tubeq: 2 tasks put", True)
    assert len(list(tube.tasks_by_state("r"))) == 6


def test_put_when_a_field_has_the_subqueue_uses_it_and_a_line_without_it_is_refused(
    tubeq: Tubeq,
) -> None:
    tube = tubeq.tube("utube")
    put = ("put", tube.name, "--utube-field=host", "--batch=2")

    tubeq.json(*put, stdin='{"host": "a"}\n{"host": 7}\n{"host": null}\n')
    refused = tubeq.refusal(*put, stdin='{"host": "c"}\n1\n')

    assert [task.utube for task in tube.tasks_by_state("r")] == ["a", "7", None]
    said = "line 2 of standard input lacks the field host of --utube-field; it has no fields"
    assert refused == f"tubeq: {said}"


def test_put_when_the_tube_is_full_says_so(tubeq: Tubeq) -> None:
    tube = tubeq.tube("limfifottl", capacity=3)

    result = tubeq("put", tube.name, "--batch=2", "--json", stdin="1\n2\n3\n4\n")

    assert (result.exit_code, json.loads(result.stdout)["count"]) == (1, 2)
    said = f"tube {tube.name} is full; 2 tasks put"
    assert json.loads(result.stderr) == {"note": said}


@pytest.mark.usefixtures("ctrl_c_comes")
@pytest.mark.parametrize(
    ("number", "times", "said"),
    [
        (signal.SIGTERM, 1, "4 tasks put"),
        (signal.SIGINT, 2, "2 tasks put, and perhaps the next 2"),
    ],
    ids=["SIGTERM", "SIGINT twice"],
)
def test_put_when_a_signal_comes_finishes_the_batch_in_hand_and_tells_what_was_put(
    tubeq: Tubeq, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, times: int, said: str
) -> None:
    tube = tubeq.tube()
    put_many = Tube.put_many

    def put_when_signalled(self: Tube, items: list[Any], **options: Any) -> list[Task]:
        tasks = put_many(self, items, **options)
        for _ in range(times if items == [3, 4] else 0):
            signal.raise_signal(number)
        return tasks

    monkeypatch.setattr(Tube, "put_many", put_when_signalled)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    result = tubeq("put", tube.name, "--batch=2", stdin="1\n2\n3\n4\n5\n")

    assert result.exit_code == 128 + number
    assert f"tubeq: {said}\n" in result.stderr
    assert data_of(tube.tasks_by_state("r")) == [1, 2, 3, 4]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_put_and_take_when_their_results_cannot_be_printed_lose_no_task(
    tubeq: Tubeq, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = tubeq.tube("utubettl", ttr=3_600)
    monkeypatch.setattr("tubeq_spark.cli.call.print_line", fail_to_print)

    put = tubeq("put", tube.name, stdin="1\n2\n")
    taken = tubeq("take", tube.name, "--keep=100000")

    assert (put.exit_code, taken.exit_code, taken.stdout) == (141, 141, "")
    assert (put.stderr, taken.stderr) == ("tubeq: 2 tasks put\n", "")
    assert counts(tubeq.queue, tube) == {"ready": 2, "total": 2}
    assert take(tube).data == 1


# -- take --------------------------------------------------------------------------------------------


def test_work_with_exec_acks_what_the_command_did_and_gives_back_what_it_did_not(
    tubeq: Tubeq, tmp_path: Path
) -> None:
    tube = tubeq.tube()
    tube.put_many(["good", "bad", "good too"])
    work = script(
        tmp_path,
        "data = json.load(sys.stdin)",
        "print(data, os.environ['TUBEQ_ATTEMPTS'], file=seen)",
        "sys.exit(data == 'bad')",
    )

    done = tubeq("work", tube.name, "--idle=0", "--bury", "--strict", "--json", "--exec", work)

    report = json.loads(done.stdout)
    assert (done.exit_code, report["done"], report["buried"]) == (4, 2, 1)
    assert json.loads(done.stderr)["note"].endswith("attempt 1: the command ended with 1")
    assert (tmp_path / "seen").read_text() == "good 1\nbad 1\ngood too 1\n"
    assert [task.error for task in tube.tasks_by_state("!")] == ["the command ended with 1"]
    for bad in (["--exec", "no-such-program"], [], ["--exec=true", "m:f"]):
        assert tubeq("work", tube.name, *bad).exit_code == 2
    assert counts(tubeq.queue, tube) == {"buried": 1, "done": 2, "total": 1}


def test_work_with_exec_passes_what_no_environment_can_hold_in_a_file(
    tubeq: Tubeq, tmp_path: Path
) -> None:
    tube = tubeq.tube("utube")
    utubes = ["plain", "a\0b", "x" * 200_000]
    for number, utube in enumerate(utubes):
        tube.put({"n": number, "text": "y" * 300_000}, utube=utube)
    work = script(
        tmp_path,
        "task = json.loads(pathlib.Path(os.environ['TUBEQ_TASK_FILE']).read_text('utf-8'))",
        "assert task['data'] == json.load(sys.stdin)",
        "assert str(task['task_id']) == os.environ['TUBEQ_TASK_ID']",
        "print(json.dumps(task['utube']), file=seen)",
    )

    done = tubeq("work", tube.name, "--idle=0", "--exec", work)

    assert (done.exit_code, done.stdout[:16]) == (0, "3 done, 0 failed"), done.stderr
    assert counts(tubeq.queue, tube) == {"done": 3}
    found = [json.loads(line) for line in (tmp_path / "seen").read_text("utf-8").splitlines()]
    assert sorted(found) == sorted(utubes)


def test_take_with_keep_leaves_tasks_to_a_session_until_its_time_is_over(tubeq: Tubeq) -> None:
    tube, queue = tubeq.tube("fifottl", ttr=3_600), tubeq.queue
    tube.put_many(["a", "b", "c"])
    kept = tubeq.json("take", tube.name, "-n3", "--keep=100")
    a, b, c = [str(task["task_id"]) for task in kept]
    [session] = {task["session"] for task in kept}
    assert counts(queue, tube) == {"taken": 3, "total": 3}
    assert calls(queue, tube)["take"] == 3

    tubeq.clock.advance(90)
    assert tubeq.json("ack", tube.name, a, "--session", session)[0]["state"] == "-"
    # Who joined it and left did not end it.
    touched = tubeq("touch", tube.name, b, "60", "--session", session)
    assert touched.stdout == f'{b}\ttaken\t"b"\n'
    back = tubeq.json("release", tube.name, b, "--session", session, "--delay=5")
    assert back[0]["state"] == "~"
    assert counts(queue, tube) == {"taken": 1, "delayed": 1, "done": 1, "total": 2}

    tubeq.clock.advance(20)
    late = tubeq.refusal("ack", tube.name, c, "--session", session)
    assert late == f"tubeq: session {session} is unknown or no longer alive"
    queue.sweep()
    assert data_of([take(tube), take(tube)]) == ["b", "c"]


@pytest.mark.parametrize(
    ("type_name", "options", "said"),
    [
        ("fifottl", ["--keep=-5"], "'-5' must be a duration"),
        ("fifottl", ["--keep=0"], "tubeq: keep="),
        ("fifottl", ["--keep=nan"], "'nan' must be a duration"),
        ("fifo", ["--utube=a"], "has no sub-queues"),
    ],
)
def test_take_when_its_options_are_bad_takes_nothing(
    tubeq: Tubeq, type_name: str, options: list[str], said: str
) -> None:
    tube = tubeq.tube(type_name, max_attempts=1)
    tube.put("a")

    assert said in tubeq.refusal("take", tube.name, *options)

    # Its only attempt was not used up.
    assert counts(tubeq.queue, tube) == {"ready": 1, "total": 1}


def test_take_of_named_subqueues_takes_from_no_other(tubeq: Tubeq) -> None:
    tube = tubeq.tube("utube")
    for utube in ("a", "b", "7", "c"):
        tube.put(utube, utube=utube)

    named = ["--utube", "7", "--utube=b"]
    taken = tubeq.json("take", tube.name, "-n9", *named, "--keep=100")

    assert [task["utube"] for task in taken] == ["b", "7"]
    assert tubeq("take", tube.name, *named).exit_code == 1
    done = tubeq.json("work", tube.name, "--idle=0", "--utube=c", "--exec=true")
    assert (done[0]["done"], data_of(tube.tasks_by_state("r"))) == (1, ["a"])


# -- tasks by their ids --------------------------------------------------------------------------------


def test_ids_in_json_are_texts_and_are_taken_so(tubeq: Tubeq) -> None:
    tube = tubeq.tube("fifottl", ttr=60)
    [put] = tubeq.json("put", tube.name, stdin='"a"\n"b"\n')
    ids = [str(task.task_id) for task in tube.take_many(2)]
    assert [put["first_task_id"], put["last_task_id"]] == ids

    [first] = tubeq.json("peek", tube.name, ids[0])
    # As `jq .task_id` prints it.
    [second] = tubeq.json("peek", tube.name, json.dumps(ids[1]))

    assert (first["task_id"], second["task_id"], second["data"]) == (*ids, "b")


def test_tasks_of_others_when_named_can_be_peeked_buried_and_deleted(tubeq: Tubeq) -> None:
    tube, session = tubeq.tube("utube"), ("--session", str(tubeq.queue.identify()))
    number = str(put_and_take(tube, {"n": 1}, utube="u").task_id)

    [peeked] = tubeq.json("peek", tube.name, number)
    assert (peeked["state"], peeked["utube"], peeked["data"]) == ("t", "u", {"n": 1})
    # That session holds it, whoever speaks for it.
    assert tubeq("ack", tube.name, number, *session).exit_code == 0
    other = put_and_take(tube, "x", utube="u").task_id
    assert tubeq("bury", tube.name, str(other)).stdout == f'{other}\tburied\t"x"\n'
    assert tube.peek(other).state is TaskState.BURIED
    assert tubeq("delete", tube.name, str(other)).stdout == f"deleted 1 task of {tube.name}\n"
    assert counts(tubeq.queue, tube) == {"done": 2}


def test_errors_when_given_are_kept_and_shown(tubeq: Tubeq) -> None:
    backoff = {"first": 9.0, "factor": 2.0, "most": 3600.0, "jitter": 0.0}
    tube = tubeq.tube("fifottl", backoff=Backoff(**backoff))
    first, second = put_and_take(tube, "a"), put_and_take(tube, "b")
    session = ("--session", str(tubeq.queue.identify()))

    why = "it is\x1b[31m broken\nfor ever"
    tubeq("release", tube.name, str(first.task_id), *session, "--error", why)
    tubeq("bury", tube.name, str(second.task_id), "--error", "it is hopeless")

    assert tube.peek(first.task_id).error == why
    peeked = tubeq("peek", tube.name, str(second.task_id)).stdout
    assert peeked == f'{second.task_id}\tburied\t"b"\nit is hopeless\n'
    [delayed] = tubeq.json("tasks", tube.name, "--state", "delayed")
    assert delayed["error"] == why
    assert tube.peek(first.task_id).next_event == tubeq.clock.now() + dt.timedelta(seconds=9)
    table = tubeq("tasks", tube.name).stdout
    assert "it is hopeless" in table
    assert "broken" in table
    assert "for ever" not in table
    assert "\x1b" not in table
    [shown] = tubeq.json("show", tube.name)
    assert shown["options"]["backoff"] == backoff


def test_kick_of_named_tasks_or_where_a_condition_holds_kicks_these(tubeq: Tubeq) -> None:
    tube = tubeq.tube()
    ids = [task.task_id for task in tube.put_many(range(8))]
    tube.bury_many(ids)
    kick = ("kick", tube.name)
    named = [f"--id={ids[3]}", f"--id={ids[1]}"]

    assert tubeq.json(*kick, *named) == [{"tube": tube.name, "kicked": 2}]
    assert data_of(tube.tasks_by_state("r")) == [1, 3]
    assert tubeq.refusal(*kick, f"--id={ids[0]}", *named).endswith("is ready, not buried")
    assert tubeq(*kick, "--where", "data >= '7'").stdout == f"kicked 1 task of {tube.name}\n"
    assert tubeq.json(*kick, "1", "--where=data < '6'")[0]["kicked"] == 1
    assert data_of(tube.tasks_by_state("r")) == [0, 1, 3, 7]
    assert tubeq.json(*kick, "--where=data < '6'")[0]["kicked"] == 3
    for arguments, said in {
        ("2", *named): "a count and --id exclude each other",
        (
            str(ids[0]),
        ): f"{ids[0]} looks like the id of a task, not like a number of tasks: use --id",
        ("--all", "2"): "a count and --all exclude each other",
        ("--all", *named): "--all and --id exclude each other",
        (*named, "--where=TRUE"): "--id and --where exclude each other",
        ("--where=nothing = 1",): "where='nothing = 1': nothing is not possible; possible are ",
        ("--where=",): "where='': must be a text that is not empty",
    }.items():
        assert tubeq.refusal(*kick, *arguments).startswith(f"tubeq: {said}")
    assert data_of(tube.tasks_by_state("!")) == [6]
    assert tubeq(*kick, "--all").stdout == f"kicked 1 task of {tube.name}\n"


def test_tasks_and_delete_where_a_condition_holds_find_tasks_in_all_states(tubeq: Tubeq) -> None:
    tube = tubeq.tube("fifottl", ttr=60)
    held = put_and_take(tube, {"who": "ann"})
    ids = [task.task_id for task in tube.put_many([{"who": "ann"}, {"who": "bob"}])]
    tube.put({"who": "ann"}, delay=60)
    buried = tube.put({"who": "ann"})
    tube.bury(buried.task_id, error="no address")
    where = ("--where", "data LIKE '%ann%'")

    found = tubeq.json("tasks", tube.name, *where)
    some = tubeq("tasks", tube.name, "-n3", *where)
    assert (some.stdout.count("\n"), tubeq("tasks", tube.name, "-n5").stderr) == (4, "")
    assert some.stderr == "tubeq: 3 of 4 tasks shown; -n shows more\n"
    taken = tubeq.json("tasks", tube.name, "--where=state = 't' AND owner IS NOT NULL")
    ready = tubeq.json("tasks", tube.name, "--state=r", *where)
    asked = tubeq.refusal("delete", tube.name, *where)

    assert [task["state"] for task in found] == ["t", "r", "~", "!"]
    assert [task["task_id"] for task in taken] == [str(held.task_id)]
    assert [task["task_id"] for task in ready] == [str(ids[0])]
    assert tubeq.refusal("delete", tube.name).endswith("name tasks by their ids, or by --where")
    assert asked == "tubeq: nothing was deleted: without a terminal it needs --yes"
    assert len(tubeq.json("delete", tube.name, *where, "--yes")) == 4
    assert [task.task_id for task in tube.tasks_by_state("ready")] == ids[1:]
    assert counts(tubeq.queue, tube)["total"] == 1


def test_tasks_and_delete_where_tasks_are_taken_go_by_their_holder_and_the_moment(
    tubeq: Tubeq,
) -> None:
    tube = tubeq.tube("fifottl", ttr=60)
    held = put_and_take(tube, "held")
    lapsed = put_and_take(tube, "lapsed", ttr=1)
    waiting = tube.put("waiting")
    tubeq.clock.advance(2)

    def found(where: str) -> list[int]:
        return [int(task["task_id"]) for task in tubeq.json("tasks", tube.name, "--where", where)]

    assert found("taken_at IS NOT NULL") == [held.task_id]
    moment = f"TIMESTAMP '{held.taken_at:%Y-%m-%d %H:%M:%S.%f}'"
    assert found(f"taken_at = {moment}") == [held.task_id]
    assert found(f"owner = '{held.owner}' AND state = 't'") == [held.task_id]
    assert found("taken_at IS NULL AND owner IS NULL") == [lapsed.task_id, waiting.task_id]
    assert found("next_event IS NULL AND data = '\"lapsed\"'") == [lapsed.task_id]

    tubeq("delete", tube.name, "--where", "taken_at IS NULL", "--yes")

    assert data_of(tube.tasks_by_state("t")) == ["held"]
    assert counts(tubeq.queue, tube)["total"] == 1


def test_delete_where_a_condition_holds_checks_it_when_it_deletes_and_goes_on_to_the_end(
    tubeq: Tubeq, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = tubeq.tube("fifottl", ttr=60)
    tube.put_many(range(7))
    monkeypatch.setattr(settle, "_DELETED", 2)
    asked = []

    def agrees(_: Call, question: str, *_more: object, **_named: object) -> None:
        asked.append(question)
        tube.put(7)
        tube.release(take(tube).task_id)  # the first one has one attempt by now

    monkeypatch.setattr(Call, "require_yes", agrees)

    deleted = tubeq.json("delete", tube.name, "--where", "attempts = 0")

    assert asked == [f"Delete 7 tasks of {tube.name}?"]
    assert [task["data"] for task in deleted] == [1, 2, 3, 4, 5, 6, 7]
    assert data_of(tube.tasks_by_state("r")) == [0]
    assert counts(tubeq.queue, tube) | {"done": 7, "total": 1} == counts(tubeq.queue, tube)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("ctrl_c_comes")
def test_sweep_every_goes_on_after_a_failed_sweep_until_it_is_stopped(
    tubeq: Tubeq, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tube, sleep = tubeq.tube("fifottl"), tubeq.clock.sleep
    tube.put("a", delay=30)
    slept: list[float] = []
    sweeps = iter([OSError("no disk"), None, None])
    sweep = Queue.sweep

    def sweep_or_fail(queue: Queue) -> SweepReport:
        if (error := next(sweeps)) is not None:
            raise error
        return sweep(queue)

    def sleep_or_stop(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            signal.raise_signal(number)
        sleep(seconds)

    monkeypatch.setattr(Queue, "sweep", sweep_or_fail)
    monkeypatch.setattr(tubeq.clock, "sleep", sleep_or_stop)

    ended = tubeq("sweep", "--every=1m", "--json")

    assert (ended.exit_code, slept) == (0, [60.0] * 3)
    failed, swept = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (failed["level"], failed["note"]) == ("ERROR", "the sweep failed: no disk")
    assert (swept["level"], swept["note"]) == ("INFO", f"{tube.name}: 1 readied")


def test_sweep_purge_removes_the_files_of_deleted_payloads_now(tubeq: Tubeq) -> None:
    tube, dropped = tubeq.tube(), tubeq.tube()
    for each in (tube, dropped):
        task, *_ = each.put_many([{"to": "ann@example.org"}, {"to": "bob@example.org"}])
        each.delete(task.task_id)
    dropped.drop()

    def found(name: str) -> list[str]:
        """The payloads in all files of a table that are there, whatever its newest version needs."""
        files = Path(tubeq.queue.location, name).rglob("*.parquet")
        tables = [pq.ParquetFile(file).read() for file in files if "_delta_log" not in file.parts]
        return [
            row
            for table in tables
            if "data" in table.column_names
            for row in table["data"].to_pylist()
        ]

    assert any("ann@" in str(data) for data in found(tube.name))
    tubeq("sweep")
    assert any("ann@" in str(data) for data in found(tube.name))
    assert tubeq("sweep", "--purge", "--every=1m").exit_code == 2

    purged = tubeq.json("sweep", "--purge")

    assert [line["tube"] for line in purged if line.get("purged")] == [tube.name, dropped.name]
    assert not any(
        "ann@" in str(data) for name in (tube.name, dropped.name) for data in found(name)
    )
    assert data_of(tube.tasks_by_state("r")) == [{"to": "bob@example.org"}]
    assert tubeq("check", tubeq.queue.location).exit_code == 0
