"""put_arrow: an Arrow table becomes tasks in one commit, without Python code for each row.

Steps: check all columns and values, count the rows by sub-queue, then the steps of `put_rows`. Ids
follow the order of the rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.rules.ids import POSITION_BITS, SLOT_BITS
from tubeq_spark.rules.put_table import checked
from tubeq_spark.rules.segment_layout import BUCKETS, hash_of
from tubeq_spark.storage.arrow_arrays import array
from tubeq_spark.storage.rows import insert_schema
from tubeq_spark.verbs.put_rows import NOTHING, Numbering, put_rows

if TYPE_CHECKING:
    from tubeq_spark.rules.ids import Range
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.put_identity import PutIdentity
    from tubeq_spark.task import PutResult

__all__ = ["Buckets", "places", "put_arrow", "segments_of", "task_ids"]

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
    buckets = Buckets.from_column(put.utubes if driver.subqueues else None, put.size)

    def rows(numbering: Numbering) -> pa.Table:
        at = places(put.size)
        columns = put.columns(ctx.record.options, numbering.now_us)
        columns["task_id"] = task_ids(numbering.numbers, at)
        columns["segment"] = segments_of(numbering, buckets, at)
        schema = insert_schema(ctx.codec.arrow_type)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

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
