"""Reading a tube as a whole, and emptying it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules import refusals
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.spark import predicates
from tubeq_spark.storage.spark.change_feed import removal
from tubeq_spark.storage.spark.commit_tags import read_history
from tubeq_spark.storage.spark.quoting import bigint, limited, string
from tubeq_spark.storage.spark.table_metrics import counts
from tubeq_spark.storage.spark.task_statements import Chosen
from tubeq_spark.storage.spark.tube_table import Cut
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.spark.engine import Affected, Merge
    from tubeq_spark.storage.spark.task_reads import SegmentSpan

__all__ = ["drain", "frame", "history", "peek", "tasks_by_state", "truncate"]

#: Rows that `tasks_by_state` holds at a time.
_PAGE = 10_000
_MOST_SEGMENTS = 100_000

#: More commits than a log keeps; Delta refuses numbers about as large as an INT's.
_HISTORY_MOST = 1_000_000


def peek(ctx: TubeContext, task_id: int) -> Task:
    """One task in its effective state."""
    found = ctx.tasks.by_ids([task_id])
    row = found[0].seen_at(ctx.queue.now_us(), ctx.max_attempts) if found else None
    if row is None:
        raise refusals.no_task(task_id)
    return row.task()


def frame(ctx: TubeContext, *, effective: bool) -> DataFrame:
    """The tube as a DataFrame."""
    now_us = ctx.queue.now_us() if effective else None
    return ctx.tasks.all_frame(now_us, ctx.max_attempts)


def history(ctx: TubeContext, limit: int) -> DataFrame:
    """The newest commits to the tube's table, by what they say of themselves."""
    most = min(limit, _HISTORY_MOST)
    found = ctx.tasks.engine.shown(f"DESCRIBE HISTORY {ctx.table.name} {limited(most)}")
    return read_history(found)


def tasks_by_state(ctx: TubeContext, state: TaskState) -> Iterator[Task]:
    """The tasks in a state at this moment, in order, a page at a time."""
    now_us = ctx.queue.now_us()
    return _pages(ctx, state, now_us)


def _pages(ctx: TubeContext, state: TaskState, now_us: int) -> Iterator[Task]:
    effective = predicates.effective_state(now_us, ctx.max_attempts)
    condition, after = f"{effective} = {string(state.value)}", "TRUE"
    while True:
        rows = ctx.tasks.read(f"{condition} AND {after}", ctx.table.in_order, _PAGE)
        for row in rows:
            seen = row.seen_at(now_us, ctx.max_attempts)
            if seen is not None:
                yield seen.task()
        if len(rows) < _PAGE:
            return
        last = Cut(rows[-1].pri, rows[-1].task_id)
        after = f"NOT ({ctx.table.up_to(last)})"


def truncate(ctx: TubeContext) -> None:
    """Delete all that was there at the first look, also what others move meanwhile."""
    newest: int | None = None
    while True:

        def attempt(bound: int | None = newest) -> Plan[tuple[bool, int | None]]:
            spans = ctx.tasks.segments_up_to(bound, _MOST_SEGMENTS)
            if not spans:
                return Plan(None, lambda _: (False, bound))
            last = max(span.last for span in spans) if bound is None else bound

            def finish(_affected: Affected) -> tuple[bool, int | None]:
                ctx.queue.holdings.forget([span.segment for span in spans])
                return True, last

            return Plan(_truncation(ctx, spans, last), finish)

        more, newest = ctx.queue.loop.run("truncate", ctx.lane, attempt)
        if not more:
            break
    ctx.lane.changed()


def _truncation(ctx: TubeContext, spans: list[SegmentSpan], bound: int) -> Merge:
    whole = [s for s in spans if s.last <= bound and not (s.in_claim and ctx.table.change_feed)]
    if whole:
        return ctx.statements.delete_segments([span.segment for span in whole])
    # Only segments that hold later tasks, too: a claim that was taken meanwhile. And with a change
    # feed claims, whose rows, deleted, would be acks.
    claims = [span.segment for span in spans if span.in_claim]
    gone, *fresh = ctx.queue.session.segments(1 + len(claims))
    older = f"t.task_id <= {bigint(bound)}"
    actions = [
        (f"{older} AND t.state = 't'", removal(ctx.table, gone, None)),
        (older, "DELETE"),
    ]
    rows = [Chosen(span.segment, None) for span in spans]
    return ctx.statements.settle(rows, actions, dict(zip(claims, fresh, strict=True)))


def drain(ctx: TubeContext) -> None:
    """Delete everything unless a task is taken.

    Raises:
        TubeBusyError: One is, in a lease that lasts.
    """

    def attempt() -> Plan[None]:
        now_us = ctx.queue.now_us()
        counted = counts(ctx.queue.engine, [(ctx.table, ctx.max_attempts)], now_us)
        if counted[ctx.record.id].get(TaskState.TAKEN.value):
            raise refusals.has_taken_tasks(ctx.record.name)
        return Plan(ctx.statements.drain(now_us), lambda _: None)

    ctx.queue.loop.run("drop", ctx.lane, attempt)
