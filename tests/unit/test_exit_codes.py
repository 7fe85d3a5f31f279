"""The exit codes of errors: what programs end with, and what the docs show."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import tubeq_spark
from tubeq_spark import StoreError, TubeqError
from tubeq_spark.cli.exit_codes import BadUseError, ExitCode, code_of
from tubeq_spark.cli.program import report_error
from tubeq_spark.storage.log.commit_text import DamagedFileError

DOCS = Path(__file__).parents[2] / "docs"


PUBLIC = [
    value
    for name in tubeq_spark.__all__
    if isinstance(value := getattr(tubeq_spark, name), type) and issubclass(value, TubeqError)
]


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


def page_of(name: str) -> str:
    """A page of the reference, as it is built."""
    pytest.importorskip("typer")
    spec = importlib.util.spec_from_file_location("command_help", DOCS / "command_help.py")
    assert spec is not None
    assert spec.loader is not None
    hook: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    text = (DOCS / "reference" / name).read_text(encoding="utf-8")
    # What the benchmark says takes a second, and is no command.
    built: str = hook.on_page_markdown(text.replace("<!-- help: jobs/benchmark.py -->", ""))
    return built


def test_page_of_commands_when_built_has_all_of_them_and_each_exit_code_once() -> None:
    page = page_of("command-line.md")

    assert [page.count(f"\n| {code.value} | ") for code in ExitCode] == [1] * len(ExitCode)
    commands = ("create", "kick", "health", "sessions", "release-all", "enqueue", "sweeper")
    assert [page.count(f"\n## tubeq {name}\n") for name in commands] == [1] * len(commands)
    assert "usage: tubeq sweeper " in page
