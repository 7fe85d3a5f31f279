"""put, put_many and put_arrow: insert new tasks, into segments that no other put uses.

put: reserve ids (a commit only when the range of the slot is used up), one insert-only MERGE. If
it is interrupted before the MERGE, only ids are lost; after it, the tasks are stored. On the native
engine a put sometimes compacts tiny segments, by a separate commit after it. Other commits do not
affect a put, because only it uses the numbers of its segments. In a tube with a capacity it first
reads the number of stored tasks, and starts again if another put commits in between. If the tube is full, a
separate commit first removes tasks whose ttl has ended.

With keys (`unique`) a put first reads the gate of puts, then the tasks that have these keys. It starts
again if another put of keys commits in between. If the ttl of a task with one of the keys has ended, a separate
commit first removes the task.

put_arrow: check all columns and values, count the rows by sub-queue, then the steps of `put_rows`. Ids
follow the order of the rows.

put_rows, for put_df and put_arrow: check that the tube still exists (only before an append, which does not read
the tombstone), reserve ids, one statement. If it is interrupted before the statement, only ids are lost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model import arguments
from tubeq_spark.model.ids import (
    BUCKETS,
    POSITION_BITS,
    SLOT_BITS,
    Spread,
    hash_of,
    rows_of,
    spread,
)
from tubeq_spark.model.stored_task import new_row
from tubeq_spark.model.times import US
from tubeq_spark.payloads.arrow_values import places
from tubeq_spark.payloads.put_table import checked
from tubeq_spark.payloads.sizes import refuse_large
from tubeq_spark.runtime.context import dropped
from tubeq_spark.storage.arrow.columns import array, empty, repeated, whole
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.rows import insert_schema, insert_table, with_key_rows
from tubeq_spark.storage.statement import WrittenRows
from tubeq_spark.task import PutResult
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.maintain import compact_at_times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tubeq_spark.model.arguments import PutCall, PutRequest
    from tubeq_spark.model.ids import Range
    from tubeq_spark.model.options import NewTask
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.payloads.put_table import PutTable
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.group_commit import GroupCommit
    from tubeq_spark.storage.commit_loop import CommitLoop
    from tubeq_spark.storage.rows import PutsSeen
    from tubeq_spark.storage.statement import Affected, PutIdentity, Source, Statement
    from tubeq_spark.task import Task

T = TypeVar("T")
#: Most bytes of a character in UTF-8.
_UTF8_MOST = 4


def prepare(ctx: TubeContext, call: PutCall) -> PutRequest:
    """Check all items of a call before anything is written.

    Raises:
        InvalidOptionError: An item is bad.
    """
    now_us = ctx.queue.now_us()
    request = arguments.prepare(call, ctx.driver, ctx.record.options, ctx.codec.encode, now_us)
    require_small(ctx, request.data)
    return request


def require_small(ctx: TubeContext, data: list[Any]) -> None:
    """Refuse payloads that are too large.

    Raises:
        InvalidOptionError: A payload is larger than the settings allow.
    """
    most, kind = ctx.queue.config.largest_payload, ctx.codec.arrow_type
    # This bound on the size of each text in UTF-8 spares most puts the encoding.
    if kind is None and _UTF8_MOST * max(map(len, data), default=0) <= most:
        return
    column = pa.chunked_array([array(data, kind or pa.string())])
    refuse_large(column, most, lambda place: "data" if len(data) == 1 else f"items[{place}]")


def put_many(
    ctx: TubeContext, group: GroupCommit[PutRequest, list[Task]], request: PutRequest
) -> list[Task]:
    """Put the items of one call; it may share its commit with other threads' calls.

    Returns:
        The tasks; none if the tube is full.
    """
    if not request.news:
        return []
    ctx.queue.session.start_beating()
    return group.submit(request)


def put_group(ctx: TubeContext, requests: list[PutRequest]) -> list[list[Task] | Exception]:
    """Commit the items of several calls at once, except calls without free capacity."""
    stored = run_freeing(
        ctx, lambda: ctx.queue.loop.run("put", ctx.table_lock, lambda: plan(ctx, requests))
    )
    tasks: list[list[Task] | Exception] = [_told(ctx, rows) for rows in stored]
    if any(row.is_new for rows in stored for row in rows):
        ctx.table_lock.wake_takes()
        compact_at_times(ctx)
    return tasks


@dataclass(frozen=True, slots=True)
class PutRow:
    """The task of one item of a put, and whether this item has added it."""

    row: StoredTask
    is_new: bool = True


def _told(ctx: TubeContext, rows: list[PutRow]) -> list[Task]:
    """Count the tasks that a call has added; return the tasks of all its items."""
    added = iter(ctx.record_event("put", [each.row for each in rows if each.is_new]))
    return [next(added) if each.is_new else each.row.task() for each in rows]


def plan(ctx: TubeContext, requests: list[PutRequest]) -> Plan[list[list[PutRow]] | None]:
    """Plan one attempt to put the items of several calls. The result of a call without free capacity is empty.

    The result is `None` if stored tasks whose ttl has ended have some of the keys, or fill the capacity.
    """
    now_us = ctx.queue.now_us()
    wanted = {new.unique for r in requests for new in r.news if new.unique is not None}
    seen = _read_gate(ctx, now_us, with_keys=bool(wanted))
    there = _holders(ctx, wanted, now_us)
    if there is None:
        return Plan(None, lambda _: None)
    admitted = _admitted(requests, _free(ctx, seen), there)
    if seen is not None and seen.ended and not all(each.fits for each in admitted):
        return Plan(None, lambda _: None)
    news = [each.request.news[place] for each in admitted for place in each.chosen]
    data = [each.request.data[place] for each in admitted for place in each.chosen]
    if not news:
        return Plan(None, lambda _: [request.rows([], there) for request in admitted])
    places, segments = _places(ctx, news, data)
    rows = insert_table(places, news, data, insert_schema(ctx.codec.arrow_type))
    key_segment = key_segment_of(ctx)
    if key_segment is not None and wanted:
        segments.append(key_segment)
        rows = with_key_rows(rows, key_segment, now_us + (ctx.table.unique_for_us or 0))
    statement = _statement(ctx, rows, len(news), segments, now_us, seen)

    def finish(affected: Affected) -> list[list[PutRow]]:
        if not affected.inserted:
            raise dropped(ctx)
        stored = map(new_row, places, news, data)
        new_by_key: dict[str, StoredTask] = {}
        found: list[list[PutRow]] = []
        for request in admitted:
            new = list(itertools.islice(stored, len(request.chosen)))
            new_by_key |= {row.unique: row for row in new if row.unique is not None}
            found.append(request.rows(new, there | new_by_key))
        return found

    return Plan(statement, finish)


def _read_gate(
    ctx: TubeContext, now_us: int, *, with_keys: bool, identity: PutIdentity | None = None
) -> PutsSeen | None:
    """Read the gate of puts, before anything that a put rests on; `None` if the put rests on nothing. No commit."""
    has_capacity = ctx.capacity is not None
    if not has_capacity and not with_keys:
        return None
    seen = ctx.put_gate.read(now_us, identity, counts=has_capacity)
    if seen.dropped:
        raise dropped(ctx)
    return seen


def _free(ctx: TubeContext, seen: PutsSeen | None) -> int | None:
    """The number of tasks for which the capacity is enough; `None` if the tube has none."""
    return None if seen is None or ctx.capacity is None else ctx.capacity - seen.stored


def _statement(
    ctx: TubeContext,
    rows: Source,
    size: int,
    segments: Sequence[int],
    now_us: int,
    seen: PutsSeen | None,
    identity: PutIdentity | None = None,
) -> Statement:
    """The statement of a put."""
    if seen is None:
        return ctx.writer.put(rows, size, segments)
    forget_us = now_us - ctx.queue.config.key_days * 86_400 * US
    return ctx.put_gate.put(
        rows, size, segments, seen, now_us=now_us, identity=identity, forget_us=forget_us
    )


def key_segment_of(ctx: TubeContext) -> int | None:
    """A fresh segment for the rows of keys that stay in use by `unique_for`; `None` in a tube without it."""
    return None if ctx.table.unique_for_us is None else ctx.queue.session.segments(1)[0]


def _holders(ctx: TubeContext, keys: Collection[str], now_us: int) -> dict[str, StoredTask] | None:
    """The tasks that have some keys, or had them within `unique_for`; `None` if a stored one has ended."""
    there: dict[str, StoredTask] = {}
    for seen in ctx.seen(ctx.unique_keys.find(keys), now_us):
        if seen is None:
            return None
        if seen.unique is not None:
            there[seen.unique] = seen
    for row in ctx.unique_keys.kept(set(keys).difference(there), now_us):
        there.setdefault(row.unique or "", row)
    return there


def run_freeing(ctx: TubeContext, attempt: Callable[[], T | None]) -> T:
    """Run a put. If ended tasks have its keys, or fill the capacity, first remove them, and run it again.

    A take or a touch that began before the end of a task may still commit. It conflicts with the commit that
    removes the task. So an old and a new task never have the same key, and the capacity is never exceeded.

    Args:
        ctx: The tube.
        attempt: Runs the put; returns `None` if ended tasks must be removed first.
    """
    while True:
        done = attempt()
        if done is not None:
            return done
        while end_due(ctx, ctx.queue.now_us()).total:
            pass


def _places(
    ctx: TubeContext, news: list[NewTask], data: list[Any]
) -> tuple[list[tuple[int, int]], list[int]]:
    """The segment and the id of each new task, and all segments."""
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


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The items of one call that become tasks.

    Attributes:
        request: The call.
        chosen: The positions of the items that become tasks: all items without a key, and the first item with
            each free key.
        fits: Whether the capacity is enough for them. If not, the call adds nothing, and returns no tasks.
    """

    request: PutRequest
    chosen: list[int]
    fits: bool = True

    def rows(self, new: list[StoredTask], by_key: Mapping[str, StoredTask]) -> list[PutRow]:
        """The tasks of all items.

        Args:
            new: The tasks of the chosen items.
            by_key: The task that has each key.
        """
        added = dict(zip(self.chosen, new, strict=True))
        items = enumerate(self.request.news) if self.fits else ()
        return [
            PutRow(added[place])
            if place in added
            else PutRow(by_key[item.unique or ""], is_new=False)
            for place, item in items
        ]


def _admitted(
    requests: list[PutRequest], room: int | None, there: Collection[str]
) -> list[_Admitted]:
    """Decide for each call, in their order, whether the capacity is enough for all of its new tasks."""
    admitted: list[_Admitted] = []
    known = set(there)
    for request in requests:
        keys, chosen = set(known), []
        for place, new in enumerate(request.news):
            if new.unique is None:
                chosen.append(place)
            elif new.unique not in keys:
                chosen.append(place)
                keys.add(new.unique)
        # Items whose keys stored tasks have need no capacity.
        if room is not None and len(chosen) > room:
            admitted.append(_Admitted(request, [], fits=False))
            continue
        known = keys
        room = None if room is None else room - len(chosen)
        admitted.append(_Admitted(request, chosen))
    return admitted


#: The result of a put that adds nothing.
NOTHING = PutResult(0, None, None)
#: The result of a put whose identity was used before. It equals `NOTHING`, but is another object.
REPEATED = replace(NOTHING)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ids and segments that the rows of a put get.

    Attributes:
        total: The number of rows.
        numbers: Their ids, and one more number for each segment.
        layout: Maps each row to its segment.
        now_us: The moment of the put.
        key_segment: The segment of the rows for keys; `None` if the put writes none.
    """

    total: int
    numbers: Range
    layout: Spread
    now_us: int
    key_segment: int | None = None

    @property
    def segments(self) -> list[int]:
        """The segments, in the order of the layout."""
        found = [self.numbers.task_id(self.total + i) for i in range(self.layout.segments)]
        return found if self.key_segment is None else [*found, self.key_segment]

    def result(self, inserted: int) -> PutResult:
        """The result of a put that has inserted this number of rows: all of them, or none."""
        if not inserted:
            return NOTHING
        return PutResult(inserted, self.numbers.task_id(0), self.numbers.task_id(self.total - 1))


@dataclass(frozen=True, slots=True)
class NewRows:
    """Checked and counted rows that become tasks.

    Attributes:
        buckets: The number of rows by the bucket of their sub-queue.
        rows: Makes the rows (columns of `TubeTable.inserted`).
        payload_bytes: The size of all payloads together; 0 if it is not known.
        numbering: The ids and segments of rows that are already written; `None` gives them new ones.
    """

    buckets: Mapping[int, int]
    rows: Callable[[Numbering], Source | WrittenRows]
    payload_bytes: int = 0
    numbering: Numbering | None = None

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.buckets.values())


def put_rows(
    ctx: TubeContext,
    choose: Callable[[PutsSeen | None], NewRows | None],
    identity: PutIdentity | None,
    loop: CommitLoop,
    *,
    with_keys: bool,
    appends: bool = False,
) -> PutResult | None:
    """Put checked and counted rows.

    Args:
        ctx: The tube.
        choose: Called for each attempt, with the gate of puts if they rest on it. Returns the rows; or `None`, if an
            ended task has one of the keys.
        identity: The identity of the put, which makes a repetition add nothing.
        loop: The commit loop of the engine that makes the commit.
        with_keys: Whether rows may have keys.
        appends: Whether rows without keys are appended, even if the driver holds them. An append does not see
            the drop of the tube, so this looks for its tombstone first.

    Returns:
        The result of the put; `None` if the capacity is too small for all rows.
    """
    # A put of no rows reserves no ids, and starts no heart.
    is_ready = False
    appends &= ctx.capacity is None and not with_keys

    def attempt() -> Plan[tuple[PutResult | None] | None]:
        nonlocal is_ready
        now_us = ctx.queue.now_us()
        seen = _read_gate(ctx, now_us, with_keys=with_keys, identity=identity)
        if seen is not None and identity is not None and identity.repeats(seen.version):
            return Plan(None, lambda _: (REPEATED,))
        new = choose(seen)
        if new is None:
            return Plan(None, lambda _: None)
        if not new.total:
            return Plan(None, lambda _: (NOTHING,))
        if not is_ready:
            ctx.require_there(look=appends)
            ctx.queue.session.start_beating()
            is_ready = True
        planned = _planned(ctx, new, identity, seen, now_us, appends=appends)
        if planned is None:
            return Plan(None, lambda _: None)
        return Plan(planned.statement, lambda affected: (planned.finish(affected),))

    (result,) = run_freeing(ctx, lambda: loop.run("put", ctx.table_lock, attempt))
    if result is not None and result.count:
        ctx.count("put", result.count)
        ctx.table_lock.wake_takes()
    return result


def _planned(
    ctx: TubeContext,
    new: NewRows,
    identity: PutIdentity | None,
    seen: PutsSeen | None,
    now_us: int,
    *,
    appends: bool,
) -> Plan[PutResult | None] | None:
    """Plan one attempt to put chosen rows; `None` if ended tasks that are still stored fill the capacity."""
    free = _free(ctx, seen)
    if seen is not None and free is not None and new.total > free:
        return None if seen.ended else Plan(None, lambda _: None)
    numbering = new.numbering or _numbered(ctx, new, now_us)
    source, written = _source(ctx, new, numbering)
    if appends:
        append = ctx.writer.append(source, new.total, identity)
        return Plan(
            replace(append, written=written), lambda affected: numbering.result(affected.inserted)
        )
    statement = _statement(ctx, source, new.total, numbering.segments, now_us, seen, identity)

    def finish(affected: Affected) -> PutResult:
        if not affected.inserted:
            raise dropped(ctx)
        return numbering.result(new.total)

    return Plan(replace(statement, written=written), finish)


def _numbered(ctx: TubeContext, new: NewRows, now_us: int) -> Numbering:
    """Reserve ids and segments for rows."""
    config, total = ctx.queue.config, new.total
    layout = spread(
        new.buckets, rows_of(config.segment_rows, total, new.payload_bytes), config.fold_rows
    )
    numbers = ctx.queue.session.task_ids(total + layout.segments, ctx.table_lock.last_id)
    ctx.table_lock.last_id = numbers.task_id(total - 1)
    return Numbering(total, numbers, layout, now_us, key_segment_of(ctx))


def _source(
    ctx: TubeContext, new: NewRows, numbering: Numbering
) -> tuple[Source, WrittenRows | None]:
    """The rows that a statement writes, and the rows that Spark has already written to files."""
    source = new.rows(numbering)
    if not isinstance(source, WrittenRows):
        return source, None
    return empty(insert_schema(ctx.codec.arrow_type)), source


_POSITION_MASK = (1 << POSITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket of each row's sub-queue, computed once for each sub-queue.

    Attributes:
        of_utubes: The bucket of each sub-queue of the rows.
        utubes: The index of each row's sub-queue in `of_utubes`; `None` if there is only one bucket.
        counts: The number of rows by bucket.
    """

    of_utubes: list[int]
    utubes: Any
    counts: Counter[int]

    @classmethod
    def from_column(cls, utubes: pa.ChunkedArray | None, size: int) -> Buckets:
        """The buckets of a column of sub-queues, as `segment_layout.hash_of` computes them."""
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


def checked_rows(ctx: TubeContext, table: pa.Table) -> PutTable:
    """Check the columns and the values of a table. The program may change its own table afterwards.

    Raises:
        InvalidOptionError: A column or a value is bad.
    """
    driver = ctx.driver
    put = checked(table, ctx.codec.payload, driver.put_options, driver.name)
    refuse_large(put.data, ctx.queue.config.largest_payload, lambda row: f"table row {row}")
    return put.copied()


def put_arrow(
    ctx: TubeContext, put: PutTable, identity: PutIdentity | None, trace: str | None
) -> PutResult:
    """Put checked rows, or none if the capacity is too small for all.

    Args:
        ctx: The tube.
        put: The rows.
        identity: The identity of the put, which makes a repetition add nothing.
        trace: The span that each task stores.
    """

    def choose(seen: PutsSeen | None) -> NewRows | None:
        del seen
        wanted = [] if put.unique is None else pc.unique(put.unique).drop_null().to_pylist()
        if not wanted:
            return _of_table(ctx, put, trace)
        now_us = ctx.queue.now_us()
        there = ctx.unique_keys.among(wanted, now_us, ctx.max_attempts)
        if there.column("state").null_count:
            return None
        used, kept = there.column("unique"), ctx.unique_keys.kept_among(wanted, now_us)
        if kept is not None:
            used = pa.chunked_array([*used.chunks, *kept.chunks], used.type)
        return _of_table(ctx, put.with_new_keys(used), trace)

    has_keys = put.unique is not None
    put_all = put_rows(
        ctx, choose, identity, ctx.queue.loop, with_keys=has_keys, appends=identity is not None
    )
    return put_all or NOTHING


def _of_table(ctx: TubeContext, put: PutTable, trace: str | None) -> NewRows:
    """The new rows of a table."""
    buckets = Buckets.from_column(put.utubes if ctx.driver.subqueues else None, put.size)

    def rows(numbering: Numbering) -> pa.Table:
        at = places(put.size)
        columns = put.columns(ctx.record.options, numbering.now_us)
        columns["task_id"] = task_ids(numbering.numbers, at)
        columns["segment"] = segments_of(numbering, buckets, at)
        if trace is not None:
            columns["trace"] = repeated(trace, pa.string(), put.size)
        found = whole(pa.table(columns), insert_schema(ctx.codec.arrow_type))
        if numbering.key_segment is None:
            return found
        until_us = numbering.now_us + (ctx.table.unique_for_us or 0)
        return with_key_rows(found, numbering.key_segment, until_us)

    return NewRows(buckets.counts, rows, put.data.nbytes)


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
