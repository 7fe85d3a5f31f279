"""Metrics of a queue: depth, ages, leases, conflicts, files. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.observe.statistics import written_calls
from tubeq_spark.rules.microseconds import LAST_US, US, from_us
from tubeq_spark.rules.reports import QueueMetrics, TubeMetrics
from tubeq_spark.runtime.context import left_out
from tubeq_spark.runtime.counters import calls_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.tables.task_counts import Depth

__all__ = ["measure", "measure_tube", "oldest_ready_age"]


def measure(
    queue: QueueContext, contexts: Iterable[TubeContext], ending_us: int | None
) -> QueueMetrics:
    """Measure these tubes; one that cannot be read is left out.

    Args:
        queue: The queue object.
        contexts: The tubes.
        ending_us: Leases that end within so many microseconds count as ending; `None`: all.
    """
    calls = written_calls(queue)
    found = {}
    for ctx in contexts:
        with left_out(queue, ctx.record.name):
            found[ctx.record.name] = measure_tube(ctx, calls, ending_us)
    tubes = dict(sorted(found.items()))
    return QueueMetrics(queue.clock.now(), tubes, queue.loop.tally.total())


def measure_tube(
    ctx: TubeContext, calls: list[Mapping[str, int]], ending_us: int | None
) -> TubeMetrics:
    """Measure one tube: an aggregate over its tasks, its table's detail, its log."""
    now_us = ctx.queue.now_us()
    soon_us = LAST_US if ending_us is None else min(now_us + ending_us, LAST_US)
    tasks = _depth(ctx, now_us, soon_us)
    table = ctx.queue.engine.tables.extent(ctx.table.name)
    return TubeMetrics(
        type=ctx.record.type,
        ready=tasks.states.get(TaskState.READY.value, 0),
        delayed=tasks.states.get(TaskState.DELAYED.value, 0),
        taken=tasks.states.get(TaskState.TAKEN.value, 0),
        buried=tasks.states.get(TaskState.BURIED.value, 0),
        oldest_ready_age=_age(tasks.oldest_ready_us, now_us),
        leases_ending=tasks.leases_ending,
        unswept=tasks.unswept,
        unswept_age=_age(tasks.unswept_since_us, now_us),
        conflicts=ctx.queue.loop.tally.at(ctx.table_lock),
        calls=calls_of(ctx.record.id, calls),
        commits=table.version,
        last_commit=from_us(table.committed_us),
        log_commits=table.log_commits,
        files=table.files,
        size_bytes=table.size_bytes,
    )


def oldest_ready_age(ctx: TubeContext) -> float | None:
    """Seconds since the oldest ready task was put; `None` when none is ready."""
    now_us = ctx.queue.now_us()
    return _age(_depth(ctx, now_us, now_us).oldest_ready_us, now_us)


def _depth(ctx: TubeContext, now_us: int, soon_us: int) -> Depth:
    over = ctx.queue.lapsed.owners(now_us)
    return ctx.reader.depth(now_us, soon_us, ctx.max_attempts, over)


def _age(since_us: int | None, now_us: int) -> float | None:
    # Another host's clock may be ahead of ours.
    return None if since_us is None else max(0, now_us - since_us) / US
