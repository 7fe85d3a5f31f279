"""`make test` and `make test-rest` run each test once between them, on either kind of session."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[2]
#: The marks by which the targets choose.
MARKS = ("benchmark", "connect", "thorough")
CASES = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/acceptance/test_case_*.py")}


def runs(target: str, *arguments: str) -> list[list[str]]:
    """The arguments of each run of pytest that a target would start."""
    command = ["make", "--dry-run", "--always-make", target, *arguments]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = shown.replace("\\\n", " ").splitlines()
    commands = [part for line in lines for part in re.split(r";|\|\|", line)]
    return [shlex.split(part) for part in commands if "-m pytest" in part]


def chooses(run: list[str], marks: set[str]) -> bool:
    """Whether a run has the tests of these marks."""
    expression = run[run.index("-m", run.index("pytest")) + 1]
    return Expression.compile(expression).evaluate(lambda name, **_: name in marks)


def combinations() -> list[set[str]]:
    return [set(marks) for count in range(4) for marks in itertools.combinations(MARKS, count)]


@pytest.mark.parametrize(
    "marks", combinations(), ids=lambda marks: ",".join(sorted(marks)) or "none"
)
def test_halves_when_each_chooses_its_tests_have_each_test_once_on_classic_spark(
    marks: set[str],
) -> None:
    halves = [run for target in ("test", "test-rest") for run in runs(target)]
    classic = [run for run in halves if "--connect" not in run]

    assert len(classic) == 2
    wanted = 0 if marks & {"benchmark", "connect"} else 1
    assert sum(chooses(run, marks) for run in classic) == wanted


@pytest.mark.parametrize("is_thorough", [False, True])
@pytest.mark.parametrize("path", ["tests/connect", *sorted(CASES)])
def test_halves_when_each_chooses_its_tests_have_each_case_once_on_spark_connect(
    path: str, is_thorough: bool
) -> None:
    marks = {"thorough"} if is_thorough else set()
    marks |= {"connect"} if path == "tests/connect" else set()
    halves = [run for target in ("test", "test-rest") for run in runs(target)]
    on_connect = [run for run in halves if "--connect" in run]

    assert len(on_connect) == 2
    times = sum(path in run and chooses(run, marks) for run in on_connect)
    # The cases that every `make test` runs there have nothing thorough.
    first = next(run for run in on_connect if "-n" in run and run[run.index("-n") + 1] == "1")
    is_left_out = is_thorough and path in CASES & set(first)
    assert times == (0 if is_left_out else 1)
    if is_left_out:
        assert "thorough" not in (ROOT / path).read_text(encoding="utf-8")


def test_ci_when_it_has_run_has_run_both_halves() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert re.findall(r'^tests "\$\w+" (\S+)', script, re.MULTILINE) == ["test", "test-rest"]
    limits = [int(n) for n in re.findall(r"_MINUTES=(\d+)", script)]
    # An hour, after which no test begins; these end one that hangs.
    assert sum(limits) <= 80
