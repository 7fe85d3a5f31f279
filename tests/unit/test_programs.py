"""All programs end by the same exit codes and with one sentence, and name a missing extra."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest
import typer
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from typer.testing import CliRunner

import tubeq_spark
from tests.programs import environment
from tubeq_spark import (
    ConflictError,
    InvalidOptionError,
    StoreError,
    TubeNotFoundError,
    TubeqError,
)
from tubeq_spark.cli.app import app
from tubeq_spark.cli.call import Outside
from tubeq_spark.cli.exit_codes import code_of
from tubeq_spark.cli.program import report_error
from tubeq_spark.model.error_text import how_to_install, missing, reason_of
from tubeq_spark.programs import BadUseError, ExitCode, end, run_tubeq
from tubeq_spark.storage.log.actions import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parents[2] / "docs"
ENDINGS = [
    (InvalidOptionError("pri=-1"), 2, "pri=-1"),
    (TubeNotFoundError("no tube"), 2, "no tube"),
    (FileNotFoundError("no file"), 2, "no file"),
    (ConflictError("others"), 3, "others"),
    (OSError("disk"), 3, "failed: disk"),
    (BrokenPipeError("pipe"), 141, None),
    (ValueError("a bug\nof two lines"), 3, "failed: a bug"),
    (KeyboardInterrupt(), 130, "stopped"),
    (KeyboardInterrupt(signal.SIGTERM), 143, "stopped"),
]
PUBLIC = [
    value
    for name in tubeq_spark.__all__
    if isinstance(value := getattr(tubeq_spark, name), type) and issubclass(value, TubeqError)
]


def raising(error: BaseException) -> Callable[..., int]:
    def work(*_: object, **_settings: object) -> int:
        raise error

    return work


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those of the test."""
    for name in ("TUBEQ_LOCATION", "TUBEQ_REMOTE", "TUBEQ_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


# -- exit codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "code", "sentence"), ENDINGS)
def test_tubeq_and_a_program_when_they_meet_an_error_end_alike(
    error: BaseException,
    code: int,
    sentence: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TUBEQ_ENGINE", "auto")
    monkeypatch.setattr("tubeq_spark.cli.call.open_spark", raising(error))

    of_program = run_tubeq("sweep", "--location=main.q")
    said = capsys.readouterr()
    of_tubeq = CliRunner().invoke(
        app, ["--location=main.q", "tubes"], obj=Outside(), prog_name="tubeq"
    )

    assert (of_program, of_tubeq.exit_code) == (code, code)
    expected = ("", "" if sentence is None else f"tubeq: {sentence}\n")
    assert (said.out, said.err) == (of_tubeq.stdout, of_tubeq.stderr) == expected


@pytest.mark.parametrize("error", PUBLIC, ids=lambda error: error.__name__)
def test_program_when_it_ends_by_an_error_says_it_and_has_the_code_of_the_table(
    error: type[TubeqError], capsys: pytest.CaptureFixture[str]
) -> None:
    code = report_error("mine", error("it broke"))

    assert capsys.readouterr().err == "mine: it broke\n"
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    assert page.count(f"\n| `{error.__name__}` | {code.value} | ") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DamagedFileError("f"), ExitCode.FAILED),
        (StoreError("f", passes=True), ExitCode.FAILED),
        (BadUseError("f"), ExitCode.BAD_USE),
        (ModuleNotFoundError("f"), ExitCode.BAD_USE),
        (ZeroDivisionError("f"), ExitCode.FAILED),
    ],
)
def test_code_of_other_errors_is_that_of_their_kind(error: BaseException, code: ExitCode) -> None:
    assert code_of(error) is code


def test_error_when_verbose_shows_where_it_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError) as found:
        raising(StoreError("gone"))()
    for verbose in (False, True):
        assert report_error("mine.py", found.value, verbose=verbose) == 3

    said = capsys.readouterr().err
    assert said.count("Traceback") == 1
    assert said.startswith("mine.py: gone\nTraceback")
    assert said.endswith("mine.py: gone\n")


def test_program_when_it_is_done_returns_and_when_it_failed_exits() -> None:
    # A notebook of Databricks takes any exit for a failure.
    end(ExitCode.DONE)
    with pytest.raises(SystemExit, match=r"^3$"):
        end(ExitCode.FAILED)


def test_tubeq_when_its_question_is_interrupted_ends_as_by_ctrl_c() -> None:
    outside = Outside(open_spark=raising(typer.Abort()))

    ended = CliRunner().invoke(app, ["--location=/q", "drop", "t"], obj=outside, prog_name="tubeq")

    assert (ended.exit_code, ended.stderr) == (130, "tubeq: stopped\n")


@pytest.mark.parametrize("remote", ["sc://server", None])
def test_tubeq_where_only_spark_commits_asks_for_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, remote: str | None
) -> None:
    asked: list[str] = []

    def opened(_spark: object, location: str, *, engine: str, **_: Any) -> NoReturn:
        asked.append(engine)
        raise StoreError

    monkeypatch.setattr("tubeq_spark.queue.Queue", opened)
    if remote is not None:
        (tmp_path / "tubeq.toml").write_text(f'remote = "{remote}"\n')
    monkeypatch.delenv("TUBEQ_ENGINE", raising=False)
    outside: Any = Outside(open_spark=lambda _: cast("Any", None))

    CliRunner().invoke(app, ["--location=hdfs://host/q", "tubes"], obj=outside, prog_name="tubeq")

    assert asked == ["spark"]


def test_program_when_no_queue_is_named_says_how_to_name_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_tubeq("sweep") == ExitCode.BAD_USE
    assert (
        capsys.readouterr().err
        == "tubeq: no location: use --location, TUBEQ_LOCATION or tubeq.toml\n"
    )


def test_page_of_commands_when_built_has_all_of_them_and_each_exit_code_once() -> None:
    spec = importlib.util.spec_from_file_location("command_help", DOCS / "command_help.py")
    hook: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    text = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    # What the benchmark says takes a second, and is no command.
    page = hook.on_page_markdown(text.replace("<!-- help: bench -->", ""))

    assert re.findall(r"^\| (\d+) \| ", page, re.MULTILINE) == [
        str(code.value) for code in ExitCode
    ]
    commands = ("create", "kick", "health", "sessions", "release-all", "sweep")
    assert [page.count(f"\n## tubeq {name}\n") for name in commands] == [1] * len(commands)
    assert "Usage: tubeq sweep " in page


# -- packages that are missing ------------------------------------------------------------------------

NATIVE = "pip install 'tubeq-spark[native]"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ("", f"{NATIVE}'"),
        ("{}", f"{NATIVE}'"),
        ("no JSON", f"{NATIVE}'"),
        (json.dumps({"url": "https://there/x.whl"}), f"{NATIVE}'"),
        (
            json.dumps({"url": "file:///clone", "dir_info": {"editable": True}}),
            f"{NATIVE} @ file:///clone'",
        ),
    ],
)
def test_extra_of_a_clone_or_a_wheel_is_installed_from_there(
    monkeypatch: pytest.MonkeyPatch, origin: str, command: str
) -> None:
    there = SimpleNamespace(read_text=lambda _: origin)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: there)
    assert how_to_install("native") == command


def test_missing_package_is_named_with_the_extras_that_bring_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = missing(ModuleNotFoundError("No module", name="typer.main"), "cli", "native")
    assert str(error) == f"typer is not installed: {how_to_install('cli', 'native')}"
    assert error.name == "typer.main"

    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert run_tubeq("tubes", "--location=q", "--engine=spark") == ExitCode.BAD_USE
    said = f"tubeq: pyspark is not installed: {how_to_install('spark')}\n"
    assert capsys.readouterr().err == said


def test_run_tubeq_when_typer_is_missing_returns_the_code_and_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("tubeq_spark.cli.app")]:
        monkeypatch.delitem(sys.modules, name)

    assert run_tubeq("tubes") == ExitCode.BAD_USE

    said = f"tubeq: typer is not installed: {how_to_install('cli')}\n"
    assert capsys.readouterr().err == said
    assert signal.getsignal(signal.SIGINT) is before


def test_run_tubeq_when_a_program_of_the_user_exits_with_a_text_prints_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tubeq_spark.cli.app.app", lambda args, **_: sys.exit(f"no {args[0]}"))

    assert run_tubeq("settings") == ExitCode.FAILED

    assert capsys.readouterr().err == "tubeq: no settings\n"


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of Python that has ended."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(TUBEQ_ENGINE="auto"),
        capture_output=True,
        text=True,
        check=False,
    )


#: For each package the program that lacks it, and the extra that brings it.
LACKING = {
    "prometheus_client": ("import tubeq_spark.prometheus", "prometheus"),
    "pyspark": ("import tubeq_spark; tubeq_spark.local_session()", "spark"),
    "sqlglot": ("import tubeq_spark.storage.user_condition", "where"),
    "obstore": ("import tubeq_spark; tubeq_spark.Queue(None, 's3://nowhere/q')", "native"),
}
_LACKS = """
import json, sys
for package, (program, _) in json.loads(sys.argv[1]).items():
    sys.modules[package] = None
    try:
        exec(program)
    except Exception as error:
        print(error)
"""


@pytest.mark.processes
def test_import_of_what_is_missing_names_the_extra_that_serves() -> None:
    said = ended(_LACKS, json.dumps(LACKING)).stdout.splitlines()

    for (package, (_, extra)), line in zip(LACKING.items(), said, strict=True):
        assert package in line
        assert how_to_install(extra) in line


_PROGRAM = """
import sys

for name in ("arro3", "deltalake", "filelock", "obstore", "pyspark"):
    sys.modules[name] = None
from tubeq_spark import Queue
from tubeq_spark.testing import InMemoryQueue, ManualClock

with InMemoryQueue(ManualClock()) as memory, Queue(None, sys.argv[1]) as queue:
    memory.create_tube("typed", schema="n INT, m MAP<STRING, INT>").put({"n": 1, "m": None})
    sys.modules["pandas"] = None
    for each in (memory, queue):
        tube = each.create_tube("work", "fifottl", unique_for=60)
        tube.put("a", utube=None)
        tube.put_many([{"n": None}, 1.5, "é"], delay=0)
        tasks = [tube.take(timeout=0) for _ in range(4)]
        print(len({task.task_id for task in tasks}))
        tube.ack(tasks[0].task_id)
        tube.release(tasks[1].task_id)
        tube.bury(tasks[2].task_id, error="why")
        each.metrics()
        stats = each.statistics("work")
        print(*(stats["tasks"][state] for state in ("ready", "taken", "buried", "done")))
        swept = each.sweep()
        print([name for name, of in swept.tubes.items() if of.error])
with open("/proc/self/status") as status:
    (resident,) = [line.split()[1] for line in status if line.startswith("VmRSS:")]
print(int(resident) // 1024)
"""
_WORKER = """
import sys

from tubeq_spark import PutItem, Queue

with Queue(None, sys.argv[1]) as queue:
    for type_name, options in (("fifottl", {}), ("utubettl", {"order": "fair", "parallel": 500})):
        tube = queue.create_tube(type_name, type_name, max_attempts=5, **options)
        utube, per = ({"utube": "a"}, {"per_utube": 100}) if options else ({}, {})
        # The first take splits a file of this size by the priorities of its tasks.
        tube.put_many([PutItem({"n": n}, pri=n // 500, **utube) for n in range(3000)])
        tube.put("one", unique="k", delay=1, **utube)
        first, second, third, *rest = tube.take_many(8, **per)
        tube.ack(first)
        tube.release(second, delay=1)
        tube.bury(third, error="why")
        tube.touch(rest[0], 5)
        tube.ack_many(rest)
        tube.kick(1)
        tube.peek(second)
        tube.delete(second)
        tube.take_arrow(100, **per).ack()
        tube.statistics()
        tube.tasks_by_state("buried")
        tube.alter(max_attempts=6)
    queue.tube("utubettl").taken_utubes()
    queue.sweep()
    queue.metrics()
    queue.check()
    print(queue.verify().violations)
print("pandas" in sys.modules)
"""
#: The memory of a worker without Spark, in megabytes.
MOST = 150


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="it asks /proc")
def test_queues_in_memory_and_on_local_files_need_no_extra_and_little_memory(
    tmp_path: Path,
) -> None:
    done = ended(_PROGRAM, f"{tmp_path}/q")
    assert done.stderr == ""
    *said, resident = done.stdout.splitlines()
    assert said == ["4", "1 1 1 1", "[]"] * 2
    assert int(resident) <= MOST


@pytest.mark.processes
def test_a_worker_that_uses_every_verb_does_not_import_pandas(tmp_path: Path) -> None:
    # It would need 80 MB and a third of a second more.
    done = ended(_WORKER, f"{tmp_path}/q")
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[]", "False"]


# -- the one line that tells why something failed -----------------------------------------------------

CHECKSUM = "Checksum error: file:/q/t/_delta_log/00000000000000000007.json at 0 exp: 1 got: 2"
TRACE = f"""org.apache.spark.SparkException: Exception thrown in awaitResult
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: java.util.concurrent.ExecutionException: wrapped
\tat java.util.concurrent.FutureTask.report(FutureTask.java:122)
Caused by: org.apache.hadoop.fs.ChecksumException: {CHECKSUM}
\t... 3 more
"""
CALLING = "An error occurred while calling o71.sql.\n"


class JavaError(Exception):
    """What py4j raises: its text is the trace."""

    java_exception = object()


class UnspeakableError(JavaError):
    """An error whose text is behind a way that is closed."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            JavaError(f"{CALLING}: {TRACE}"),
            f"SparkException: Exception thrown in awaitResult (caused by ChecksumException: {CHECKSUM})",
        ),
        (
            SparkConnectGrpcException("Exception thrown", server_stacktrace=TRACE),
            f"Exception thrown (caused by ChecksumException: {CHECKSUM})",
        ),
        (JavaError(f"{CALLING}: java.io.IOException: no space\n\tat X"), "IOException: no space"),
        (UnspeakableError(CALLING), "UnspeakableError"),
        (ValueError("one\ntwo"), "one"),
        (ValueError(), "ValueError"),
        (ValueError("\n"), "ValueError"),
        (KeyError("name"), "'name'"),
    ],
)
def test_reason_of_an_error_is_its_first_line_and_its_first_cause(
    error: Exception, expected: str
) -> None:
    assert reason_of(error) == expected
