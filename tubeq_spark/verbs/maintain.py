"""Compacts a tube's table, and empties it.

A compaction reads the segments, and one statement moves or removes their rows. If it is interrupted
before the statement, nothing has changed. No other verb depends on a compaction, and it gives up if another
commit comes first.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError, TubeBusyError, TubeqError
from tubeq_spark.model.changes import Every, Move, Remove
from tubeq_spark.model.ids import within
from tubeq_spark.runtime.context import HEAD, TINY_BYTES
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.rows import whole_segments
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.expire import end_due

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)

_MOST_SEGMENTS = 100_000


def truncate(ctx: TubeContext) -> None:
    """Delete all tasks of the first read, also those that other commits move meanwhile.

    A task that is put while this runs may be deleted, too, if a take moves it beside such a task. Ends of ttls are
    written first, so these tasks count as expired.
    """
    now_us = ctx.queue.now_us()
    while end_due(ctx, now_us).total():
        pass
    newest, keys = ctx.reader.newest_ids(), set[int]()
    if ctx.table.unique_for_us is not None:
        keys = _key_segments(ctx, now_us)
    more = bool(newest)
    while more:
        more = ctx.queue.loop.run(
            "truncate", ctx.table_lock, lambda: _truncation(ctx, ctx.table.is_older(newest), now_us)
        )
    if keys:
        # Keys of later puts are in other segments.
        ctx.queue.loop.run(
            "truncate",
            ctx.table_lock,
            lambda: _removal(ctx, sorted(keys & _key_segments(ctx, now_us)), now_us),
        )
    ctx.table_lock.wake_takes()


def _key_segments(ctx: TubeContext, now_us: int) -> set[int]:
    return {kept.segment for kept in ctx.reader.kept_keys(now_us)}


def _truncation(ctx: TubeContext, is_there: Expression, now_us: int) -> Plan[bool]:
    """Plan the removal of the segments with tasks of a condition; the result is whether there are some."""
    # A change feed would show the deletion of a lease segment as acks, so its rows become gone rows.
    has_feed = ctx.table.change_feed
    free = is_there & ~ctx.table.is_held(None) if has_feed else is_there
    segments = [*ctx.reader.counts("segment", free, limit=_MOST_SEGMENTS)]
    held = [*ctx.reader.counts("segment", is_there)] if has_feed and not segments else []
    if held:
        (gone,) = ctx.queue.session.segments(1)
        moves = ctx.writer.settle(whole_segments(held), [(Every(), Remove(gone))])
        return Plan(replace(moves, ended=None), lambda _: True, now_us)
    if not segments:
        return Plan(None, lambda _: False)
    return Plan(ctx.writer.delete_segments(segments), lambda _: True, now_us)


def drain(ctx: TubeContext, *, with_taken: bool = False) -> bool:
    """Delete all rows and leave a tombstone; without `with_taken` only if no task is taken.

    Returns:
        Whether this call has dropped the tube; False if it had a tombstone before.

    Raises:
        TubeBusyError: A task is taken, and its lease has not ended.
    """

    def attempt() -> Plan[bool]:
        now_us = ctx.queue.now_us()
        if ctx.reader.is_dropped():
            return Plan(None, lambda _: False)
        is_taken = ctx.table.is_in(TaskState.TAKEN, now_us)
        if not with_taken and ctx.reader.count(is_taken, skips=()):
            msg = f"tube {ctx.record.name!r} has taken tasks"
            raise TubeBusyError(msg)
        (gone,) = ctx.queue.session.segments(1)
        statement = ctx.writer.drain(now_us, gone, with_taken=with_taken)

        def finish(affected: Affected) -> bool:
            if not affected.inserted:
                raise Stale
            return True

        return Plan(statement, finish, now_us)

    return ctx.queue.loop.run("drop", ctx.table_lock, attempt)


#: A compaction merges at most this many bytes.
_MOST_BYTES = 16 << 20


def compact(ctx: TubeContext) -> int:
    """Move the rows of many tiny segments without taken tasks into one.

    Returns:
        The number of removed segments. At most one commit; it gives up if another commit comes first.
    """
    config = ctx.queue.config

    def attempt() -> Plan[int]:
        tiny = _tiny(ctx)[HEAD:]
        if len(tiny) <= config.fold_segments:
            return Plan(None, lambda _: 0)
        dest = ctx.queue.session.segments(1)[0]
        statement = ctx.writer.settle(whole_segments(tiny), [(Every(), Move(dest))])
        return Plan(statement, lambda _: len(tiny))

    return _fold(ctx, attempt)


def _fold(ctx: TubeContext, attempt: Callable[[], Plan[int]]) -> int:
    """Commit an attempt and return its result; 0 if another commit comes first."""
    try:
        return ctx.queue.loop.run("fold", ctx.table_lock, attempt, retries=False)
    except ConflictError:
        return 0


def _tiny(ctx: TubeContext) -> list[int]:
    """Segments that are worth merging, in the order of their tasks.

    Large payloads are not compacted: rewriting them costs more than a separate file.
    """
    config, tables = ctx.queue.config, ctx.queue.engine.tables
    few = ctx.reader.tiny_segments(config.fold_rows, config.segment_rows)
    sizes = tables.segment_bytes(ctx.table.name, few) if few else {}
    return within([(segment, sizes.get(segment, 0)) for segment in few], TINY_BYTES, _MOST_BYTES)


def fold_kept_keys(ctx: TubeContext) -> int:
    """Remove rows of keys whose `unique_for` is over, and compact tiny segments of such rows.

    A segment is rewritten when half of its rows are due. At most one commit; it gives up if another commit comes first.

    Returns:
        The number of removed rows.
    """
    if ctx.table.unique_for_us is None:
        return 0

    def attempt() -> Plan[int]:
        config, now_us = ctx.queue.config, ctx.queue.now_us()
        found = ctx.reader.kept_keys(now_us)
        segments = [each.segment for each in found if 2 * each.over >= each.rows]
        small = {each.segment for each in found if each.rows <= config.fold_rows}
        tiny = small.difference(segments)
        if len(tiny) > config.fold_segments:
            segments += sorted(tiny)
        if not segments:
            return Plan(None, lambda _: 0)
        dest = ctx.queue.session.segments(1)[0]
        statement = ctx.writer.fold_kept_keys(segments, dest, now_us)
        return Plan(statement, lambda affected: affected.deleted, now_us)

    return _fold(ctx, attempt)


def compact_crowded(ctx: TubeContext) -> None:
    """Compact a crowded tube after a verb that made a segment. A failure is left to a sweep."""
    try:
        compact(ctx)
        fold_kept_keys(ctx)
    except TubeqError:
        log.warning("tube %s was not compacted", ctx.record.name, exc_info=True)


def remove_gone(ctx: TubeContext) -> int:
    """Remove gone rows.

    Returns:
        The number of rows. At most one commit.
    """
    return ctx.queue.loop.run(
        "gone", ctx.table_lock, lambda: _removal(ctx, ctx.reader.gone_segments())
    )


def _removal(ctx: TubeContext, segments: Sequence[int], at_us: int | None = None) -> Plan[int]:
    """Plan the removal of whole segments; the result is the number of rows."""
    if not segments:
        return Plan(None, lambda _: 0)
    return Plan(ctx.writer.delete_segments(segments), lambda affected: affected.deleted, at_us)
