"""Notes name their commits, and a search for a lost answer reads just enough of Spark's history."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.errors import StoreError
from tubeq_spark.model.takes import TakeRequest
from tubeq_spark.storage.spark.reads import find_commit
from tubeq_spark.storage.statement import (
    Affected,
    Note,
    asked_by,
    is_of,
    new_operation_id,
    newest_write,
    note_in,
    text_with_note,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([("WRITE", 5), ("MERGE", 4)], 5),
        # A vacuum by Spark, and one without it.
        ([("VACUUM END", 9), ("VACUUM START", 8), ("SET TBLPROPERTIES", 7), ("DELETE", 3)], 3),
        ([("METADATA CLEANUP", 9), ("SET TABLE PROPERTIES", 8), ("MERGE", 2), ("WRITE", 1)], 2),
        ([("VACUUM END", 9), ("VACUUM START", 6)], 6),
    ],
)
def test_newest_write_when_the_table_was_cleaned_since_is_the_write_before(
    commits: list[tuple[str, int]], expected: int
) -> None:
    assert newest_write(commits) == expected


PLAIN = Note("take", "0f-a", 2)
FULL = Note("take", "0f-a", 2, 3, 1_800_000_000_000_000, 7, "3/1,2/1/4", Affected(1, 2, 0), 4711)


@pytest.mark.parametrize("note", [PLAIN, FULL, Note("repair"), replace(PLAIN, operation_id=12)])
def test_note_is_read_as_it_was_written_in_metadata_and_in_a_predicate_of_spark(note: Note) -> None:
    assert note_in(str(note)) == note
    predicate = f'["(NOT (cast(segment#1L as string) = {note}) AND (segment#1L IN (4711, 12)))"]'
    commit = {"userMetadata": None, "operationParameters": {"predicate": predicate}}
    assert note_in(text_with_note(commit)) == note


def test_note_does_not_take_what_follows_it_for_its_fields() -> None:
    text = f"{PLAIN}) AND options = 'x tasks=5 marker=4711'"
    assert note_in(text) == PLAIN
    assert not is_of({"userMetadata": text}, 4711)


def test_commit_without_a_note_is_of_nobody() -> None:
    for text in ("", "by hand 4711", "tubeq", "(segment IN (4711))"):
        assert note_in(text) is None
        assert not is_of({"operationParameters": {"predicate": text}}, 4711)


def test_note_tells_what_each_call_of_a_take_asked_for_without_names() -> None:
    named = TakeRequest(2, 1, frozenset({"a", None, "x=1 marker=5"}))
    assert asked_by([TakeRequest(3), named]) == "3/1,2/1/3"


def test_operation_ids_differ_whatever_a_program_does_with_its_random_numbers() -> None:
    ids = []
    for _ in range(100):
        random.seed(1)
        ids.append(new_operation_id())
    assert len({*ids, 0}) == 101


# -- the history of Spark ----------------------------------------------------------------------------


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
