"""Statistics: the number of tasks in each state, and the number of calls of each verb."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.markup import fields, joined, table
from tubeq_spark.rules.lifecycle import EVENTS
from tubeq_spark.runtime.context import left_out
from tubeq_spark.runtime.counters import TASKS, calls_of, tasks_of
from tubeq_spark.storage.arrow_arrays import array
from tubeq_spark.storage.tables.task_counts import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.markup import Html
    from tubeq_spark.runtime.context import QueueContext, TubeContext

__all__ = [
    "QueueCounts",
    "TubeCounts",
    "TubeStatistics",
    "as_table",
    "statistics_of",
    "tube_table",
    "written_calls",
]

#: A name that is both a state and a verb does not exist.
_COLUMNS = ("name", "type", *TASKS, *EVENTS)
#: Tubes that a notebook shows.
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
    others = queue.sessions.calls(queue.session.member)
    return [*others, queue.counters.snapshot()]


@dataclass(frozen=True, slots=True)
class TubeStatistics:
    """The statistics of one tube.

    Attributes:
        ctx: The tube.
        tasks: How many by effective state, all together, and how many are done.
        calls: How often the verbs were called.
        written: The counters that these were made of, of all tubes and verbs.
    """

    ctx: TubeContext
    tasks: Mapping[str, int]
    calls: Mapping[str, int]
    written: list[Mapping[str, int]]

    def as_dict(self) -> TubeCounts:
        """What `Queue.statistics` says of it."""
        return TubeCounts(tasks=dict(self.tasks), calls=dict(self.calls))


def statistics_of(queue: QueueContext, tubes: Sequence[TubeContext]) -> list[TubeStatistics]:
    """The statistics of tubes: one read of all of them, and one of the counters."""
    counted, written = _counted(queue, tubes), written_calls(queue)
    found = []
    for ctx in tubes:
        if ctx.record.id in counted:
            with nullcontext() if len(tubes) < 2 else left_out(queue, ctx.record.name):
                found.append(_of_tube(ctx, counted[ctx.record.id], written))
    return found


def _counted(queue: QueueContext, tubes: Sequence[TubeContext]) -> dict[int, dict[str, int]]:
    """The tasks of tubes by state; with several tubes, unreadable ones are left out."""
    tables, now_us = [(ctx.table, ctx.max_attempts) for ctx in tubes], queue.now_us()
    over = queue.lapsed.owners(now_us)
    try:
        return counts(queue.engine, tables, now_us, over)
    except Exception:
        if len(tubes) < 2:
            raise
    found: dict[int, dict[str, int]] = {}
    for ctx, counted in zip(tubes, tables, strict=True):
        with left_out(queue, ctx.record.name):
            found |= counts(queue.engine, [counted], now_us, over)
    return found


def _of_tube(
    ctx: TubeContext, states: Mapping[str, int], written: list[Mapping[str, int]]
) -> TubeStatistics:
    number = ctx.record.id
    tasks = tasks_of(number, states, written, ctx.ended.count())
    return TubeStatistics(ctx, tasks, calls_of(number, written), written)


def as_table(found: Iterable[TubeStatistics]) -> pa.Table:
    """The rows of `Queue.statistics_df`."""
    rows = [
        (
            of.ctx.record.name,
            of.ctx.record.type,
            *(of.tasks[name] for name in TASKS),
            *(of.calls[event] for event in EVENTS),
        )
        for of in found
    ]
    kinds = [pa.string(), pa.string()] + [pa.int64()] * (len(_COLUMNS) - 2)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
    arrays = [array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(_COLUMNS))
