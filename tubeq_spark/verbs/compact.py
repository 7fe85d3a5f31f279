"""Keeps a tube's table small: merges tiny segments, removes leftovers of drops.

Steps: read the segments, one statement that moves or removes their rows. If it is interrupted
before the statement, nothing has changed. No other verb depends on it, and it gives up if another
commit comes first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError, TubeqError
from tubeq_spark.rules.row_changes import Every, Move
from tubeq_spark.rules.segment_layout import within
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.verbs.sum_ended import sum_ended

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected

__all__ = ["compact", "compact_at_times", "is_worth_compacting", "remove_leftovers"]

log = logging.getLogger(__name__)

#: Segments at the head of the queue that a compaction leaves to the takes.
_HEAD = 4
#: Number of versions between two checks whether to compact.
_EVERY = 16
#: A segment with more bytes is not tiny, and a compaction merges at most this many bytes.
_TINY_BYTES, _MOST_BYTES = 256 << 10, 16 << 20


def is_worth_compacting(ctx: TubeContext, tiny: int) -> bool:
    """Whether this number of tiny segments is too many."""
    return tiny - _HEAD > ctx.queue.config.fold_segments


def compact(ctx: TubeContext) -> int:
    """Move the rows of many tiny segments without taken tasks into one.

    Returns:
        How many segments went. At most one commit; a compaction that meets a rival gives up.
    """
    config = ctx.queue.config

    def attempt() -> Plan[int]:
        tiny = _tiny(ctx)[_HEAD:]
        if len(tiny) <= config.fold_segments:
            return Plan(None, lambda _: 0)
        dest = ctx.queue.session.segments(1)[0]
        statement = ctx.writer.settle_segments(tiny, (Every(), Move(dest)))

        def finish(_affected: Affected) -> int:
            return len(tiny)

        return Plan(statement, finish)

    try:
        return ctx.queue.loop_without_retry.run("fold", ctx.table_lock, attempt)
    except ConflictError:
        return 0


def _tiny(ctx: TubeContext) -> list[int]:
    """Segments that are worth merging, in the order of their tasks.

    Large payloads are not compacted: rewriting them costs more than a separate file.
    """
    config, tables = ctx.queue.config, ctx.queue.engine.tables
    few = ctx.segment_reader.tiny_segments(config.fold_rows, config.segment_rows)
    sizes = tables.segment_bytes(ctx.table.name, few) if few else {}
    return within([(segment, sizes.get(segment, 0)) for segment in few], _TINY_BYTES, _MOST_BYTES)


def compact_at_times(ctx: TubeContext) -> None:
    """Compact after a verb that made a segment, on engines that count small files cheaply.

    Whoever committed one version in so many looks. What fails here is left to a sweep.
    """
    tables, rows = ctx.queue.engine.tables, ctx.queue.config.fold_rows
    try:
        if is_worth_compacting(ctx, tables.small_files(ctx.table.name, rows, _TINY_BYTES, _EVERY)):
            compact(ctx)
    except TubeqError:
        log.warning("tube %s was not compacted", ctx.record.name, exc_info=True)


def remove_leftovers(ctx: TubeContext) -> int:
    """Remove rows of dropped tubes of this name, and gone rows.

    Returns:
        How many rows. At most one commit.
    """

    def attempt() -> Plan[int]:
        segments = ctx.segment_reader.leftover_segments()
        if not segments:
            return Plan(None, lambda _: 0)
        if ctx.table.change_feed:
            # Rows of ended tasks: notes have their segments, not their number.
            sum_ended(ctx)
        statement = ctx.writer.delete_segments(segments)
        return Plan(statement, lambda affected: affected.deleted)

    return ctx.queue.loop.run("leftovers", ctx.table_lock, attempt)
