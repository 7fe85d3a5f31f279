"""The sentences about tasks that are not handed out, by the facts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tubeq_spark.model.reasons import Facts, sentence
from tubeq_spark.task import TaskState

AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, dt.UTC)
SAID = "2026-01-02 03:04:05 UTC"
#: What keeps a ready task, in the order in which it is told.
WAITS: list[tuple[dict[str, Any], str]] = [
    ({"is_paused": True}, "waits: its tube is paused."),
    ({"taken": 5}, "waits: 5 tasks of its tube are taken, as many as may be at a time."),
    (
        {"busy_with": 9, "busy_until": AT},
        f"waits: its sub-queue 'u' is busy with task 9, taken until {SAID}.",
    ),
    (
        {"beside": 3},
        "waits: 3 tasks of its sub-queue 'u' are taken, as many as may be at a time.",
    ),
    ({"rate_until": AT}, f"waits: its sub-queue 'u' is over its rate until {SAID}."),
    ({"ahead": 1_234}, "waits: 1,234 tasks of its sub-queue 'u' come before it."),
    (
        {"subqueues_ahead": 1},
        "waits: it is the first of its sub-queue 'u', and the first task of 1 other sub-queue comes before it.",
    ),
    ({}, "is next: the next take gets it."),
]
STATES: list[tuple[dict[str, Any], str]] = [
    (
        {"state": None, "until": AT},
        f"is not handed out any more: its time to live ended at {SAID}.",
    ),
    ({"state": TaskState.DONE}, "is done."),
    ({"state": TaskState.BURIED}, "is buried until somebody kicks it."),
    (
        {"state": TaskState.TAKEN, "session": "1-2", "until": AT},
        f"is taken by session 1-2 until {SAID}.",
    ),
    ({"state": TaskState.TAKEN, "session": "1-2"}, "is taken by session 1-2 without an end."),
    ({"state": TaskState.DELAYED, "until": AT}, f"is delayed until {SAID}."),
]


def said_of(**facts: Any) -> str:
    """What is told of a task in a sub-queue, ready if not said."""
    given = {"state": TaskState.READY, "has_subqueues": True, "utube": "u"} | facts
    return sentence(Facts(task_id=7, **given)).removeprefix("Task 7 ")


@pytest.mark.parametrize(("facts", "said"), [*WAITS, *STATES], ids=str)
def test_sentence_when_one_thing_keeps_a_task_tells_it(facts: dict[str, Any], said: str) -> None:
    assert said_of(**facts) == said


@pytest.mark.parametrize("number", range(len(WAITS)))
def test_sentence_when_several_things_keep_a_task_tells_the_first(number: int) -> None:
    facts: dict[str, Any] = {}
    for given, _ in WAITS[number:]:
        facts |= given

    assert said_of(**facts) == WAITS[number][1]
    for state, said in STATES:
        assert said_of(**(facts | state)) == said


def test_sentence_when_the_tube_has_no_subqueues_tells_of_its_tasks() -> None:
    assert said_of(has_subqueues=False, utube=None, ahead=1) == "waits: 1 task comes before it."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError: no", "ValueError: no"),
        ('\nValueError: no\nand more\n  File "a.py", line 1, in f\n', "ValueError: no"),
        ("x" * 201, "x" * 200 + " …"),
        ("x" * 200, "x" * 200),
    ],
)
def test_sentence_when_a_buried_task_has_failed_tells_the_first_line_of_its_error(
    error: str, said: str
) -> None:
    buried = said_of(state=TaskState.BURIED, error=error)

    assert buried == f"is buried until somebody kicks it; it failed with: {said}."
