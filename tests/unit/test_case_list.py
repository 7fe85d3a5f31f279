"""The list of cases is true: each case that a test names has its line, and each test that has one exists."""

from __future__ import annotations

import re

import pytest

from tests.case_list import CASES, TESTS, case_list, cases_of, cases_with_tests


def test_case_list_when_read_has_each_case_with_its_tests() -> None:
    assert CASES.read_text(encoding="utf-8") == case_list()
    assert len(cases_with_tests()) > 100


@pytest.mark.parametrize(
    ("docstring", "cases"),
    [
        (None, []),
        ("A take waits.", []),
        ("Case 010-4.", ["010-4"]),
        ("Cases 030-4, 040-10 and X-B3: a take waits.", ["030-4", "040-10", "X-B3"]),
        ("Case U1.", ["U1"]),
    ],
)
def test_cases_of_a_docstring_are_those_it_names_first(
    docstring: str | None, cases: list[str]
) -> None:
    assert cases_of(docstring) == cases


def test_names_of_tests_when_read_have_no_numbers_of_cases() -> None:
    for path in TESTS.glob("test_case_*.py"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"def (test_(?:\d{3}_\d{2}|x_[a-z]\d+)\w*)", text) == []
