"""Reads a tube: one task, all tasks in a state, all as a DataFrame, its history; and explains why a task waits."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tubeq_spark.clock import of_us
from tubeq_spark.model import validation
from tubeq_spark.model.failures import kind_of
from tubeq_spark.model.stored_task import StoredTask, position_of, session_of
from tubeq_spark.runtime.context import TubeContext, translated
from tubeq_spark.storage.arrow.columns import table_of
from tubeq_spark.storage.expression import Expression, any_of, row
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.limits import read_limits, turns_before

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pyspark.sql import DataFrame

    from tubeq_spark.model.reports import UtubeCounts
    from tubeq_spark.storage.statement import Commit

T = TypeVar("T")

#: The most characters of an error in a sentence.
_SHOWN = 200
_NEXT = "is next: the next take gets it"
_AT_A_TIME = "taken, as many as may be at a time"

#: The number of rows that `tasks_by_state` holds at a time.
_PAGE = 10_000

#: The columns of `taken_utubes`.
_TAKEN_UTUBES = {
    "utube": pa.string(),
    "number": pa.int64(),
    "taken": pa.int64(),
    "last_begun": pa.timestamp("us", "UTC"),
}

#: The columns of `history`.
_HISTORY = pa.schema(
    {
        "version": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "operation": pa.string(),
        "session": pa.string(),
        "tasks": pa.int64(),
        "conflicts": pa.int32(),
        "statement": pa.string(),
    }
)
#: More commits than a log keeps. Delta refuses numbers near the largest INT.
_HISTORY_MOST = 1_000_000


def peek(ctx: TubeContext, task_id: int) -> Task:
    """One task in its effective state."""
    found = ctx.reader.by_ids([task_id])
    if not found:
        raise validation.no_task(task_id)
    row, now_us = found[0], ctx.queue.now_us()
    is_others = row.state is TaskState.TAKEN and row.owner != ctx.queue.session.owner
    over = ctx.queue.lapsed.owners(now_us) if is_others else ()
    (seen,) = ctx.seen([row], now_us, over)
    if seen is None:
        raise validation.no_task(task_id)
    return seen.task()


def utubes(ctx: TubeContext, limit: int | None) -> list[UtubeCounts]:
    """The numbers of tasks of each sub-queue, the one with the most tasks first. One query."""
    now_us = ctx.queue.now_us()
    over = ctx.queue.lapsed.owners(now_us)
    return ctx.reader.utubes(now_us, over, limit)


def taken_utubes(ctx: TubeContext) -> pa.Table:
    """The sub-queues that are taken, or whose last leases are remembered, in the order of their names. One query."""
    limits = read_limits(ctx, ctx.queue.now_us())
    seen, taken, begun = limits.seen, limits.seen.counts(), limits.seen.moments()
    utubes = sorted({*taken, *begun}, key=lambda name: (name is not None, name or ""))
    gates = seen.gates_of(utubes) if seen.numbers else []
    rows = [
        (
            utube,
            seen.numbers[gate],
            taken.get(utube, 0),
            max(begun[utube].moments, default=None) if utube in begun else None,
        )
        for utube, gate in zip(utubes, gates, strict=True)
    ]
    return table_of(rows, _TAKEN_UTUBES)


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
    return ctx.frames.everything(now_us, ctx.queue.lapsed.owners(now_us))


def commits(ctx: TubeContext, limit: int = _HISTORY_MOST) -> list[Commit]:
    """The newest commits to the tube's table, the newest first; by default all."""
    return ctx.queue.engine.tables.commits(ctx.table.name, min(limit, _HISTORY_MOST))


def history(ctx: TubeContext, limit: int) -> DataFrame:
    """The newest commits to the tube's table, with their notes."""
    spark = ctx.queue.require_spark()
    rows = [{"at": each.at_us, **asdict(each)} for each in commits(ctx, limit)]
    return spark.shown_rows(pa.Table.from_pylist(rows, _HISTORY))


def tasks_by_state(
    ctx: TubeContext, state: TaskState, page: int = _PAGE, where: str | None = None
) -> Iterator[Task]:
    """The tasks in a state at this moment, in order, and only those of a program's condition.

    `page` tasks are read at a time.
    """
    return _pages(ctx, state, ctx.queue.now_us(), page, ctx.table.fulfils(where, state))


def matching(
    ctx: TubeContext, where: str | None, states: Iterable[TaskState] = TaskState
) -> Expression:
    """Tasks in some states that fulfil a program's condition at this moment."""
    now_us = ctx.queue.now_us()
    over = ctx.queue.lapsed.owners(now_us)
    of_states = (ctx.table.is_in(s, now_us, over) & ctx.table.fulfils(where, s) for s in states)
    return any_of(*of_states)


def count_matching(
    ctx: TubeContext, where: str | None, states: Iterable[TaskState] = TaskState
) -> int:
    """The number of the tasks of `matching`."""
    return ctx.reader.count(matching(ctx, where, states), skips=())


def _told(ctx: TubeContext, read: Callable[[], T]) -> T:
    return ctx.queue.uninterrupted(lambda: translated(ctx, read))


def _pages(
    ctx: TubeContext, state: TaskState, now_us: int, size: int, condition: Expression
) -> Iterator[Task]:
    over = _told(ctx, lambda: ctx.queue.lapsed.owners(now_us))
    everything = ctx.table.is_in(state, now_us, over) & condition
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


# -- why a task is not handed out: the reasons are in the order in which a take would meet them ----------------


def why(ctx: TubeContext, task_id: int) -> str:
    """The sentence about a task. No commit.

    Raises:
        TaskNotFoundError: No task has this id.
    """
    found = ctx.reader.by_ids([task_id])
    if not found:
        raise validation.no_task(task_id)
    now_us = ctx.queue.now_us()
    over = ctx.queue.lapsed.owners(now_us)
    (row,) = ctx.seen(found, now_us, over)
    if row is None:
        ended = _moment(found[0].expires_at)
        reason = f"is not handed out any more: its time to live ended at {ended}"
    elif row.state is not TaskState.READY:
        reason = _by_state(row)
    elif ctx.record.moved_to is not None:
        reason = f"waits: its tube was moved to {ctx.record.moved_to}, so use the queue there"
    elif ctx.record.paused:
        reason = "waits: its tube is paused"
    else:
        reason = _while_ready(ctx, row, now_us, over)
    return f"Task {task_id} {reason}."


def _by_state(row: StoredTask) -> str:
    """The reason of a task that is not ready."""
    if row.state is TaskState.TAKEN:
        return f"is taken by session {session_of(row.owner)} {_until(row.next_event)}"
    if row.state is TaskState.DELAYED:
        return f"is delayed {_until(row.next_event)}"
    if row.state is TaskState.DONE:
        return "is done"
    error = "" if row.error is None else f"; it failed with: {_first_line(row.error)}"
    return f"is buried until somebody kicks it{error}"


def _while_ready(ctx: TubeContext, row: StoredTask, now_us: int, over: Collection[str]) -> str:
    """The reason of a ready task."""
    table, options = ctx.table, ctx.record.options
    is_taken = table.is_in(TaskState.TAKEN, now_us, over)
    if options.most_taken is not None:
        taken = ctx.reader.count(is_taken, skips=())
        if taken >= options.most_taken:
            tasks = "task of its tube is" if taken == 1 else "tasks of its tube are"
            return f"waits: {taken:,} {tasks} {_AT_A_TIME}"
    before = table.is_in(TaskState.READY, now_us, over) & table.up_to(position_of(row, table.order))
    # The task may have been deleted since it was read, so it is not counted.
    before &= ~table.has_id([row.task_id])
    if not ctx.tube_type.subqueues:
        return _behind(ctx.reader.count(before, skips=()), "")
    return _in_subqueue(ctx, row, now_us, is_taken, before)


def _in_subqueue(
    ctx: TubeContext, row: StoredTask, now_us: int, is_taken: Expression, before: Expression
) -> str:
    """The reason of a ready task in a tube with sub-queues."""
    options, utube = ctx.record.options, f"its sub-queue {row.utube!r}"
    taken = ctx.reader.counts("utube", is_taken, skips=())
    limits = read_limits(ctx, now_us)
    waiting = limits.waiting_for_rate
    if taken.get(row.utube, 0) >= options.parallel:
        if options.parallel > 1:
            return f"waits: {taken[row.utube]:,} tasks of {utube} are {_AT_A_TIME}"
        for first in ctx.reader.of(is_taken & ctx.table.is_of([row.utube]), limit=1, skips=()):
            lease = _until(first.next_event)
            return f"waits: {utube} is busy with task {first.task_id}, taken {lease}"
    if row.utube in waiting:
        return f"waits: {utube} is over its rate {_until(waiting[row.utube])}"
    ready = ctx.reader.counts("utube", before, skips=())
    if row.utube in ready:
        return _behind(ready[row.utube], f" of {utube}")
    busy = {name for name, count in taken.items() if count >= options.parallel}.union(waiting)
    if options.order == "fair":
        others = turns_before(ctx, limits, row.utube, busy)
    else:
        others = len(ready.keys() - busy - {row.utube})
    if not others:
        return _NEXT
    firsts = f"tasks of {others:,} other sub-queues come"
    if others == 1:
        firsts = "task of 1 other sub-queue comes"
    return f"waits: it is the first of {utube}, and the first {firsts} before it"


def _behind(tasks: int, of: str) -> str:
    """The reason of a task behind so many others."""
    if tasks < 1:
        return _NEXT
    come = f"task{of} comes" if tasks == 1 else f"tasks{of} come"
    return f"waits: {tasks:,} {come} before it"


def _first_line(error: str) -> str:
    """The first line of an error, without the rest of its message and its traceback."""
    line = next((line.strip() for line in error.splitlines() if line.strip()), "")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"


def _until(at_us: int | None) -> str:
    return "without an end" if at_us is None else f"until {_moment(at_us)}"


def _moment(at_us: int | None) -> str:
    return "an unknown time" if at_us is None else f"{of_us(at_us):%Y-%m-%d %H:%M:%S} UTC"
