"""A run that has to end stops beginning tests, and begins with others each time."""

from __future__ import annotations

import pytest

from tests.time_limit import is_over, ranks


@pytest.mark.parametrize(
    ("stop_at", "over"), [("", False), ("100", True), ("100.5", False), ("99", True)]
)
def test_is_over_when_asked_goes_by_the_moment(stop_at: str, over: bool) -> None:
    assert is_over(stop_at, 100.0) is over


FILES = ["tests/a.py", "tests/b.py", "tests/c.py", "tests/power/z.py"]


def test_ranks_when_the_order_is_another_begin_with_another_file_but_for_the_first_folder() -> None:
    orders = [ranks(FILES, str(number), "tests/power/") for number in range(20)]

    assert {order["tests/power/z.py"] for order in orders} == {0}
    assert {path for order in orders for path, rank in order.items() if rank == 1} == set(FILES[:3])
    assert ranks(reversed(FILES), "7", "tests/power/") == orders[7]
