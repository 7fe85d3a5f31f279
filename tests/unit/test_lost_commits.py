"""How far back Spark's history is read for a commit whose answer was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.spark.reads import commits_since

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE_US = 60_000_000
#: When the statement was sent, in minutes: more than clocks may differ by after the log begins.
SENT = 1_000


def log_of(first: int, newest: int) -> Callable[[int], list[dict[str, Any]]]:
    """A log with one commit a minute, whose versions are its minutes; reads so many of the newest."""
    versions = range(newest, first - 1, -1)
    return lambda limit: [{"version": v, "timestamp": v * MINUTE_US} for v in versions[:limit]]


def looked_at(first: int, newest: int) -> set[int]:
    """The versions among which a commit is looked for."""
    found = commits_since(log_of(first, newest), SENT * MINUTE_US)
    return {commit["version"] for commit in found}


@pytest.mark.parametrize("later", [0, 1, 300, 5_000])
def test_history_when_others_have_committed_since_is_read_back_to_the_statement(later: int) -> None:
    assert {SENT, SENT + later} <= looked_at(0, SENT + later)


def test_history_when_no_one_has_committed_since_is_not_read_to_its_begin() -> None:
    assert min(looked_at(0, SENT)) > 0


@pytest.mark.parametrize("first", [0, 1])
def test_history_of_a_log_that_was_never_cleaned_or_begins_before_is_read_to_its_end(
    first: int,
) -> None:
    assert looked_at(first, first + 10) == set(range(first, first + 11))


def test_history_when_its_begin_is_younger_than_the_statement_does_not_tell() -> None:
    with pytest.raises(StoreError, match="cleaned"):
        looked_at(SENT + 1, SENT + 10)
