"""The row of a new task, and the effective row of a task whose state time has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.rules.lifecycle import TIMERS
from tubeq_spark.rules.stored_task import StoredTask
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from typing import Any

    from tubeq_spark.rules.options import NewTask

__all__ = ["new_row", "time_events"]


def new_row(place: tuple[int, int], new: NewTask, data: Any) -> StoredTask:
    """The row of a new task with its segment and id; `data` is in stored form."""
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


def time_events(
    row: StoredTask, now_us: int, max_attempts: int | None
) -> list[tuple[str, StoredTask]]:
    """The events by time of a row that are not stored yet, each with the row after it."""
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
