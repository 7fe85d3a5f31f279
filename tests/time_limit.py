"""For a run that has to end: from when on it begins no more tests.

`.ci/run` has fifty minutes. On a machine that is too slow for all tests the last ones are skipped, and the
summary says how many. So that no test is always among them, each commit has an order of its own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ORDER", "STOP_AT", "is_over", "ranks"]

#: A variable: a moment, in seconds since 1970.
STOP_AT = "TUBEQ_TESTS_STOP_AT"
#: A variable: what the order of the files depends on; without it they run as they are collected.
ORDER = "TUBEQ_TESTS_ORDER"


def is_over(stop_at: str, now: float) -> bool:
    """Whether no more tests may begin; never where nothing is set."""
    return bool(stop_at) and now >= float(stop_at)


def ranks(files: Iterable[str], order: str, first: str) -> dict[str, int]:
    """The place of each file of tests in an order.

    Args:
        files: Their paths.
        order: Any text; another one gives another order.
        first: Files of this folder come before all others.
    """
    shuffled = sorted(set(files))
    random.Random(order).shuffle(shuffled)
    shuffled.sort(key=lambda path: first not in path)
    return {path: rank for rank, path in enumerate(shuffled)}
