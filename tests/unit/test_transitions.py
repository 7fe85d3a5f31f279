"""What verbs make of a row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.model.changes import Every, Touch, released
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.model.stored_task import new_task
from tubeq_spark.model.times import FOREVER_S, US
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.model.changes import Change
    from tubeq_spark.model.stored_task import StoredTask

R, T, D, B = TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED
NOW = 1_000 * US


def row(
    state: TaskState,
    next_event: int | None = None,
    expires_at: int | None = None,
    *,
    attempts: int = 1,
    ttl: int | None = None,
) -> StoredTask:
    new = new_task({}, TubeOptions(), "null", 0)
    owner, take_id = ("session/1", 1) if state is T else (None, None)
    times = {"ttl": ttl, "next_event": next_event, "expires_at": expires_at}
    held = {"state": state, "owner": owner, "take_id": take_id, "attempts": attempts}
    return replace(new, segment=1, task_id=2, **times, **held)  # type: ignore[arg-type]


def after(change: Change, held: StoredTask, max_attempts: int | None = None) -> StoredTask:
    table = TubeTable("t", 1, ("task_id",), max_attempts=max_attempts)
    clause = clause_of(table, Every(), change)
    (found,) = rows_after([clause], [held])
    return found


def test_released_row_is_nobodys_and_a_delay_makes_its_life_longer() -> None:
    held = row(T, NOW + 5, NOW + 20, ttl=30)

    ready = after(released(0, 0, NOW), held)
    assert (ready.state, ready.next_event, ready.owner, ready.take_id) == (R, NOW + 20, None, None)
    delayed = after(released(0, 7, NOW), held)
    assert (delayed.state, delayed.next_event) == (D, NOW + 7)
    assert (delayed.ttl, delayed.expires_at) == (37, NOW + 27)
    assert after(released(held.segment, 7, NOW), held, 1) == held.given_back(B)


def test_touched_row_whose_life_grows_beyond_all_measure_never_ends() -> None:
    most = int(FOREVER_S * US)
    held = row(T, NOW + 5, NOW + 20, ttl=most - 10)
    touched = after(Touch(9, 10), held)

    assert (touched.ttl, touched.expires_at, touched.segment) == (None, None, 9)
    assert after(Touch(9, 9), held).ttl == most - 1
