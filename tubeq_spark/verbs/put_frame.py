"""put_df: a DataFrame of any size becomes tasks in one commit, and is never collected.

Steps: one counting pass (rows and bad values of each partition), a look whether the tube is still
there, reserve ids, one append (with a key, or as a batch of a stream, under Delta's transaction
id). Ids follow the order of partitions; a DataFrame that yields other rows when written than when counted fails the put, so ids
never overlap. The append is blind to a drop that lands between the look and itself: its rows are
gone with the tube then, as if they had been put just before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.rules.microseconds import US
from tubeq_spark.rules.segment_layout import spread
from tubeq_spark.rules.validation import refuse
from tubeq_spark.runtime.context import dropped
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.spark.conflicts import raised_message
from tubeq_spark.storage.spark.frame_copy import read_alike
from tubeq_spark.task import PutResult
from tubeq_spark.verbs.put_frame_checks import check_columns, checks_of, payload_names
from tubeq_spark.verbs.put_frame_rows import OVERRUN, Counted, Numbering, bucket_column, frame_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tubeq_spark.rules.ids import Range
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.put_identity import PutIdentity

__all__ = ["NOTHING", "CountedFrame", "count_frame", "put_df", "put_frame"]

#: What a put returns that adds nothing.
NOTHING = PutResult(0, None, None)


@dataclass(frozen=True, slots=True)
class CountedFrame:
    """A DataFrame whose columns and values were found good."""

    df: DataFrame
    payload: list[str]
    counted: Counted

    @property
    def total(self) -> int:
        """How many rows it has."""
        return self.counted.total


def put_df(ctx: TubeContext, df: DataFrame, identity: PutIdentity | None) -> PutResult:
    """Put the rows of a DataFrame; none when there is no room for all."""
    return put_frame(ctx, count_frame(ctx, df), identity) or NOTHING


def count_frame(ctx: TubeContext, df: DataFrame) -> CountedFrame:
    """Check and count what is to be put: one pass, and one before it where rows are exchanged.

    Raises:
        InvalidOptionError: A column or a value is bad.
    """
    payload = payload_names(ctx, df)
    check_columns(ctx, df)
    df = read_alike(df)
    return CountedFrame(df, payload, _count(ctx, df, payload))


def put_frame(
    ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None
) -> PutResult | None:
    """Put counted rows; `None` when the tube has no room for all of them."""
    if not frame.total:
        return NOTHING
    ctx.require_there(look=True)
    ctx.queue.session.start_beating()
    now_us = ctx.queue.now_us()

    counted, config = frame.counted, ctx.queue.config
    layout = spread(counted.buckets, config.segment_rows, config.fold_rows)

    def attempt() -> Plan[PutResult | None]:
        total = frame.total
        numbers = ctx.queue.session.task_ids(total + layout.segments, ctx.table_lock.last_id)
        ctx.table_lock.last_id = numbers.task_id(total - 1)
        numbering = Numbering(counted, numbers, layout)
        rows = frame_rows(ctx, frame.df, frame.payload, numbering, now_us)
        if ctx.capacity is not None:
            segments = [numbers.task_id(total + i) for i in range(layout.segments)]
            return _admitted(ctx, rows, numbers, total, segments, identity)
        statement = ctx.statements.append(rows, total, identity)
        return Plan(statement, lambda affected: _result(numbers, total, affected.inserted))

    try:
        result = ctx.queue.require_spark_loop().run("put", ctx.table_lock, attempt)
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        msg = "df yielded other rows when written than when counted; write it to a table first"
        raise StoreError(msg) from error
    if result is not None and result.count:
        ctx.count("put", result.count)
        ctx.table_lock.changed()
    return result


def _result(numbers: Range, counted: int, inserted: int) -> PutResult:
    if not inserted:
        return NOTHING
    return PutResult(inserted, numbers.task_id(0), numbers.task_id(counted - 1))


def _admitted(
    ctx: TubeContext,
    rows: DataFrame,
    numbers: Range,
    count: int,
    segments: list[int],
    identity: PutIdentity | None,
) -> Plan[PutResult | None]:
    """The put to a tube with a capacity: all rows, or none when there is no room."""
    now_us = ctx.queue.now_us()
    room = ctx.admission.look(now_us, identity)
    if room.dropped:
        raise dropped(ctx)
    if room.repeats(identity):
        return Plan(None, lambda _: NOTHING)
    if room.stored + count > (ctx.capacity or 0):
        return Plan(None, lambda _: None)
    forget_us = now_us - ctx.queue.config.key_days * 86_400 * US
    statement, beside = ctx.admission.put(
        rows, count, segments, room, now_us=now_us, identity=identity, forget_us=forget_us
    )
    return Plan(statement, lambda affected: _result(numbers, count, affected.inserted - beside))


def _count(ctx: TubeContext, df: DataFrame, payload: list[str]) -> Counted:
    """Count the rows of each partition and bucket: at most 256 numbers a partition come back."""
    checks = checks_of(ctx, df, payload)
    conditions = [f"{check.is_bad} AS bad_{i}" for i, check in enumerate(checks)]
    counts = [f"count_if(bad_{i}) AS bad_{i}" for i in range(len(checks))]
    bucket = bucket_column(ctx, df, payload)
    found = (
        df.selectExpr("spark_partition_id() AS partition", f"{bucket} AS bucket", *conditions)
        .groupBy("partition", "bucket")
        .agg(*[F.expr(count) for count in ("count(*) AS rows", *counts)])
        .collect()
    )
    for i, check in enumerate(checks):
        count = sum(row[f"bad_{i}"] for row in found)
        if count:
            refuse(f"df column {check.column}", f"{count} bad rows", check.allowed)
    counted = Counted()
    for row in found:
        counted.partitions[row["partition"]] += row["rows"]
        counted.buckets[row["bucket"]] += row["rows"]
    return counted
