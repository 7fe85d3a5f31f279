"""Statistics and metrics of a queue: tasks by state, ages, counts of calls, and the sessions. Reads only."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from tubeq_spark.clock import LAST_US, US, from_us, limited_us, of_us
from tubeq_spark.markup import fields, joined, table
from tubeq_spark.model.membership import MemberName
from tubeq_spark.model.reports import QueueMetrics, SessionInfo, TubeMetrics
from tubeq_spark.model.stored_task import EVENTS
from tubeq_spark.runtime.context import left_out
from tubeq_spark.runtime.events import TASKS, calls_of, ended_of, failing_of, tasks_of
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.tables.counts import counts, depth
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.markup import Html
    from tubeq_spark.model.membership import Member
    from tubeq_spark.runtime.context import QueueContext, TubeContext

#: The most tubes that a notebook shows.
_SHOWN = 100


class TubeCounts(dict[str, Any]):
    """The counts of one tube: `{"tasks": {…}, "calls": {…}}`, which a notebook shows as tables."""

    def _repr_html_(self) -> str:
        return joined(fields(name, counts.items()) for name, counts in self.items())


class QueueCounts(dict[str, TubeCounts]):
    """The counts of tubes by their names, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return tube_table(self, _SHOWN)


def tube_table(found: Mapping[str, TubeCounts], limit: int) -> Html:
    """A row for each tube: its tasks, and the calls of verbs that were called at all."""
    verbs = [verb for verb in EVENTS if any(of["calls"][verb] for of in found.values())]
    rows = [
        [name, *[of["tasks"][state] for state in TASKS], *[of["calls"][verb] for verb in verbs]]
        for name, of in found.items()
    ]
    return table(["tube", *TASKS, *[f"{verb} calls" for verb in verbs]], rows, limit=limit)


def written_calls(queue: QueueContext) -> list[Mapping[str, int]]:
    """The counters of all members: stored ones of others, current ones of this member."""
    others = queue.sessions.calls(queue.session.member, queue.now_us())
    return [*others, queue.counters.snapshot()]


@dataclass(frozen=True, slots=True)
class TubeStatistics:
    """The statistics of one tube.

    Attributes:
        ctx: The tube.
        tasks: The number of tasks by effective state, in total, and done.
        calls: The counts of the verbs.
    """

    ctx: TubeContext
    tasks: Mapping[str, int]
    calls: Mapping[str, int]

    def as_dict(self) -> TubeCounts:
        """The result of `Queue.statistics` for this tube."""
        return TubeCounts(tasks=dict(self.tasks), calls=dict(self.calls))


def statistics_of(queue: QueueContext, tubes: Sequence[TubeContext]) -> list[TubeStatistics]:
    """The statistics of tubes: one read of all of them, and one of the counters."""
    counted, written = _counted(queue, tubes), written_calls(queue)
    found = []
    for ctx in tubes:
        if ctx.record.id in counted:
            with nullcontext() if len(tubes) < 2 else left_out(queue, ctx.record.name):
                tasks = tasks_of(counted[ctx.record.id], _ended(ctx, written))
                calls = calls_of(ctx.record.id, written)
                found.append(TubeStatistics(ctx, tasks, calls))
    return found


def _counted(queue: QueueContext, tubes: Sequence[TubeContext]) -> dict[int, dict[str, int]]:
    """The tasks of tubes by state; with several tubes, unreadable ones are left out."""
    tables, now_us = [ctx.table for ctx in tubes], queue.now_us()
    over = queue.lapsed.owners(now_us)
    try:
        return counts(queue.engine, tables, now_us, over)
    except Exception:
        if len(tubes) < 2:
            raise
    found: dict[int, dict[str, int]] = {}
    for ctx in tubes:
        with left_out(queue, ctx.record.name):
            found |= counts(queue.engine, [ctx.table], now_us, over)
    return found


def _ended(ctx: TubeContext, written: list[Mapping[str, int]]) -> int:
    """The number of ended tasks: those in the log of a native table, and those that sessions have counted."""
    number = ctx.record.id
    return ctx.queue.engine.tables.ended(ctx.table.name, number) + ended_of(number, written)


def as_table(found: Iterable[TubeStatistics]) -> pa.Table:
    """The rows of `Queue.statistics_df`. No state has the name of a verb."""
    rows = [
        {"name": of.ctx.record.name, "type": of.ctx.record.type, **of.tasks, **of.calls}
        for of in found
    ]
    kinds = {"name": pa.string(), "type": pa.string()}
    kinds |= dict.fromkeys((*TASKS, *EVENTS), pa.int64())
    columns = [array([row[name] for row in rows], kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(columns, names=[*kinds])


def measure(
    queue: QueueContext, contexts: Iterable[TubeContext], ending_us: int | None
) -> QueueMetrics:
    """Measure these tubes. A tube that cannot be read is left out.

    Args:
        queue: The queue object.
        contexts: The tubes.
        ending_us: Leases that end within this many microseconds count as ending; `None` is all leases.
    """
    calls = written_calls(queue)
    found = {}
    for ctx in contexts:
        with left_out(queue, ctx.record.name):
            found[ctx.record.name] = measure_tube(ctx, calls, ending_us)
    tubes = dict(sorted(found.items()))
    return QueueMetrics(queue.clock.now(), tubes, queue.loop.conflicts())


def measure_tube(
    ctx: TubeContext, calls: list[Mapping[str, int]], ending_us: int | None
) -> TubeMetrics:
    """Measure one tube: an aggregate over its tasks, its table's detail, its log."""
    now_us = ctx.queue.now_us()
    soon_us = LAST_US if ending_us is None else min(now_us + ending_us, LAST_US)
    over = ctx.queue.lapsed.owners(now_us)
    tasks = depth(ctx.queue.engine, ctx.table, now_us, soon_us, over)
    table = ctx.queue.engine.tables.extent(ctx.table.name)
    return TubeMetrics(
        type=ctx.record.type,
        ready=tasks.states.get(TaskState.READY.value, 0),
        delayed=tasks.states.get(TaskState.DELAYED.value, 0),
        taken=tasks.states.get(TaskState.TAKEN.value, 0),
        buried=tasks.states.get(TaskState.BURIED.value, 0),
        oldest_ready_age=_age(tasks.oldest_ready_us, now_us),
        oldest_put_age=_age(tasks.oldest_put_us, now_us),
        leases_ending=tasks.leases_ending,
        unswept=tasks.unswept,
        unswept_age=_age(tasks.unswept_since_us, now_us),
        conflicts=ctx.queue.loop.conflicts(ctx.table_lock),
        calls=calls_of(ctx.record.id, calls),
        commits=table.version,
        last_commit=from_us(table.committed_us),
        log_commits=table.log_commits,
        files=table.files,
        size_bytes=table.size_bytes,
        paused=ctx.record.paused,
        failing_workers=failing_of(ctx.record.id, calls),
        done=_ended(ctx, calls),
    )


def _age(since_us: int | None, now_us: int) -> float | None:
    # The clock of another host may be ahead of this one.
    return None if since_us is None else max(0, now_us - since_us) / US


# -- sessions -------------------------------------------------------------------------------------


def sessions_of(queue: QueueContext, tubes: Iterable[TubeContext]) -> list[SessionInfo]:
    """The queue objects whose leases have not ended, and those whose sessions hold tasks of these tubes.

    It reads the sessions once, and each tube once. A tube that cannot be read is left out.
    """
    now_us, skew_us = queue.now_us(), limited_us(queue.config.skew)
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for ctx in tubes:
        with left_out(queue, ctx.record.name):
            taken = ctx.table.is_in(TaskState.TAKEN, now_us)
            for owner, count in ctx.reader.counts("owner", taken, skips=()).items():
                held[owner][ctx.record.name] = count
    members = (member for view in queue.sessions.views().values() for member in view.members)
    found = [
        _info(member, tasks)
        for member in members
        if member.live
        if (tasks := held[f"{member.session}/{member.epoch}"]) or member.alive(now_us, skew_us)
    ]
    return sorted(found, key=lambda info: (info.since, str(info.uuid), info.member))


def _info(member: Member, tasks: Mapping[str, int]) -> SessionInfo:
    name = MemberName.parse(member.member)
    return SessionInfo(
        UUID(member.session),
        name.uuid,
        name.host,
        name.pid,
        of_us(name.since_us),
        from_us(member.lease_until),
        sum(tasks.values()),
        dict(sorted(tasks.items())),
    )
