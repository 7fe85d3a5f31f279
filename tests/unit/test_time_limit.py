"""A run that has to end stops beginning tests."""

from __future__ import annotations

import pytest

from tests.time_limit import is_over


@pytest.mark.parametrize(
    ("stop_at", "over"), [("", False), ("100", True), ("100.5", False), ("99", True)]
)
def test_is_over_when_asked_goes_by_the_moment(stop_at: str, over: bool) -> None:
    assert is_over(stop_at, 100.0) is over
