"""For a run that has to end: with which file it begins, and from when on it begins no more tests.

`.ci/run` has an hour. What does not fit into it is skipped, and as each run begins with another file,
it is not always the same that is.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

__all__ = ["FIRST_FILE", "STOP_AT", "begun_at", "is_over"]

#: Variables: a number, from which the first file follows; and a moment, in seconds since 1970.
FIRST_FILE, STOP_AT = "TUBEQ_TESTS_FIRST_FILE", "TUBEQ_TESTS_STOP_AT"


def begun_at(items: Sequence[pytest.Item], number: int) -> list[pytest.Item]:
    """The tests in the order of files in which those before the one of a number come last."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    first = number % max(len(files), 1)
    return [item for file in files[first:] + files[:first] for item in file]


def is_over(stop_at: str, now: float) -> bool:
    """Whether no more tests may begin; never where nothing is set."""
    return bool(stop_at) and now >= float(stop_at)
