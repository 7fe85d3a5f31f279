"""How far back Spark's history is read for a commit whose answer was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.spark.reads import find_commit

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE_US = 60_000_000
#: When the statement was sent, in minutes: more than clocks may differ by after the log begins.
SENT = 1_000


def log_of(
    first: int, newest: int, limits: list[int] | None = None
) -> Callable[[int], list[dict[str, Any]]]:
    """A log with one commit a minute, whose versions are its minutes; reads so many of the newest."""
    versions = range(newest, first - 1, -1)

    def read(limit: int) -> list[dict[str, Any]]:
        if limits is not None:
            limits.append(limit)
        return [
            {
                "version": v,
                "timestamp": v * MINUTE_US,
                "operation": "MERGE",
                "userMetadata": f"tubeq operation=put session=s conflicts=0 marker={v}",
            }
            for v in versions[:limit]
        ]

    return read


def version_of(operation_id: int, read: Callable[[int], list[dict[str, Any]]]) -> int | None:
    """The version of the commit that is found; here operation ids are versions."""
    found = find_commit(read, operation_id, SENT * MINUTE_US)
    return found and found.version


@pytest.mark.parametrize("later", [0, 1, 300, 5_000])
def test_history_when_others_have_committed_since_is_read_back_to_the_statement(later: int) -> None:
    for version in (SENT, SENT + later):
        assert version_of(version, log_of(0, SENT + later)) == version


def test_history_when_no_one_has_committed_since_is_not_read_to_its_begin() -> None:
    limits: list[int] = []

    assert version_of(-1, log_of(0, SENT, limits)) is None

    assert len(limits) == 1
    assert limits[0] < SENT


@pytest.mark.parametrize("first", [0, 1])
def test_history_of_a_log_that_was_never_cleaned_or_begins_before_is_read_to_its_end(
    first: int,
) -> None:
    assert version_of(first, log_of(first, first + 10)) == first
    assert version_of(-1, log_of(first, first + 10)) is None


def test_history_when_its_begin_is_younger_than_the_statement_does_not_tell() -> None:
    with pytest.raises(StoreError, match="cleaned"):
        version_of(-1, log_of(SENT + 1, SENT + 10))
