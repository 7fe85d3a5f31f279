"""put_df: a DataFrame of any size becomes tasks in one commit, and is never collected.

Steps: one counting pass (rows and bad values of each partition), a check that the tube still
exists, reserve ids, one append (with a key, or as a batch of a stream, under Delta's transaction
id). Ids follow the order of partitions. If a DataFrame has another number of rows when it is
written than when it is counted, the put fails, so ids never overlap. The append does not read the
tombstone of a drop that commits between the check and the append. Its rows are then dropped with
the tube, as if they had been put just before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.rules.put_columns import refuse_bad
from tubeq_spark.storage.spark.conflicts import raised_message
from tubeq_spark.storage.spark.frame_copy import read_alike
from tubeq_spark.verbs.put_frame_checks import (
    check_columns,
    checks_of,
    example,
    payload_names,
    payload_type,
)
from tubeq_spark.verbs.put_frame_payload import as_stored, without_void
from tubeq_spark.verbs.put_frame_rows import OVERRUN, Counted, bucket_column, frame_rows
from tubeq_spark.verbs.put_rows import NOTHING, put_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.put_identity import PutIdentity
    from tubeq_spark.task import PutResult
    from tubeq_spark.verbs.put_rows import Numbering

__all__ = ["NOTHING", "CountedFrame", "count_frame", "put_df", "put_frame"]


@dataclass(frozen=True, slots=True)
class CountedFrame:
    """A checked DataFrame."""

    df: DataFrame
    payload: list[str]
    counted: Counted

    @property
    def total(self) -> int:
        """The number of its rows."""
        return self.counted.total


def put_df(ctx: TubeContext, df: DataFrame, identity: PutIdentity | None) -> PutResult:
    """Put the rows of a DataFrame, or none if the capacity is too small for all."""
    return put_frame(ctx, count_frame(ctx, df), identity) or NOTHING


def count_frame(ctx: TubeContext, df: DataFrame) -> CountedFrame:
    """Check and count the rows in one pass; with a shuffle another pass copies them before.

    A refusal reads once more, for a value that the message shows.

    Raises:
        InvalidOptionError: A column or a value is bad.
        StoreError: Spark must not commit here.
    """
    ctx.queue.require_spark_loop()
    payload = payload_names(ctx, df)
    check_columns(ctx, df)
    kind, df = payload_type(ctx), read_alike(df)
    if kind is None:
        return CountedFrame(df, payload, _count(ctx, df, payload))
    df = without_void(df, kind)
    counted = _count(ctx, df, payload)
    return CountedFrame(as_stored(df, kind), payload, counted)


def put_frame(
    ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None
) -> PutResult | None:
    """Put counted rows; `None` if the capacity is too small for all of them."""
    counted = frame.counted

    def rows(numbering: Numbering) -> DataFrame:
        return frame_rows(ctx, frame.df, frame.payload, counted, numbering)

    try:
        return put_rows(ctx, counted.buckets, rows, identity, ctx.queue.require_spark_loop())
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        msg = "df yielded other rows when written than when counted; write it to a table first"
        raise StoreError(msg) from error


def _count(ctx: TubeContext, df: DataFrame, payload: list[str]) -> Counted:
    """Count the rows of each partition and bucket: at most 256 numbers for each partition."""
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
        bad = sum(row[f"bad_{i}"] for row in found)
        if bad:
            refuse_bad("df", check.column, bad, f"{check.allowed}{example(df, check)}")
    counted = Counted()
    for row in found:
        counted.partitions[row["partition"]] += row["rows"]
        counted.buckets[row["bucket"]] += row["rows"]
    return counted
