"""`make test` and `make test-rest` run each test once between them, and a choice on Spark Connect."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import tomllib
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
    # Without what the make that runs these tests was told.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("ARGS", "MAKEFLAGS", "MAKELEVEL")
    }
    shown = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
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


def test_halves_when_each_chooses_its_tests_have_each_of_spark_connect_once_and_no_case_twice() -> (
    None
):
    halves = [run for target in ("test", "test-rest") for run in runs(target)]
    (on_connect,) = [run for run in halves if "--connect" in run]

    for marks in ({"connect"}, {"connect", "thorough"}):
        assert "tests/connect" in on_connect
        assert chooses(on_connect, marks)
    chosen = [path for path in on_connect if "test_case_" in path]
    assert len(chosen) == len(set(chosen)) > 0
    assert CASES.issuperset(chosen)


def test_halves_when_each_collects_its_tests_look_into_every_folder_that_has_some() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        collected = set(tomllib.load(file)["tool"]["pytest"]["ini_options"]["testpaths"])

    # What is about Spark Connect alone is named by the targets, and so are other makes of stores.
    found = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}
    assert found - {"tests/connect", "tests/stores"} == collected


def test_ci_when_it_has_run_has_run_both_halves() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert re.findall(r'^tests "\$\w+" (\S+)', script, re.MULTILINE) == ["test", "test-rest"]
    limits = [int(n) for n in re.findall(r"_MINUTES=(\d+)", script)]
    # These end parts that hang. What is left of 90 minutes is for the setup, the checks and the documentation.
    assert sum(limits) <= 85
