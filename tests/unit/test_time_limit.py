"""A run that has to end begins where it is told, and stops beginning tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.time_limit import begun_at, is_over


def items(*files: str) -> list[Any]:
    return [SimpleNamespace(path=file, name=str(n)) for n, file in enumerate(files)]


@pytest.mark.parametrize(
    ("number", "order"), [(0, "aabc"), (1, "bcaa"), (2, "caab"), (3, "aabc"), (4, "bcaa")]
)
def test_begun_at_when_a_number_is_given_begins_with_that_file_and_keeps_the_order(
    number: int, order: str
) -> None:
    found: list[Any] = begun_at(items(*"aabc"), number)

    assert "".join(item.path for item in found) == order
    assert sorted(item.name for item in found) == ["0", "1", "2", "3"]


def test_begun_at_when_there_are_no_tests_has_none() -> None:
    assert begun_at([], 7) == []


@pytest.mark.parametrize(
    ("stop_at", "over"), [("", False), ("100", True), ("100.5", False), ("99", True)]
)
def test_is_over_when_asked_goes_by_the_moment(stop_at: str, over: bool) -> None:
    assert is_over(stop_at, 100.0) is over
