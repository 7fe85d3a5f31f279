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


def effective(
    state: TaskState,
    next_event: int | None,
    expires_at: int | None,
    now: int,
    *,
    attempts: int = 0,
    max_attempts: int | None = None,
) -> TaskState | None:
    """The state in which a row is seen; `None`: its life is over."""
    moments = (next_event, expires_at)
    row = StoredTask(1, 1, state, 0, None, "1", 0, None, None, *moments, None, attempts, None)
    state = TubeTable("t", 1, ("task_id",), max_attempts=max_attempts).state(now)
    (seen,) = rows_at([row], state)
    return None if seen is None else seen.state


@pytest.mark.parametrize(
    ("stored", "next_event", "expires_at", "expected"),
    [
        (R, None, None, R),
        (R, NOW + 1, NOW + 1, R),
        (R, NOW, NOW, None),
        (B, None, None, B),
        (B, NOW - 1, NOW - 1, None),
        (D, NOW + 1, None, D),
        (D, NOW, None, R),
        (D, NOW, NOW + 1, R),
        (D, NOW, NOW, None),
        (D, None, None, D),
        (T, None, None, T),
        (T, NOW + 1, None, T),
        (T, NOW, None, R),
        (T, NOW, NOW, None),
        # A life that is over first is still held by its lease or delay.
        (T, NOW + 10, NOW - 10, T),
        (T, None, NOW - 10, T),
        (D, NOW + 10, NOW - 10, D),
        (D, None, NOW - 10, D),
        (TaskState.DONE, NOW + 1, NOW + 1, TaskState.DONE),
        (TaskState.DONE, NOW, NOW, None),
    ],
)
def test_effective_when_moments_have_come_is_the_state_after_them(
    stored: TaskState, next_event: int | None, expires_at: int | None, expected: TaskState | None
) -> None:
    assert effective(stored, next_event, expires_at, NOW) == expected


def test_effective_when_a_worn_out_tasks_lease_has_ended_is_buried() -> None:
    def ended(attempts: int, most: int | None) -> TaskState | None:
        return effective(T, NOW, None, NOW, attempts=attempts, max_attempts=most)

    assert (ended(3, 3), ended(2, 3), ended(9, None)) == (B, R, R)


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
