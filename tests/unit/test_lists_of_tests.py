"""`make test` and `make test-rest` run each test once between them, and lists of tests name existing ones."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.case_list import CASES, case_list, cases_with_tests
from tests.left_on_spark import LEFT

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
#: The marks by which the targets choose.
MARKS = ("connect", "thorough")
ON_CONNECT = {str(path.relative_to(ROOT)) for path in TESTS.glob("acceptance/test_case_*.py")}
CHOSEN = (TESTS / "compat.txt").read_text(encoding="utf-8").splitlines()


def runs(target: str) -> list[list[str]]:
    """The arguments of each run of pytest that a target would start."""
    # Without what the make that runs these tests was told.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("ARGS", "MAKEFLAGS", "MAKELEVEL")
    }
    command = ["make", "--dry-run", "--always-make", target]
    shown = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    lines = shown.replace("\\\n", " ").splitlines()
    commands = [part for line in lines for part in re.split(r";|\|\|", line)]
    return [shlex.split(part) for part in commands if "-m pytest" in part]


def chooses(run: list[str], *marks: str) -> bool:
    """Whether a run has the tests of these marks."""
    expression = run[run.index("-m", run.index("pytest")) + 1]
    return Expression.compile(expression).evaluate(lambda name, **_: name in marks)


def test_halves_when_each_chooses_its_tests_have_each_test_once_and_no_case_twice_on_connect() -> (
    None
):
    halves = [run for target in ("test", "test-rest") for run in runs(target)]
    (on_connect,) = [run for run in halves if "--connect" in run]
    classic = [run for run in halves if "--connect" not in run]

    assert len(classic) == 2
    for count in range(len(MARKS) + 1):
        for marks in itertools.combinations(MARKS, count):
            wanted = 0 if "connect" in marks else 1
            assert sum(chooses(run, *marks) for run in classic) == wanted, marks
    assert "tests/connect" in on_connect
    assert chooses(on_connect, "connect")
    assert chooses(on_connect, "connect", "thorough")
    chosen = [path for path in on_connect if "test_case_" in path]
    assert len(chosen) == len(set(chosen)) > 0
    assert ON_CONNECT.issuperset(chosen)


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


def test_names_of_tests_that_do_not_run_on_spark_are_those_of_tests_that_are_there() -> None:
    for test in LEFT:
        stem, _, name = test.partition("::")
        there = {
            node.name
            for file in TESTS.glob(f"*/{stem}.py")
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        assert name.partition("[")[0] in there, test


def test_case_list_when_read_has_each_case_with_its_tests() -> None:
    assert CASES.read_text(encoding="utf-8") == case_list()
    assert len(cases_with_tests()) > 100
    for path in TESTS.glob("acceptance/test_case_*.py"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"def (test_(?:\d{3}_\d{2}|x_[a-z]\d+)\w*)", text) == []


@pytest.mark.thorough
def test_choice_for_old_sparks_when_read_names_tests_that_are_collected() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]

    found = subprocess.run(
        [*command, "--engine", "spark", "@tests/compat.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert found.returncode == 0, found.stdout
    assert f"\n{len(set(CHOSEN))} tests collected" in found.stdout


def test_pairs_that_readme_tells_of_when_read_are_those_that_can_be_run() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pairs = re.search(r"^PAIRS \?= (.*)$", makefile, re.MULTILINE)

    told = re.findall(r"^\| (4\.\d\.\d) \| (4\.\d\.\d) \|", readme, re.MULTILINE)
    assert {"-".join(pair) for pair in told} == {"4.2.0-4.4.0", *pairs[1].split()}
