"""What is left out on Spark is named by tests that there are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.left_on_spark import NIGHTLY, THOROUGH

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("stem", sorted({*NIGHTLY, *THOROUGH}))
def test_list_of_tests_left_out_on_spark_when_it_names_one_of_a_file_names_one_that_is_there(
    stem: str,
) -> None:
    there = {
        node.name
        for file in TESTS.glob(f"*/{stem}.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    named = {*NIGHTLY.get(stem, ()), *THOROUGH.get(stem, ())}

    assert {name.partition("[")[0] for name in named} <= there
