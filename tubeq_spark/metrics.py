"""What a queue looks like from outside: depth, ages, leases, conflicts, files. Reads only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.context import left_out
from tubeq_spark.counters import calls_of
from tubeq_spark.moments import LAST_US, US, from_us
from tubeq_spark.statistics import written_calls
from tubeq_spark.storage.measures import depth, extent
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from tubeq_spark.context import QueueContext, TubeContext

__all__ = ["QueueMetrics", "TubeMetrics", "measure", "measure_tube"]


@dataclass(frozen=True, slots=True)
class TubeMetrics:
    """One tube at a moment; ages are seconds.

    Attributes:
        type: Name of its driver.
        ready: Tasks that may be taken; this and the next three by effective state.
        delayed: Tasks that wait for their delay to end.
        taken: Tasks in a lease that lasts.
        buried: Tasks that wait for a kick.
        oldest_ready_age: Since the oldest ready task was put; `None` when none is ready.
        leases_ending: Leases of taken tasks that end within the time asked for.
        unswept: Tasks that time has changed and no sweep has written down.
        unswept_age: Since the first of these changed; `None` when there is none.
        conflicts: How often this queue object began anew at this tube because another committed
            first.
        calls: Tasks by verb, all queue objects together, as in `Queue.statistics`.
        commits: Commits to the tube's table since it was created.
        last_commit: When the newest one was made, by the storage's clock.
        log_commits: Commits since the last checkpoint of its log, 10 or so; `None` where the
            catalog does not show the log.
        files: Data files.
        size_bytes: Their bytes.
    """

    type: str
    ready: int
    delayed: int
    taken: int
    buried: int
    oldest_ready_age: float | None
    leases_ending: int
    unswept: int
    unswept_age: float | None
    conflicts: int
    calls: Mapping[str, int] = field(hash=False)
    commits: int
    last_commit: dt.datetime | None
    log_commits: int | None
    files: int
    size_bytes: int

    @property
    def total(self) -> int:
        """All tasks."""
        return self.ready + self.delayed + self.taken + self.buried


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """A queue at a moment.

    Attributes:
        at: The moment, by the queue's clock (UTC).
        tubes: Its tubes by their names, sorted.
        conflicts: All conflicts that this queue object has met, at system tables too.
    """

    at: dt.datetime
    tubes: dict[str, TubeMetrics] = field(hash=False)
    conflicts: int


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
    engine, now_us = ctx.queue.engine, ctx.queue.now_us()
    soon_us = LAST_US if ending_us is None else min(now_us + ending_us, LAST_US)
    tasks = depth(engine, ctx.table, now_us, soon_us, ctx.max_attempts)
    table = extent(engine, ctx.table.name)
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
        conflicts=ctx.queue.loop.tally.at(ctx.lane),
        calls=calls_of(ctx.record.id, calls),
        commits=table.version,
        last_commit=from_us(table.committed_us),
        log_commits=table.log_commits,
        files=table.files,
        size_bytes=table.size_bytes,
    )


def _age(since_us: int | None, now_us: int) -> float | None:
    # Another host's clock may be ahead of ours.
    return None if since_us is None else max(0, now_us - since_us) / US
