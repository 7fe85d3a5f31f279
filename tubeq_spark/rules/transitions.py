"""Computes a task's row after a verb or a timeout: the transitions of `lifecycle`, applied.

`row_changes` and `storage.spark.predicates` render the same as SQL.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.rules.lifecycle import TIMERS, after_giving_back
from tubeq_spark.rules.microseconds import FOREVER_S, plus
from tubeq_spark.rules.stored_task import StoredTask
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from typing import Any

    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.options import NewTask

__all__ = ["FOREVER_US", "new_row", "released_row", "taken_row", "time_events", "touched_row"]

FOREVER_US = int(FOREVER_S * 1_000_000)


def new_row(place: tuple[int, int], new: NewTask, data: Any) -> StoredTask:
    """The row of a task that is put, in its segment, under its id; `data` as it is stored."""
    return StoredTask(
        segment=place[0],
        task_id=place[1],
        state=new.state,
        pri=new.pri,
        utube=new.utube,
        data=data,
        created=new.created,
        ttl=new.ttl,
        ttr=new.ttr,
        next_event=new.next_event,
        expires_at=new.expires_at,
        owner=None,
        attempts=0,
        take_id=None,
    )


def taken_row(row: StoredTask, lease_segment: int, lease: NewLease) -> StoredTask:
    """A row as a take has left it."""
    return replace(
        row,
        segment=lease_segment,
        take_id=lease_segment,
        owner=lease.owner,
        state=TaskState.TAKEN,
        attempts=row.attempts + 1,
        next_event=lease.end(row.ttr),
    )


def released_row(
    row: StoredTask, delay_us: int | None, now_us: int, max_attempts: int | None
) -> StoredTask:
    """The row after a release: ready, delayed, or buried when its attempts are used up."""
    state = after_giving_back(row.attempts, max_attempts)
    if delay_us == 0 or state is TaskState.BURIED:
        return row.given_back(state)
    ttl = _longer(row.ttl, delay_us)
    return replace(
        row.given_back(TaskState.DELAYED),
        next_event=plus(now_us, delay_us),
        ttl=ttl,
        expires_at=None if ttl is None else plus(row.expires_at, delay_us),
    )


def touched_row(row: StoredTask, segment: int, increment_us: int) -> StoredTask:
    """The row after a touch, in the lease segment that it moves to."""
    ttl = _longer(row.ttl, increment_us)
    return replace(
        row,
        segment=segment,
        next_event=plus(row.next_event, increment_us),
        ttl=ttl,
        ttr=_longer(row.ttr, increment_us),
        expires_at=None if ttl is None else plus(row.expires_at, increment_us),
    )


def _longer(duration_us: int | None, amount_us: int | None) -> int | None:
    total = plus(duration_us, amount_us)
    return None if total is None or total >= FOREVER_US else total


def time_events(
    row: StoredTask, now_us: int, max_attempts: int | None
) -> list[tuple[str, StoredTask]]:
    """What time has done to a row that nobody has written down: each event, and the row after it."""
    after = row.seen_at(now_us, max_attempts)
    if after is row:
        return []
    events = []
    event = TIMERS[row.state].event
    if event is not None:
        events.append((event, replace(row if after is None else after, state=TaskState.READY)))
    if after is None:
        events.append(("ttl", replace(row, state=TaskState.DONE)))
    elif after.state is TaskState.BURIED:
        events.append(("bury", after))
    return events
