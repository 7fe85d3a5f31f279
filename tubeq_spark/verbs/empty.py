"""Empties a tube: truncate, and the second step of a drop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.rules import refusals
from tubeq_spark.rules.row_changes import Older, Remove
from tubeq_spark.storage.chosen import SettleRow
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.expire import end_due

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.segment_facts import SegmentSpan
    from tubeq_spark.storage.statement import Affected, Statement

__all__ = ["drain", "truncate"]


_MOST_SEGMENTS = 100_000


def truncate(ctx: TubeContext) -> None:
    """Delete all tasks of the first read, also those that others move meanwhile.

    What time had ended by then is written down first, and counts as expired.
    """
    now_us = ctx.queue.now_us()
    while end_due(ctx, now_us).total:
        pass
    newest: int | None = None
    while True:

        def attempt(bound: int | None = newest) -> Plan[tuple[bool, int | None]]:
            spans = ctx.segment_reader.segments_up_to(bound, _MOST_SEGMENTS)
            if not spans:
                return Plan(None, lambda _: (False, bound))
            last = max(span.last for span in spans) if bound is None else bound

            def finish(_affected: Affected) -> tuple[bool, int | None]:
                ctx.queue.held_tasks.forget([span.segment for span in spans])
                return True, last

            return Plan(_truncation(ctx, spans, last), finish)

        more, newest = ctx.queue.loop.run("truncate", ctx.table_lock, attempt)
        if not more:
            break
    ctx.table_lock.wake_takes()


def _truncation(ctx: TubeContext, spans: list[SegmentSpan], bound: int) -> Statement:
    whole = [
        s for s in spans if s.last <= bound and not (s.in_lease_segment and ctx.table.change_feed)
    ]
    if whole:
        return ctx.writer.delete_segments([span.segment for span in whole])
    # Only segments that hold later tasks, too: what was taken meanwhile. And with a change feed all
    # lease segments: their rows, deleted, would be acks.
    lease_segments = [span.segment for span in spans if span.in_lease_segment]
    gone, *fresh = ctx.queue.session.segments(1 + len(lease_segments))
    changes = [(Older(bound, taken=True), Remove(gone)), (Older(bound), Remove())]
    rows = [SettleRow(span.segment, None) for span in spans]
    moves = dict(zip(lease_segments, fresh, strict=True))
    return replace(ctx.writer.settle(rows, changes, moves), ended=None)


def drain(ctx: TubeContext) -> None:
    """Delete everything unless a task is taken.

    Raises:
        TubeBusyError: One is, in a lease that lasts.
    """

    def attempt() -> Plan[None]:
        now_us = ctx.queue.now_us()
        if ctx.reader.counts(now_us, ctx.max_attempts).get(TaskState.TAKEN.value):
            raise refusals.has_taken_tasks(ctx.record.name)
        return Plan(ctx.writer.drain(now_us), lambda _: None)

    ctx.queue.loop.run("drop", ctx.table_lock, attempt)
