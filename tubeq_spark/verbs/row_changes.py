"""Renders release and touch as SQL actions; `rules/transitions.py` has the same in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.microseconds import LAST_US, plus
from tubeq_spark.rules.transitions import FOREVER_US
from tubeq_spark.storage.spark import predicates
from tubeq_spark.storage.spark.change_feed import note, note_of_release
from tubeq_spark.storage.spark.quoting import bigint, moment
from tubeq_spark.storage.spark.task_statements import moved_segment
from tubeq_spark.verbs.expire import back_to_tube

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext

__all__ = ["release_action", "touch_action"]


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


def touch_action(ctx: TubeContext, moves: dict[int, int], increment_us: int) -> str:
    """The action of a touch: the whole lease segment moves, changed rows and rest alike."""
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
    return f"CASE WHEN {longer} < {bigint(FOREVER_US)} THEN {longer} END"


def _end(column: str, amount_us: int | None) -> str:
    """The end of a life whose ttl grows."""
    if amount_us is None:
        return "CAST(NULL AS TIMESTAMP)"
    longer = f"t.ttl + {bigint(amount_us)} < {bigint(FOREVER_US)}"
    return f"CASE WHEN {longer} THEN {predicates.plus_us('t.' + column, amount_us, LAST_US)} END"
