"""Measures tubes in memory, for their metrics and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.lifecycle import TIMERS
from tubeq_spark.rules.microseconds import LAST_US, US
from tubeq_spark.rules.reports import QueueMetrics, TubeMetrics
from tubeq_spark.runtime.counters import calls_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubeq_spark.memory.context import MemoryContext
    from tubeq_spark.memory.verbs import Verbs

__all__ = ["measure"]


def measure(queue: MemoryContext, tubes: Iterable[Verbs], ending_us: int | None) -> QueueMetrics:
    """Measure these tubes; leases that end within so many microseconds count as ending."""
    found = {verbs.tube.name: _measure(verbs, ending_us) for verbs in tubes}
    return QueueMetrics(queue.clock.now(), found, 0)


def _measure(verbs: Verbs, ending_us: int | None) -> TubeMetrics:
    now_us, states = verbs.queue.now_us(), verbs.counts()
    soon_us = LAST_US if ending_us is None else min(now_us + ending_us, LAST_US)
    ready = [row.created for row in verbs.in_state(TaskState.READY)]
    ends = [row.next_event for row in verbs.in_state(TaskState.TAKEN)]
    rows = verbs.tube.rows.values()
    unswept = [row for row in rows if row.seen_at(now_us, verbs.max_attempts) is not row]
    due = [row.expires_at if TIMERS[row.state].event is None else row.next_event for row in unswept]
    return TubeMetrics(
        type=verbs.tube.type,
        ready=states[TaskState.READY.value],
        delayed=states[TaskState.DELAYED.value],
        taken=states[TaskState.TAKEN.value],
        buried=states[TaskState.BURIED.value],
        oldest_ready_age=_age(ready, now_us),
        leases_ending=sum(end is not None and end <= soon_us for end in ends),
        unswept=len(unswept),
        unswept_age=_age([moment for moment in due if moment is not None], now_us),
        conflicts=0,
        calls=calls_of(verbs.tube.id, [verbs.queue.place.counters.snapshot()]),
        commits=0,
        last_commit=None,
        log_commits=None,
        files=0,
        size_bytes=0,
    )


def _age(moments: list[int], now_us: int) -> float | None:
    return max(0, now_us - min(moments)) / US if moments else None
