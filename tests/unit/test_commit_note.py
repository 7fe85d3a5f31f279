"""What the note of a commit has, and what the history tells by it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tubeq_spark.model.arguments import TakeRequest
from tubeq_spark.storage.note import (
    Note,
    asked_by,
    is_of,
    new_operation_id,
    newest_write,
    note_in,
    text_with_note,
)
from tubeq_spark.storage.statement import Affected


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
