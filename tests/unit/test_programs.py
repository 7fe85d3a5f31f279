"""How programs end: `tubeq` and those of `jobs/` by the same codes, and with one sentence."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest
import typer
from typer.testing import CliRunner

from tubeq_spark import (
    ConflictError,
    InvalidOptionError,
    StoreError,
    TubeNotFoundError,
)
from tubeq_spark.cli.app import app
from tubeq_spark.cli.call import Outside
from tubeq_spark.jobs.program import running, starting
from tubeq_spark.jobs.sweeping import command as sweeper
from tubeq_spark.programs import ExitCode, how_to_install, run_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOST = "stopped at once; nothing is lost: what was taken and not acked is given back"
#: `tests/unit/test_exit_codes.py` has the codes of all errors.
ENDINGS = [
    (InvalidOptionError("pri=-1"), 2, "pri=-1"),
    (TubeNotFoundError("no tube"), 2, "no tube"),
    (FileNotFoundError("no file"), 2, "no file"),
    (ConflictError("others"), 3, "others"),
    (OSError("disk"), 3, "failed: disk"),
    (ValueError("a bug\nof two lines"), 3, "failed: a bug"),
    (KeyboardInterrupt(), 130, LOST),
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


@pytest.mark.parametrize(("error", "code", "sentence"), ENDINGS)
def test_tubeq_and_a_program_when_they_meet_an_error_end_alike(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(running, "open_spark", raising(error))

    of_program = sweeper.main(["--location=/q", "--once"])
    said = capsys.readouterr()
    of_tubeq = CliRunner().invoke(
        app, ["--location=/q", "tubes"], obj=Outside(open_spark=raising(error)), prog_name="tubeq"
    )

    assert (of_program, of_tubeq.exit_code) == (code, code)
    assert (said.out, said.err) == ("", f"sweeper.py: {sentence}\n")
    assert (of_tubeq.stdout, of_tubeq.stderr) == ("", f"tubeq: {sentence}\n")


def test_program_when_verbose_shows_where_an_error_came_from_and_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    levels = []

    def work() -> int:
        levels.append(logging.getLogger("tubeq_spark").getEffectiveLevel())
        msg = "gone"
        raise StoreError(msg)

    ends = [run_program("mine.py", work, verbose=verbose) for verbose in (False, True)]

    quiet, loud = levels
    said = capsys.readouterr().err
    assert ends == [3, 3]
    assert quiet == logging.CRITICAL > loud
    assert said.count("Traceback") == 1
    assert said.startswith("mine.py: gone\nTraceback")
    assert said.endswith("mine.py: gone\n")


def test_tubeq_when_its_question_is_interrupted_ends_as_by_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = Outside(open_spark=raising(typer.Abort()))

    ended = CliRunner().invoke(app, ["--location=/q", "drop", "t"], obj=outside, prog_name="tubeq")

    assert (ended.exit_code, ended.stderr) == (130, f"tubeq: {LOST}\n")


@pytest.mark.parametrize("remote", ["sc://server", None])
def test_tubeq_where_only_spark_commits_asks_for_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, remote: str | None
) -> None:
    pytest.importorskip("pyspark")
    from tubeq_spark.cli import ahead  # noqa: PLC0415  it needs pyspark

    asked: list[str] = []

    def opened(_spark: object, _location: str, *, engine: str, **_: Any) -> NoReturn:
        asked.append(engine)
        raise StoreError

    monkeypatch.setattr(ahead, "QueueOfOneCall", opened)
    if remote is not None:
        (tmp_path / "tubeq.toml").write_text(f'remote = "{remote}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUBEQ_ENGINE", raising=False)
    outside: Any = Outside(open_spark=lambda _: cast("Any", None))

    CliRunner().invoke(app, ["--location=hdfs://host/q", "tubes"], obj=outside, prog_name="tubeq")

    assert asked == ["spark"]


def test_program_when_no_queue_is_named_says_how_to_name_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = argparse.Namespace(
        program="mine.py", location=None, remote=None, engine=None, config=None, verbose=False
    )

    assert running.run(arguments, raising(AssertionError())) == ExitCode.BAD_USE
    assert capsys.readouterr().err.startswith("mine.py: which queue? give --location, ")


def test_program_when_its_packages_are_missing_ends_as_bad_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    # Another test may have imported what it imports.
    for name in [name for name in sys.modules if name.startswith("tubeq_spark.jobs.consumer")]:
        monkeypatch.delitem(sys.modules, name)

    assert starting.start("tubeq_spark.jobs.consumer.command", "spark", []) == ExitCode.BAD_USE
    said = f"pyspark is not installed: {how_to_install('spark')}\n"
    assert capsys.readouterr().err == said


def test_program_when_it_is_done_returns_and_when_it_failed_exits() -> None:
    # A notebook of Databricks takes any exit for a failure.
    starting.end(ExitCode.DONE)
    with pytest.raises(SystemExit, match=r"^3$"):
        starting.end(ExitCode.FAILED)
