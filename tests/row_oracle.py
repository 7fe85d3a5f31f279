"""Computes the row after a change by rules written by hand, to compare the expressions of `row_clauses` with it.

With a grid of rows, and changes of them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from tubeq_spark.clock import FOREVER_US, US, due, plus
from tubeq_spark.model.changes import (
    Become,
    Change,
    Due,
    Every,
    GiveBack,
    Move,
    Remove,
    Renew,
    Touch,
    Which,
    lease_ended,
)
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.stored_task import StoredTask, after_giving_back
from tubeq_spark.model.takes import NewLease
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState


def row_after(
    change: Change, row: StoredTask, max_attempts: int | None = None
) -> StoredTask | None:
    """The row after a change in a tube with `max_attempts`; `None`: it is removed."""
    match change:
        case Remove():
            return None
        case GiveBack():
            give_back = _given_back if change.delay_us == 0 else _delayed
            return give_back(change, row, max_attempts)
        case Touch(dest, increment_us):
            ttl = _longer(row.ttl, increment_us)
            return replace(
                row,
                segment=dest,
                next_event=plus(row.next_event, increment_us),
                ttl=ttl,
                ttr=_longer(row.ttr, increment_us),
                expires_at=None if ttl is None else plus(row.expires_at, increment_us),
            )
        case Renew(dest, lease):
            return replace(row, segment=dest, next_event=lease.end(row.ttr))
        case Move(dest):
            return replace(row, segment=dest)
        case Become(dest, after):
            data = after.data if change.data else row.data
            of_row = {
                name: getattr(row, name) for name in ("task_id", "utube", "created", "ttr", "error")
            }
            return replace(after, **of_row, segment=dest, data=data, owner=None, take_id=None)


def taken(row: StoredTask, segment: int, take_id: int, lease: NewLease) -> StoredTask:
    """A row after a take."""
    return replace(
        row,
        segment=segment,
        take_id=take_id,
        owner=lease.owner,
        state=TaskState.TAKEN,
        attempts=row.attempts + 1,
        next_event=lease.end(row.ttr),
        since=lease.at_us,
    )


def _given_back(change: GiveBack, row: StoredTask, max_attempts: int | None) -> StoredTask:
    state = change.state
    if state is None:
        state = after_giving_back(row.attempts, max_attempts)
    attempts = row.attempts - change.untaken if change.attempts is None else change.attempts
    row = replace(_failed(row, change), since=_since(change, row))
    return replace(row.given_back(state), segment=change.dest, attempts=attempts)


def _since(change: GiveBack, row: StoredTask) -> int | None:
    """When the state after a change begins."""
    return row.next_event if change.event in ("ttr", "delay") else change.now_us


def effective(row: StoredTask, now_us: int, max_attempts: int | None) -> TaskState | None:
    """The state in which a row is seen; `None`: its life is over."""
    held = row.state in {TaskState.TAKEN, TaskState.DELAYED}
    if held and not due(row.next_event, now_us):
        return row.state
    if due(row.expires_at, now_us):
        return None
    if row.state is TaskState.TAKEN:
        return after_giving_back(row.attempts, max_attempts)
    return TaskState.READY if held else row.state


def seen_at(row: StoredTask, now_us: int, max_attempts: int | None) -> StoredTask | None:
    """A row as it is seen; `None`: its life is over."""
    state = effective(row, now_us, max_attempts)
    return None if state is None else row.seen_as(state)


def _failed(row: StoredTask, change: GiveBack) -> StoredTask:
    match change.error:
        case None:
            return row
        case str():
            return replace(row, error=change.error)
        case _:
            return replace(row, error=change.error[row.task_id])


def _delayed(change: GiveBack, row: StoredTask, max_attempts: int | None) -> StoredTask:
    row = _failed(replace(row, segment=change.dest, since=_since(change, row)), change)
    delay_us = change.delay_us
    if isinstance(delay_us, Backoff):
        delay_us = delay_us.delay_us(row.attempts, row.task_id)
    if after_giving_back(row.attempts, max_attempts) is TaskState.BURIED:
        return row.given_back(TaskState.BURIED)
    ttl = _longer(row.ttl, delay_us)
    return replace(
        row.given_back(TaskState.DELAYED),
        next_event=plus(change.now_us, delay_us),
        ttl=ttl,
        expires_at=None if ttl is None else plus(row.expires_at, delay_us),
    )


def _longer(duration_us: int | None, amount_us: int | None) -> int | None:
    """A duration made longer; a hundred years or more is never."""
    total = plus(duration_us, amount_us)
    return None if total is None or total >= FOREVER_US else total


def selects(which: Which, row: StoredTask) -> bool:
    """Whether a row is one of some rows."""
    held = row.state in {TaskState.TAKEN, TaskState.DELAYED}
    match which:
        case Every():
            return True
        case Due(now_us, over, state):
            is_due = due(row.next_event if held else row.expires_at, now_us)
            is_one = row.state is not TaskState.DONE if state is None else row.state is state
            return is_due and is_one and (due(row.expires_at, now_us) or not over)


NOW = 1_767_225_600_123_456
TABLE = TubeTable("t", 1, ("pri", "task_id"))
LEASE = NewLease("session/1", NOW, 3 * US)
#: A life that grows by the last one is without end.
BACKOFF = Backoff(first=1.5, factor=3, most=60, jitter=0.25)
LONG = Backoff(first=1e9, factor=2, most=1e12)
#: Fresh segments of the two segments of the grid.
DURATIONS = (None, 0, 20 * US, FOREVER_US - US)
MOMENTS = (None, NOW - US, NOW + US)

#: Rows in all states that a task of a tube may be stored in.
GRID = [
    StoredTask(
        segment=1 + place % 2,
        task_id=place,
        state=state,
        pri=place % 3,
        utube=None if place % 2 else "u",
        data="{}",
        created=NOW - 5 * US,
        ttl=ttl,
        ttr=ttl,
        next_event=next_event,
        expires_at=None if ttl is None else expires_at,
        owner="session/1" if state is TaskState.TAKEN else None,
        attempts=attempts,
        take_id=7 if state is TaskState.TAKEN else None,
        error=None if place % 3 else "before",
    )
    for place, (state, ttl, next_event, expires_at, attempts) in enumerate(
        product(
            [s for s in TaskState if s is not TaskState.DONE], DURATIONS, MOMENTS, MOMENTS, (1, 2)
        )
    )
]
HELD = [row for row in GRID if row.state is TaskState.TAKEN]

#: Changes, and the rows that they may be made to.
CHANGES: dict[str, tuple[Change, list[StoredTask]]] = {
    "removed": (Remove(), GRID),
    "released": (GiveBack(9, now_us=NOW), HELD),
    "written": (lease_ended(9, NOW, None), HELD),
    "written_with_a_backoff": (lease_ended(9, NOW, BACKOFF), HELD),
    "written_with_a_backoff_of_no_delay": (lease_ended(9, NOW, Backoff(first=0)), HELD),
    "buried": (GiveBack(9, TaskState.BURIED, now_us=NOW), GRID),
    "kicked": (GiveBack(9, TaskState.READY, attempts=0, now_us=NOW), GRID),
    "undone": (GiveBack(9, TaskState.READY, untaken=True, now_us=NOW), HELD),
    "undone_with_an_error": (
        GiveBack(9, TaskState.READY, untaken=True, error="why", now_us=NOW),
        HELD,
    ),
    "delayed": (GiveBack(9, delay_us=7 * US, now_us=NOW), HELD),
    "delayed_for_ever": (GiveBack(9, delay_us=None, now_us=NOW), HELD),
    "failed": (GiveBack(9, error="it's ${bad}\n…", now_us=NOW), HELD),
    "failed_each": (
        GiveBack(9, error={row.task_id: f"at {row.task_id}" for row in GRID}, now_us=NOW),
        GRID,
    ),
    "buried_with_an_error": (GiveBack(9, TaskState.BURIED, error="why", now_us=NOW), GRID),
    "failed_and_delayed": (GiveBack(9, delay_us=7 * US, now_us=NOW, error="why"), HELD),
    "failed_and_delayed_by_backoff": (GiveBack(9, delay_us=BACKOFF, now_us=NOW, error="why"), HELD),
    "failed_each_and_delayed_by_backoff": (
        GiveBack(
            9,
            delay_us=BACKOFF,
            now_us=NOW,
            error={row.task_id: f"at {row.task_id}" for row in GRID},
        ),
        HELD,
    ),
    "failed_and_delayed_for_long": (GiveBack(9, delay_us=LONG, now_us=NOW, error="why"), HELD),
    "touched": (Touch(9, 2 * US), HELD),
    "touched_for_longer_than_all_measure": (Touch(9, FOREVER_US - 30 * US), HELD),
    "renewed": (Renew(9, LEASE), HELD),
    "renewed_at_once": (Renew(9, replace(LEASE, headroom_us=0)), HELD),
    "moved": (Move(9), GRID),
    "become": (
        Become(9, replace(GRID[0], state=TaskState.DONE, data="[]", ttl=5, attempts=4), data=True),
        GRID,
    ),
    "become_without_data": (Become(9, replace(GRID[0], pri=5, data="[]", owner="x")), GRID),
}

#: Conditions for rows of the grid.
SELECTIONS: dict[str, Which] = {
    "every": Every(),
    "due": Due(NOW),
    "due_and_over": Due(NOW, over=True),
    "due_and_kept": Due(NOW, state=TaskState.DONE),
    "due_and_taken": Due(NOW, state=TaskState.TAKEN),
    "due_exactly_now": Due(NOW + US),
}
