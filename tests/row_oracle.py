"""The row after a change, written by hand: what the expressions of `row_clauses` are compared with.

With a grid of rows, and changes of them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from tubeq_spark.model.changes import (
    Become,
    Buried,
    Change,
    Delay,
    Due,
    Event,
    Every,
    GiveBack,
    Move,
    Named,
    Older,
    Remove,
    Renew,
    Share,
    Take,
    Takeable,
    Touch,
    Which,
)
from tubeq_spark.model.failures import LEASE_ENDED, Backoff
from tubeq_spark.model.ids import slot_of
from tubeq_spark.model.lease_times import NewLease
from tubeq_spark.model.states import after_giving_back, due, expired
from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.model.times import FOREVER_US, US, plus
from tubeq_spark.model.tube_types import OrderPosition
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState

__all__ = [
    "AFTER_LEASES",
    "BACKOFF",
    "CHANGES",
    "GRID",
    "HELD",
    "NOW",
    "PLAIN",
    "SELECTIONS",
    "TABLE",
    "row_after",
    "selects",
]


def row_after(  # noqa: PLR0911  (one of each)
    change: Change, row: StoredTask, backoff: Backoff | None = None
) -> StoredTask | None:
    """The row after a change; `None`: it is removed. The backoff is that of the tube."""
    match change:
        case Remove():
            return None
        case GiveBack():
            return _given_back(change, row, backoff)
        case Delay():
            return _delayed(change, row)
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
                name: getattr(row, name)
                for name in ("task_id", "utube", "created", "ttr", "taken_at", "error")
            }
            return replace(after, **of_row, segment=dest, data=data, owner=None, take_id=None)
        case Take(shares, lease):
            position = (row.pri, row.task_id)
            share = next(
                (s for s in shares if position <= (s.last.key, s.last.task_id)), shares[-1]
            )
            return replace(
                row,
                segment=share.segment,
                take_id=share.take_id,
                owner=lease.owner,
                state=TaskState.TAKEN,
                attempts=row.attempts + 1,
                next_event=lease.end(row.ttr),
                taken_at=lease.at_us,
            )


def _given_back(change: GiveBack, row: StoredTask, backoff: Backoff | None) -> StoredTask:
    state = change.state
    time_us = None if change.event is None else change.event.time_us
    if backoff is not None and time_us is not None and row.state is TaskState.TAKEN:
        assert change.event is not None
        if due(row.next_event, time_us):
            failed = _after_lease(row, change.event.max_attempts, backoff)
            if state is None:
                return replace(_failed(failed, change), segment=change.dest)
            row = failed
    if state is None:
        held = row.state is TaskState.TAKEN
        state = after_giving_back(row.attempts, change.max_attempts if held else None)
    attempts = row.attempts - change.untaken if change.attempts is None else change.attempts
    row = _failed(row, change)
    return replace(row.given_back(state), segment=change.dest, attempts=attempts)


def _after_lease(row: StoredTask, max_attempts: int | None, backoff: Backoff) -> StoredTask:
    """What the end of a lease makes of a row in a tube with a backoff."""
    row = replace(row, error=LEASE_ENDED)
    if after_giving_back(row.attempts, max_attempts) is TaskState.BURIED:
        return row.given_back(TaskState.BURIED)
    pause_us = backoff.delay_us(row.attempts, row.task_id)
    ttl = _longer(row.ttl, pause_us)
    end = None if ttl is None else plus(row.expires_at, pause_us)
    back = replace(row, ttl=ttl, expires_at=end).given_back(TaskState.DELAYED)
    return replace(back, next_event=plus(row.next_event, pause_us))


def _failed(row: StoredTask, change: GiveBack | Delay) -> StoredTask:
    match change.error:
        case None:
            return row
        case str():
            return replace(row, error=change.error)
        case _:
            return replace(row, error=change.error[row.task_id])


def _delayed(change: Delay, row: StoredTask) -> StoredTask:
    row = _failed(replace(row, segment=change.dest), change)
    delay_us = change.delay_us
    if isinstance(delay_us, Backoff):
        delay_us = delay_us.delay_us(row.attempts, row.task_id)
    if after_giving_back(row.attempts, change.max_attempts) is TaskState.BURIED:
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
    position = (row.pri, row.task_id)
    held = row.state in {TaskState.TAKEN, TaskState.DELAYED}
    match which:
        case Every() | Named():
            return True
        case Due(now_us, over, kept, _):
            is_due = due(row.next_event if held else row.expires_at, now_us)
            is_one = is_due and (row.state is TaskState.DONE) is kept
            return is_one and (expired(row.expires_at, now_us) or not over)
        case Takeable(last, now_us):
            is_ready = row.effective(now_us, None, None) is TaskState.READY
            is_near = position <= (last.key, last.task_id)
            return is_ready and is_near and row.state is not TaskState.TAKEN
        case Buried(last, now_us):
            is_buried = row.effective(now_us, None, None) is TaskState.BURIED
            return is_buried and position <= (last.key, last.task_id)
        case Older(newest, taken):
            is_older = row.task_id <= newest.get(slot_of(row.task_id), -1)
            return is_older and (row.state is TaskState.TAKEN or not taken)


def shares(*each: tuple[int, int, int, int]) -> list[Share]:
    """What the calls of a take get: pri and id of the last row, lease segment, take id."""
    return [
        Share(OrderPosition(pri, last), segment, take_id) for pri, last, segment, take_id in each
    ]


NOW = 1_767_225_600_123_456
TABLE = TubeTable("t", 1, ("pri", "task_id"))
LEASE = NewLease("session/1", NOW, 3 * US)
#: With jitter, and without; a life that grows by the last one is without end.
BACKOFF = Backoff(first=1.5, factor=3, most=60, jitter=0.25)
PLAIN = Backoff(first=2, factor=1, most=2, jitter=0)
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
    "released": (GiveBack(9), HELD),
    "released_or_buried": (GiveBack(9, max_attempts=2), HELD),
    "written_down": (GiveBack(9, max_attempts=2), GRID),
    "buried": (GiveBack(9, TaskState.BURIED), GRID),
    "kicked": (GiveBack(9, TaskState.READY, attempts=0), GRID),
    "undone": (GiveBack(9, TaskState.READY, untaken=True), HELD),
    "delayed": (Delay(9, 7 * US, NOW, None), HELD),
    "delayed_or_buried": (Delay(9, 7 * US, NOW, 2), HELD),
    "delayed_for_ever": (Delay(9, None, NOW, None), HELD),
    "failed": (GiveBack(9, max_attempts=2, error="it's ${bad}\n…"), HELD),
    "failed_each": (GiveBack(9, error={row.task_id: f"at {row.task_id}" for row in GRID}), GRID),
    "buried_with_an_error": (GiveBack(9, TaskState.BURIED, error="why"), GRID),
    "failed_and_delayed": (Delay(9, 7 * US, NOW, 2, error="why"), HELD),
    "failed_and_delayed_by_backoff": (Delay(9, BACKOFF, NOW, None, error="why"), HELD),
    "failed_each_and_delayed_by_backoff": (
        Delay(9, BACKOFF, NOW, 2, error={row.task_id: f"at {row.task_id}" for row in GRID}),
        HELD,
    ),
    "failed_and_delayed_for_long": (Delay(9, LONG, NOW, None, error="why"), HELD),
    "touched": (Touch(9, 2 * US), HELD),
    "touched_for_longer_than_all_measure": (Touch(9, FOREVER_US - 30 * US), HELD),
    "renewed": (Renew(9, LEASE), HELD),
    "renewed_at_once": (Renew(9, replace(LEASE, headroom_us=0)), HELD),
    "moved": (Move(9), GRID),
    "taken": (Take(shares((0, 50, 11, 11), (9, 9, 12, 12)), LEASE), GRID),
    "taken_by_one": (Take(shares((9, 9, 12, 12)), LEASE), GRID),
    "taken_to_one_segment": (
        Take(shares((0, 50, 11, 11), (1, 60, 11, 12), (9, 9, 11, 13)), LEASE),
        GRID,
    ),
    "taken_to_one_segment_beside_others": (
        Take(shares((0, 50, 11, 11), (1, 60, 12, 12), (2, 9, 11, 13), (9, 9, 11, 14)), LEASE),
        GRID,
    ),
    "become": (
        Become(9, replace(GRID[0], state=TaskState.DONE, data="[]", ttl=5, attempts=4), data=True),
        GRID,
    ),
    "become_without_data": (Become(9, replace(GRID[0], pri=5, data="[]", owner="x")), GRID),
}

#: Changes of tubes with a backoff, which write down what the end of a lease has made of a row.
AFTER_LEASES: dict[str, tuple[Change, list[StoredTask]]] = {
    "written_down": (GiveBack(9, max_attempts=2, event=Event("", NOW, 2)), GRID),
    "written_down_without_limit": (GiveBack(9, event=Event("", NOW)), GRID),
    "buried": (GiveBack(9, TaskState.BURIED, event=Event("bury", NOW, 2)), GRID),
    "buried_with_an_error": (
        GiveBack(9, TaskState.BURIED, event=Event("bury", NOW, None), error="why"),
        GRID,
    ),
    "kicked": (GiveBack(9, TaskState.READY, attempts=0, event=Event("kick", NOW, 2)), GRID),
}

#: Conditions for rows of the grid.
SELECTIONS: dict[str, Which] = {
    "every": Every(),
    "named": Named(),
    "due": Due(NOW),
    "due_and_over": Due(NOW, over=True),
    "due_and_kept": Due(NOW, kept=True),
    "due_exactly_now": Due(NOW + US),
    "takeable": Takeable(OrderPosition(1, 100), NOW),
    "takeable_later": Takeable(OrderPosition(9, 0), NOW + US),
    "buried": Buried(OrderPosition(1, 270), NOW),
    "older": Older({0: 150, 7: 1}),
    "older_and_taken": Older({0: 150, 7: 1}, taken=True),
}
