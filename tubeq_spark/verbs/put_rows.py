"""put_arrow, and the part of `put_df` and sinks that it shares: put the rows of a table, all of them or none.

`put_arrow` checks all columns and values, and counts the rows by sub-queue. The rest is `put.add`. Ids follow the
order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model.ids import BUCKETS, POSITION_BITS, SLOT_BITS, Numbering, Range, hash_of
from tubeq_spark.payloads.arrow_values import places, refuse_large
from tubeq_spark.payloads.put_table import PutTable, checked
from tubeq_spark.storage.arrow.columns import array, counted, repeated, taken, whole
from tubeq_spark.storage.rows import PutsSeen, insert_schema
from tubeq_spark.task import PutResult
from tubeq_spark.verbs.put import NewRows, add, with_kept_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import PutIdentity

_POSITION_MASK = (1 << POSITION_BITS) - 1
_NOTHING = PutResult(0, None, None)


@dataclass(frozen=True, slots=True)
class Added:
    """The outcome of a put of rows.

    Attributes:
        result: The result for the program.
        is_full: Whether it added nothing because the capacity is too small for all rows.
        is_repeated: Whether it added nothing because its identity was used before.
    """

    result: PutResult = _NOTHING
    is_full: bool = False
    is_repeated: bool = False

    @classmethod
    def of(cls, numbering: Numbering | None, count: int) -> Added:
        """The outcome of a put that has added this many rows."""
        if numbering is None or not count:
            return cls()
        ids = numbering.numbers.task_id
        return cls(PutResult(count, ids(0), ids(numbering.total - 1)))


def put_rows(
    ctx: TubeContext,
    choose: Callable[[PutsSeen | None], NewRows[Added] | None],
    identity: PutIdentity | None,
    *,
    has_keys: bool,
    appends: bool,
) -> Added:
    """Put checked and counted rows, all of them or none. Arguments as for `put.add`.

    An append does not see the drop of the tube, so this looks for its tombstone first.
    """

    def chosen(seen: PutsSeen | None, free: int | None) -> NewRows[Added] | None:
        if seen is not None and identity is not None and identity.repeats(seen.version):
            return _no_rows(Added(is_repeated=True))
        new = choose(seen)
        if new is not None and new.total:
            ctx.require_there(look=appends and seen is None)
            ctx.queue.session.start_beating()
        fits = new is None or free is None or new.total <= free
        return new if fits else _no_rows(Added(is_full=True))

    added = add(ctx, chosen, has_keys=has_keys, identity=identity, appends=appends)
    if added.result.count:
        ctx.events.count("put", added.result.count)
        ctx.table_lock.wake_takes()
    return added


def _no_rows(added: Added) -> NewRows[Added]:
    return NewRows({}, lambda _: pa.table({}), lambda *_: added, is_full=added.is_full)


def put_arrow(
    ctx: TubeContext, table: pa.Table, identity: PutIdentity | None, trace: str | None
) -> PutResult:
    """Check the rows of a table and put them, or none if the capacity is too small for all.

    The program may change its own table afterwards.

    Args:
        ctx: The tube.
        table: The rows.
        identity: The identity of the put, which makes a repetition add nothing.
        trace: The span that each task stores.

    Raises:
        InvalidOptionError: A column or a value is bad.
    """
    driver = ctx.tube_type
    given = checked(table, ctx.codec.payload, driver.put_options, driver.name)
    refuse_large(given.data, ctx.queue.config.largest_payload, lambda row: f"table row {row}")
    put, keys = given.copied(), given.options.get("unique")

    def choose(_: PutsSeen | None) -> NewRows[Added] | None:
        wanted = [] if keys is None else pc.unique(keys).drop_null().to_pylist()
        if not wanted:
            return _of_table(ctx, put, trace)
        used = ctx.put_gate.used(wanted, ctx.queue.now_us())
        return None if used is None else _of_table(ctx, put.with_new_keys(used), trace)

    has_keys, appends = keys is not None, identity is not None
    return put_rows(ctx, choose, identity, has_keys=has_keys, appends=appends).result


def _of_table(ctx: TubeContext, put: PutTable, trace: str | None) -> NewRows[Added]:
    """The new rows of a table."""
    size = len(put.data)
    buckets = buckets_of(put.options.get("utube") if ctx.tube_type.subqueues else None, size)

    def make(numbering: Numbering) -> pa.Table:
        at = places(size)
        columns = put.columns(ctx.record.options, numbering.now_us)
        columns["task_id"] = task_ids(numbering.numbers, at)
        columns["segment"] = segments_of(numbering, buckets, at)
        if trace is not None:
            columns["trace"] = repeated(trace, pa.string(), size)
        rows = whole(pa.table(columns), insert_schema(ctx.codec.arrow_type))
        return with_kept_keys(ctx, rows, numbering)

    return NewRows(counted(buckets), make, Added.of, put.data.nbytes)


def buckets_of(utubes: pa.ChunkedArray | None, size: int) -> pa.Array:
    """The bucket of each row's sub-queue, as `segments.hash_of` computes it, once for each sub-queue."""
    if utubes is None:
        return repeated(0, pa.int64(), size)
    encoded = pc.dictionary_encode(utubes.combine_chunks(), null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    buckets = [hash_of(utube) % BUCKETS for utube in encoded.dictionary.to_pylist()]
    return taken(array(buckets, pa.int64()), encoded.indices)


def task_ids(numbers: Range, at: Any) -> Any:
    """The ids of the rows at these positions, as `ids.task_id_of` computes them."""
    ticks = pc.add(at, numbers.first)
    high = pc.shift_left(pc.shift_right(ticks, POSITION_BITS), SLOT_BITS + POSITION_BITS)
    low = pc.bit_wise_and(ticks, _POSITION_MASK)
    return pc.bit_wise_or(high, pc.bit_wise_or(low, numbers.slot << POSITION_BITS))


def segments_of(numbering: Numbering, buckets: pa.Array, at: Any) -> Any:
    """The segments of the rows at these positions, as `Spread.segment` computes them."""
    layout = numbering.layout
    groups = [layout.groups.get(bucket % layout.buckets) for bucket in range(BUCKETS)]
    first, step = (
        array([group and getattr(group, name) for group in groups], pa.int64()).take(buckets)
        for name in ("first", "step")
    )
    segments = array(numbering.segments, pa.int64())
    return segments.take(pc.add(first, pc.divide(at, step)))
