"""What a release and a touch make of a row: as an SQL action, and as its reader sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.ending import back_to_tube
from tubeq_spark.lifecycle import after_giving_back
from tubeq_spark.moments import FOREVER_S, LAST_US, plus
from tubeq_spark.storage import predicates
from tubeq_spark.storage.feed import note, note_of_release
from tubeq_spark.storage.quoting import bigint, moment
from tubeq_spark.storage.statements import moved_segment
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.rows import StoredTask

__all__ = ["release_action", "released_row", "touch_action", "touched_row"]

_FOREVER_US = int(FOREVER_S * 1_000_000)


def release_action(ctx: TubeContext, dest: int, delay_us: int | None, now_us: int) -> str:
    """The action of a release, for rows whose columns decide between ready and buried."""
    readied = predicates.readied_state(ctx.max_attempts, "t.")
    told = note_of_release(ctx.table, ctx.max_attempts)
    if delay_us == 0:
        return back_to_tube(dest, readied) + told
    worn = f"({readied}) = '!'"
    due = plus(now_us, delay_us)
    grown = _grown("ttl", delay_us)
    end = _end("expires_at", delay_us)
    return (
        f"UPDATE SET segment = {bigint(dest)}, owner = NULL, claim = NULL, "
        f"state = CASE WHEN {worn} THEN '!' ELSE '~' END, "
        f"next_event = CASE WHEN {worn} THEN t.expires_at ELSE {moment(due)} END, "
        f"ttl = CASE WHEN {worn} THEN t.ttl ELSE {grown} END, "
        f"expires_at = CASE WHEN {worn} THEN t.expires_at ELSE {end} END{told}"
    )


def released_row(
    row: StoredTask, delay_us: int | None, now_us: int, max_attempts: int | None
) -> StoredTask:
    """The row after a release: ready, delayed, or buried when worn out."""
    state = after_giving_back(row.attempts, max_attempts)
    if delay_us == 0 or state is TaskState.BURIED:
        return replace(row, state=state, next_event=row.expires_at)
    ttl = _longer(row.ttl, delay_us)
    return replace(
        row,
        state=TaskState.DELAYED,
        next_event=plus(now_us, delay_us),
        ttl=ttl,
        expires_at=None if ttl is None else plus(row.expires_at, delay_us),
    )


def touched_row(row: StoredTask, segment: int, increment_us: int) -> StoredTask:
    """The row after a touch, in the claim that it moves to."""
    ttl = _longer(row.ttl, increment_us)
    return replace(
        row,
        segment=segment,
        next_event=plus(row.next_event, increment_us),
        ttl=ttl,
        ttr=_longer(row.ttr, increment_us),
        expires_at=None if ttl is None else plus(row.expires_at, increment_us),
    )


def touch_action(ctx: TubeContext, moves: dict[int, int], increment_us: int) -> str:
    """The action of a touch: the whole claim moves, changed rows and rest to one fresh claim."""
    return (
        f"UPDATE SET segment = {moved_segment(moves)}, "
        f"next_event = {predicates.plus_us('t.next_event', increment_us, LAST_US)}, "
        f"ttl = {_grown('ttl', increment_us)}, ttr = {_grown('ttr', increment_us)}, "
        f"expires_at = {_end('expires_at', increment_us)}" + note(ctx.table, "'touch'")
    )


def _grown(column: str, amount_us: int | None) -> str:
    """A duration made longer; a hundred years or more is never."""
    if amount_us is None:
        return "CAST(NULL AS BIGINT)"
    longer = f"t.{column} + {bigint(amount_us)}"
    return f"CASE WHEN {longer} < {bigint(_FOREVER_US)} THEN {longer} END"


def _end(column: str, amount_us: int | None) -> str:
    """The end of a life whose ttl grows."""
    if amount_us is None:
        return "CAST(NULL AS TIMESTAMP)"
    longer = f"t.ttl + {bigint(amount_us)} < {bigint(_FOREVER_US)}"
    return f"CASE WHEN {longer} THEN {predicates.plus_us('t.' + column, amount_us, LAST_US)} END"


def _longer(duration_us: int | None, amount_us: int | None) -> int | None:
    total = plus(duration_us, amount_us)
    return None if total is None or total >= _FOREVER_US else total
