"""What verbs and time make of a row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.model.changes import Every, Touch, released
from tubeq_spark.model.options import NewTask
from tubeq_spark.model.states import TRANSITIONS, effective
from tubeq_spark.model.stored_task import new_row, time_events
from tubeq_spark.model.times import FOREVER_S, US
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.model.changes import Change
    from tubeq_spark.model.stored_task import StoredTask

R, T, D, B = TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED
DONE = TaskState.DONE
NOW = 1_000 * US
MOMENTS = st.one_of(st.none(), st.integers(NOW - 5, NOW + 5))


def row(
    state: TaskState,
    next_event: int | None = None,
    expires_at: int | None = None,
    *,
    attempts: int = 1,
    ttl: int | None = None,
) -> StoredTask:
    new = NewTask(0, state, 0, None, ttl, None, next_event, expires_at, rank=0)
    owner, take_id = ("session/1", 1) if state is T else (None, None)
    return replace(new_row((1, 2), new, "null"), owner=owner, take_id=take_id, attempts=attempts)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (row(R), []),
        (row(R, NOW, NOW), [("ttl", DONE)]),
        (row(B, NOW, NOW), [("ttl", DONE)]),
        (row(D, NOW), [("delay", R)]),
        (row(D, NOW, NOW), [("delay", R), ("ttl", DONE)]),
        (row(D, NOW + 1, NOW), []),
        (row(T, NOW), [("ttr", R)]),
        (row(T, NOW, attempts=2), [("ttr", R), ("bury", B)]),
        (row(T, NOW, NOW, attempts=2), [("ttr", R), ("ttl", DONE)]),
        (row(T, NOW + 1, NOW), []),
    ],
)
def test_time_events_are_what_has_come_in_its_order(
    stored: StoredTask, expected: list[tuple[str, TaskState]]
) -> None:
    events = time_events(stored, NOW, 2, None)

    assert [(event, after.state) for event, after in events] == expected


@given(
    st.sampled_from([R, T, D, B]), MOMENTS, MOMENTS, st.integers(0, 3), st.sampled_from([None, 2])
)
def test_time_events_follow_the_arrows_and_end_in_the_effective_state(
    state: TaskState,
    next_event: int | None,
    expires_at: int | None,
    attempts: int,
    most: int | None,
) -> None:
    stored = row(state, next_event, expires_at, attempts=attempts)
    events = time_events(stored, NOW, most, None)
    seen = stored.seen_at(NOW, most, None)

    last = events[-1][1].state if events else state
    assert last == (
        effective(state, next_event, expires_at, NOW, attempts=attempts, max_attempts=most) or DONE
    )
    assert (seen is stored) == (not events)
    assert seen is None or seen is stored or seen.owner is None
    for event, after in events:
        assert after.state in TRANSITIONS[event].after


def after(change: Change, held: StoredTask) -> StoredTask:
    clause = clause_of(TubeTable("t", 1, ("task_id",)), Every(), change)
    (found,) = rows_after([clause], [held])
    return found


def test_released_row_is_nobodys_and_a_delay_makes_its_life_longer() -> None:
    held = row(T, NOW + 5, NOW + 20, ttl=30)

    ready = after(released(0, 0, NOW, None), held)
    assert (ready.state, ready.next_event, ready.owner, ready.take_id) == (R, NOW + 20, None, None)
    delayed = after(released(0, 7, NOW, None), held)
    assert (delayed.state, delayed.next_event) == (D, NOW + 7)
    assert (delayed.ttl, delayed.expires_at) == (37, NOW + 27)
    assert after(released(held.segment, 7, NOW, 1), held) == held.given_back(B)


def test_touched_row_whose_life_grows_beyond_all_measure_never_ends() -> None:
    most = int(FOREVER_S * US)
    held = row(T, NOW + 5, NOW + 20, ttl=most - 10)
    touched = after(Touch(9, 10), held)

    assert (touched.ttl, touched.expires_at, touched.segment) == (None, None, 9)
    assert after(Touch(9, 9), held).ttl == most - 1
