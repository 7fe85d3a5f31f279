"""The tables of states that everything reads, the oracle of rows included: what time makes of a task, which verb may do what."""

from __future__ import annotations

import pytest

from tubeq_spark.model.states import EVENTS, TIMERS, TRANSITIONS, after_giving_back, due
from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.storage.rows_after import rows_at
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState

R, T, D, B = TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED
NOW = 1_000


@pytest.mark.parametrize(
    ("stored", "next_event", "expires_at", "expected"),
    [
        (R, NOW, NOW, None),
        (B, NOW, NOW, None),
        (D, NOW, NOW + 1, R),
        (T, NOW, None, R),
        (T, NOW, NOW, None),
        (TaskState.DONE, NOW, NOW, None),
    ],
)
def test_task_when_a_moment_is_now_is_what_it_becomes_then(
    stored: TaskState, next_event: int, expires_at: int | None, expected: TaskState | None
) -> None:
    row = StoredTask(
        1, 1, stored, 0, None, "1", 0, None, None, next_event, expires_at, None, 0, None
    )
    (seen,) = rows_at([row], TubeTable("t", 1, ("task_id",)).state(NOW))
    assert (seen and seen.state) == expected


def test_after_giving_back_when_attempts_are_used_up_is_buried() -> None:
    assert [after_giving_back(n, 2) for n in (0, 1, 2, 3)] == [R, R, B, B]
    assert after_giving_back(10**6, None) == R


def test_due_is_at_the_moment_itself_and_never_is_not() -> None:
    assert [due(m, NOW) for m in (NOW - 1, NOW, NOW + 1, None)] == [True, True, False, False]


def test_transitions_name_every_event_but_peek_and_start_from_states_that_are_not_done() -> None:
    assert set(TRANSITIONS) == set(EVENTS) - {"peek"}
    assert set(TIMERS) == {R, T, D, B, TaskState.DONE}
    for transition in TRANSITIONS.values():
        assert TaskState.DONE not in transition.before
        if transition.by_holder:
            assert transition.before == (T,)


def test_transitions_of_time_are_what_effective_says() -> None:
    for state, timer in TIMERS.items():
        if timer.event is not None:
            assert state in TRANSITIONS[timer.event].before
            assert timer.becomes in TRANSITIONS[timer.event].after
