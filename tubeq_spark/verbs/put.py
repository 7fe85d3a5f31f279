"""put, put_many and put_arrow: insert new tasks, into segments that no other put uses.

put: reserve ids (a commit only when the range of the slot is used up), one insert-only MERGE. If
it is interrupted before the MERGE, only ids are lost; after it, the tasks are there. On the native
engine a put sometimes merges tiny segments, by a separate commit after it. Other commits do not
affect a put, because only it uses the numbers of its segments. In a tube with a capacity it first
reads the number of stored tasks, and starts again if another put commits in between.

put_arrow: check all columns and values, count the rows by sub-queue, then the steps of `put_rows`. Ids
follow the order of the rows.

put_rows, for put_df and put_arrow: check that the tube still exists (only before an append, which does not read a tombstone),
reserve ids, one statement. If it is interrupted before the statement, only ids are lost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model import arguments
from tubeq_spark.model.ids import POSITION_BITS, SLOT_BITS
from tubeq_spark.model.segments import BUCKETS, Spread, hash_of, rows_of, spread
from tubeq_spark.model.stored_task import new_row
from tubeq_spark.model.times import US
from tubeq_spark.model.tube_types import rank_of
from tubeq_spark.payloads.put_table import checked
from tubeq_spark.payloads.sizes import refuse_large
from tubeq_spark.runtime.context import dropped
from tubeq_spark.storage.arrow.arrays import array
from tubeq_spark.storage.arrow.columns import whole
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.rows import insert_schema, insert_table
from tubeq_spark.task import PutResult
from tubeq_spark.verbs.maintain import compact_at_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.model.arguments import PutCall, PutRequest
    from tubeq_spark.model.ids import Range
    from tubeq_spark.model.options import NewTask
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.group_commit import GroupCommit
    from tubeq_spark.storage.commit_loop import CommitLoop
    from tubeq_spark.storage.statement import Affected, PutIdentity, Source
    from tubeq_spark.task import Task

#: Most bytes of a character in UTF-8.
_UTF8_MOST = 4


def prepare(ctx: TubeContext, call: PutCall) -> PutRequest:
    """Check all items of a call before anything is written.

    Raises:
        InvalidOptionError: Any of them is bad.
    """
    now_us = ctx.queue.now_us()
    request = arguments.prepare(call, ctx.driver, ctx.record.options, ctx.codec.encode, now_us)
    require_small(ctx, request.data)
    return request


def require_small(ctx: TubeContext, data: list[Any]) -> None:
    """Refuse stored payloads some of which are too large.

    Raises:
        InvalidOptionError: One is larger than the settings allow.
    """
    most, kind = ctx.queue.config.largest_payload, ctx.codec.arrow_type
    # No character has more bytes, so that most texts need no second look.
    if kind is None and _UTF8_MOST * max(map(len, data), default=0) <= most:
        return
    column = pa.chunked_array([array(data, kind or pa.string())])
    refuse_large(column, most, lambda place: "data" if len(data) == 1 else f"items[{place}]")


def put_many(
    ctx: TubeContext, group: GroupCommit[PutRequest, list[Task]], request: PutRequest
) -> list[Task]:
    """Put the items of one call; it may share its commit with other threads' calls.

    Returns:
        The tasks; none when the tube is full.
    """
    if not request.news:
        return []
    ctx.queue.session.start_beating()
    return group.submit(request)


def put_group(ctx: TubeContext, requests: list[PutRequest]) -> list[list[Task] | Exception]:
    """Commit the items of several calls at once, except calls without free capacity."""
    stored = ctx.queue.loop.run("put", ctx.table_lock, lambda: plan(ctx, requests))
    tasks: list[list[Task] | Exception] = [ctx.record_event("put", rows) for rows in stored]
    if any(stored):
        ctx.table_lock.wake_takes()
        compact_at_times(ctx)
    return tasks


def plan(ctx: TubeContext, requests: list[PutRequest]) -> Plan[list[list[StoredTask]]]:
    """One attempt to put the items of several calls; the result of a refused call is empty."""
    now_us = ctx.queue.now_us()
    room = None if ctx.capacity is None else ctx.capacity_gate.look(now_us)
    if room is not None and room.dropped:
        raise dropped(ctx)
    admitted = _admitted(requests, None if room is None else (ctx.capacity or 0) - room.stored)
    news = _ranked(ctx, [new for request in admitted if request for new in request.news])
    data = [item for request in admitted if request for item in request.data]
    if not news:
        return Plan(None, lambda _: [[] for _ in requests])
    places, segments = _places(ctx, news, data)
    schema = insert_schema(ctx.codec.arrow_type, ctx.table.optional)
    rows = insert_table(places, news, data, schema)
    if room is None:
        statement = ctx.writer.put(rows, len(news), segments)
    else:
        statement, _ = ctx.capacity_gate.put(rows, len(news), segments, room, now_us=now_us)

    def finish(affected: Affected) -> list[list[StoredTask]]:
        if affected.inserted == 0:
            raise dropped(ctx)
        stored = map(new_row, places, news, data)
        return [list(itertools.islice(stored, len(r.news) if r else 0)) for r in admitted]

    return Plan(statement, finish)


def _ranked(ctx: TubeContext, news: list[NewTask]) -> list[NewTask]:
    """New tasks with their ranks, in a tube with aging."""
    aging_us = ctx.record.options.aging_us
    if aging_us is None:
        return news
    return [replace(new, rank=rank_of(new.created, new.pri, aging_us)) for new in news]


def _places(
    ctx: TubeContext, news: list[NewTask], data: list[Any]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Segment and id of each new task, and the segments."""
    buckets = [0] * len(news)
    if ctx.driver.subqueues:
        buckets = [hash_of(new.utube) % BUCKETS for new in news]
    config = ctx.queue.config
    size = sum(len(item) for item in data if isinstance(item, str))
    rows = rows_of(config.segment_rows, len(news), size)
    layout = spread(Counter(buckets), rows, config.fold_rows)
    numbers = ctx.queue.session.task_ids(len(news) + layout.segments, ctx.table_lock.last_id)
    ctx.table_lock.last_id = numbers.task_id(len(news) - 1)
    segments = [numbers.task_id(len(news) + i) for i in range(layout.segments)]
    return [
        (segments[layout.segment(place, bucket)], numbers.task_id(place))
        for place, bucket in enumerate(buckets)
    ], segments


def _admitted(requests: list[PutRequest], room: int | None) -> list[PutRequest | None]:
    """The calls for which the capacity is enough, each as a whole, in their order."""
    admitted: list[PutRequest | None] = []
    for request in requests:
        fits = room is None or len(request.news) <= room
        admitted.append(request if fits else None)
        if room is not None and fits:
            room -= len(request.news)
    return admitted


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
        rows: Makes the rows (columns of `TubeTable.inserted`).
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
            return _admitted_rows(ctx, source, numbering, identity)
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


def _admitted_rows(
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


_POSITION_MASK = (1 << POSITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket of each row's sub-queue, computed once for each sub-queue.

    Attributes:
        of_utubes: The bucket of each sub-queue that there is.
        utubes: Of each row the place of its sub-queue among these; `None`: there is but one.
        counts: Rows by bucket.
    """

    of_utubes: list[int]
    utubes: Any
    counts: Counter[int]

    @classmethod
    def from_column(cls, utubes: pa.ChunkedArray | None, size: int) -> Buckets:
        """The buckets of a column of sub-queues, as `segment_layout.hash_of` has them."""
        if utubes is None:
            return cls([0], None, Counter({0: size} if size else {}))
        encoded = pc.dictionary_encode(utubes.combine_chunks(), null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        of_utubes = [hash_of(utube) % BUCKETS for utube in encoded.dictionary.to_pylist()]
        counts: Counter[int] = Counter()
        for found in pc.value_counts(encoded.indices).to_pylist():
            counts[of_utubes[found["values"]]] += found["counts"]
        return cls(of_utubes, encoded.indices, counts)


def put_arrow(ctx: TubeContext, table: pa.Table, identity: PutIdentity | None) -> PutResult:
    """Put the rows of a table, or none if the capacity is too small for all.

    Raises:
        InvalidOptionError: A column or a value is bad.
    """
    driver = ctx.driver
    put = checked(table, ctx.codec.arrow_type, driver.put_options, driver.name)
    refuse_large(put.data, ctx.queue.config.largest_payload, lambda row: f"table row {row}")
    buckets = Buckets.from_column(put.utubes if driver.subqueues else None, put.size)

    def rows(numbering: Numbering) -> pa.Table:
        at = places(put.size)
        columns = put.columns(ctx.record.options, numbering.now_us)
        columns["task_id"] = task_ids(numbering.numbers, at)
        columns["segment"] = segments_of(numbering, buckets, at)
        return whole(pa.table(columns), insert_schema(ctx.codec.arrow_type, ctx.table.optional))

    appends = identity is not None and ctx.capacity is None
    loop, size = ctx.queue.loop, put.data.nbytes
    put_all = put_rows(ctx, buckets.counts, rows, identity, loop, look=appends, payload_bytes=size)
    return put_all or NOTHING


def places(size: int) -> Any:
    """The positions of the rows: 0, 1, 2, ..."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), size)), 1)


def task_ids(numbers: Range, at: Any) -> Any:
    """The ids of the rows at these positions, as `ids.task_id_of` computes them."""
    ticks = pc.add(at, numbers.first)
    high = pc.shift_left(pc.shift_right(ticks, POSITION_BITS), SLOT_BITS + POSITION_BITS)
    low = pc.bit_wise_and(ticks, _POSITION_MASK)
    return pc.bit_wise_or(high, pc.bit_wise_or(low, numbers.slot << POSITION_BITS))


def segments_of(numbering: Numbering, buckets: Buckets, at: Any) -> Any:
    """The segments of the rows at these positions, as `Spread.segment` computes them."""
    layout = numbering.layout
    groups = [layout.groups[bucket % layout.buckets] for bucket in buckets.of_utubes]
    firsts = array([group.first for group in groups], pa.int64())
    steps = array([group.step for group in groups], pa.int64())
    if buckets.utubes is None:
        first, step = firsts[0], steps[0]
    else:
        first, step = firsts.take(buckets.utubes), steps.take(buckets.utubes)
    segments = array(numbering.segments, pa.int64())
    return segments.take(pc.add(first, pc.divide(at, step)))
