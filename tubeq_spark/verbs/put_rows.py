"""Puts counted rows, of a DataFrame or an Arrow table, in one commit: the steps that both share.

Steps: check that the tube still exists (only before an append, which does not read a tombstone),
reserve ids, one statement. If it is interrupted before the statement, only ids are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.rules.microseconds import US
from tubeq_spark.rules.segment_layout import Spread, rows_of, spread
from tubeq_spark.runtime.context import dropped
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.task import PutResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.rules.ids import Range
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.commit_loop import CommitLoop
    from tubeq_spark.storage.put_identity import PutIdentity
    from tubeq_spark.storage.statement import Affected, Source

__all__ = ["NOTHING", "Numbering", "put_rows"]

#: The result of a put that adds nothing.
NOTHING = PutResult(0, None, None)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ids and segments that the rows of a put get.

    Attributes:
        total: How many rows there are.
        numbers: Their ids, and one number more for each segment.
        layout: Which segment each goes to.
        now_us: The moment of the put.
    """

    total: int
    numbers: Range
    layout: Spread
    now_us: int

    @property
    def segments(self) -> list[int]:
        """The segments, in the order of the layout."""
        return [self.numbers.task_id(self.total + i) for i in range(self.layout.segments)]

    def result(self, inserted: int) -> PutResult:
        """The result of a put that has inserted some number of rows: all, or none."""
        if not inserted:
            return NOTHING
        return PutResult(inserted, self.numbers.task_id(0), self.numbers.task_id(self.total - 1))


def put_rows(
    ctx: TubeContext,
    buckets: Mapping[int, int],
    rows: Callable[[Numbering], Source],
    identity: PutIdentity | None,
    loop: CommitLoop,
    *,
    look: bool = True,
    payload_bytes: int = 0,
) -> PutResult | None:
    """Put checked and counted rows.

    Args:
        ctx: The tube.
        buckets: How many rows there are by the bucket of their sub-queue.
        rows: Makes the rows (columns of `INSERTED`).
        identity: What the put is known by.
        loop: Commits it.
        look: Whether to ask the registry for the tube first: an append does not see its drop.
        payload_bytes: How large the payloads are together; 0: nobody knows.

    Returns:
        What was put; `None` when the tube has no room for all of them.
    """
    total = sum(buckets.values())
    if not total:
        return NOTHING
    ctx.require_there(look=look)
    ctx.queue.session.start_beating()
    now_us, config = ctx.queue.now_us(), ctx.queue.config
    segment_rows = rows_of(config.segment_rows, total, payload_bytes)
    layout = spread(buckets, segment_rows, config.fold_rows)

    def attempt() -> Plan[PutResult | None]:
        numbers = ctx.queue.session.task_ids(total + layout.segments, ctx.table_lock.last_id)
        ctx.table_lock.last_id = numbers.task_id(total - 1)
        numbering = Numbering(total, numbers, layout, now_us)
        source = rows(numbering)
        if ctx.capacity is not None:
            return _admitted(ctx, source, numbering, identity)
        if identity is None and isinstance(source, pa.Table):
            return _inserted(ctx, source, numbering)
        statement = ctx.writer.append(source, total, identity)
        return Plan(statement, lambda affected: numbering.result(affected.inserted))

    result = loop.run("put", ctx.table_lock, attempt)
    if result is not None and result.count:
        ctx.count("put", result.count)
        ctx.table_lock.wake_takes()
    return result


def _inserted(ctx: TubeContext, rows: pa.Table, numbering: Numbering) -> Plan[PutResult | None]:
    """The put of rows that the driver holds: as one of single items, it sees a drop."""
    statement = ctx.writer.put(rows, numbering.total, numbering.segments)

    def finish(affected: Affected) -> PutResult:
        if not affected.inserted:
            raise dropped(ctx)
        return numbering.result(affected.inserted)

    return Plan(statement, finish)


def _admitted(
    ctx: TubeContext, rows: Source, numbering: Numbering, identity: PutIdentity | None
) -> Plan[PutResult | None]:
    """Put into a tube with a capacity: all rows, or none if it is too small for all."""
    now_us, count = ctx.queue.now_us(), numbering.total
    room = ctx.capacity_gate.look(now_us, identity)
    if room.dropped:
        raise dropped(ctx)
    if room.repeats(identity):
        return Plan(None, lambda _: NOTHING)
    if room.stored + count > (ctx.capacity or 0):
        return Plan(None, lambda _: None)
    forget_us = now_us - ctx.queue.config.key_days * 86_400 * US
    statement, beside = ctx.capacity_gate.put(
        rows,
        count,
        numbering.segments,
        room,
        now_us=now_us,
        identity=identity,
        forget_us=forget_us,
    )
    return Plan(statement, lambda affected: numbering.result(affected.inserted - beside))
