"""For a run that has to end: from when on it begins no more tests.

`.ci/run` has an hour, and its tests need less. On a machine that is too slow for them the last ones are
skipped, and the summary says how many.
"""

from __future__ import annotations

__all__ = ["STOP_AT", "is_over"]

#: A variable: a moment, in seconds since 1970.
STOP_AT = "TUBEQ_TESTS_STOP_AT"


def is_over(stop_at: str, now: float) -> bool:
    """Whether no more tests may begin; never where nothing is set."""
    return bool(stop_at) and now >= float(stop_at)
