"""Reads a tube: one task, all tasks in a state, all as a DataFrame, its history."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tubeq_spark.model import refusals
from tubeq_spark.model.failures import kind_of
from tubeq_spark.model.tube_types import position_of
from tubeq_spark.runtime.context import told
from tubeq_spark.storage.expression import row
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.limits import read_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from tubeq_spark.model.reports import UtubeCounts
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.task import Task

T = TypeVar("T")

#: The number of rows that `tasks_by_state` holds at a time.
_PAGE = 10_000

#: The columns of `taken_utubes`.
_TAKEN_UTUBES = pa.schema(
    {
        "utube": pa.string(),
        "number": pa.int64(),
        "taken": pa.int64(),
        "last_begun": pa.timestamp("us", "UTC"),
    }
)

#: More commits than a log keeps. Delta refuses numbers near the largest INT.
_HISTORY_MOST = 1_000_000


def peek(ctx: TubeContext, task_id: int) -> Task:
    """One task in its effective state."""
    found = ctx.reader.by_ids([task_id])
    if not found:
        raise refusals.no_task(task_id)
    row, now_us = found[0], ctx.queue.now_us()
    is_others = row.state is TaskState.TAKEN and row.owner != ctx.queue.session.owner
    over = ctx.queue.lapsed.owners(now_us) if is_others else ()
    (seen,) = ctx.seen([row], now_us, over)
    if seen is None:
        raise refusals.no_task(task_id)
    return seen.task()


def utubes(ctx: TubeContext, limit: int | None) -> list[UtubeCounts]:
    """The numbers of tasks of each sub-queue, the one with the most tasks first. One query."""
    now_us = ctx.queue.now_us()
    over = ctx.queue.lapsed.owners(now_us)
    return ctx.reader.utubes(now_us, over, limit)


def taken_utubes(ctx: TubeContext) -> pa.Table:
    """The sub-queues that are taken, or whose last leases are remembered, in the order of their names. One query."""
    limits = read_limits(ctx, ctx.queue.now_us())
    seen, taken = limits.seen, limits.seen.taken
    rows = []
    for utube in sorted({*taken, *seen.moments}, key=lambda name: (name is not None, name or "")):
        moments = seen.moments[utube].moments if utube in seen.moments else ()
        rows.append(
            {
                "utube": utube,
                "number": seen.numbers[seen.gate_of(utube)] if seen.numbers else 0,
                "taken": taken[utube].count if utube in taken else 0,
                "last_begun": moments[-1] if moments else None,
            }
        )
    return pa.Table.from_pylist(rows, _TAKEN_UTUBES)


def failures(ctx: TubeContext, texts: int) -> dict[str, int]:
    """The number of failed stored tasks by kind of error, the most frequent first. One query.

    Args:
        ctx: The tube.
        texts: The most different texts of errors that are read.
    """
    found = Counter[str]()
    failed = ctx.reader.counts("error", row().error.is_not_null(), limit=texts, skips=())
    for text, tasks in failed.items():
        found[kind_of(text)] += tasks
    return dict(found.most_common())


def frame(ctx: TubeContext, *, effective: bool) -> DataFrame:
    """The tube as a DataFrame."""
    if not effective:
        return ctx.frames.everything(None)
    now_us = ctx.queue.now_us()
    return ctx.frames.everything(now_us, ctx.max_attempts, ctx.queue.lapsed.owners(now_us))


def history(ctx: TubeContext, limit: int) -> DataFrame:
    """The newest commits to the tube's table, with their notes."""
    return ctx.frames.history(min(limit, _HISTORY_MOST))


def tasks_by_state(ctx: TubeContext, state: TaskState, page: int = _PAGE) -> Iterator[Task]:
    """The tasks in a state at this moment, in order. `page` tasks are read at a time."""
    now_us = ctx.queue.now_us()
    return _pages(ctx, state, now_us, page)


def _told(ctx: TubeContext, read: Callable[[], T]) -> T:
    return ctx.queue.uninterrupted(lambda: told(ctx, read))


def _pages(ctx: TubeContext, state: TaskState, now_us: int, size: int) -> Iterator[Task]:
    over = _told(ctx, lambda: ctx.queue.lapsed.owners(now_us))
    everything = ctx.table.is_in(state, now_us, over)
    where = everything
    while True:
        rows = _told(
            ctx,
            functools.partial(ctx.reader.of, where, order=ctx.table.order, limit=size, skips=()),
        )
        for found in rows:
            yield found.seen_as(state).task()
        if len(rows) < size:
            return
        last = position_of(rows[-1], ctx.table.order)
        where = everything & ~ctx.table.up_to(last)
