"""The list of tests that run on Spark at night only names tests that there are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.nightly_on_spark import NIGHTLY_ON_SPARK

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("stem", NIGHTLY_ON_SPARK)
def test_list_of_nightly_tests_when_it_names_one_of_a_file_names_one_that_is_there(
    stem: str,
) -> None:
    files = TESTS.glob(f"*/{stem}.py")
    there = {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }

    assert {name.partition("[")[0] for name in NIGHTLY_ON_SPARK[stem]} <= there
