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
from pyspark.sql import types as T

from tubeq_spark.checks import PRI_MAX, refuse
from tubeq_spark.context import dropped
from tubeq_spark.errors import InvalidOptionError, StoreError
from tubeq_spark.frame_rows import OVERRUN, Counted, Numbering, bucket_column, frame_rows
from tubeq_spark.moments import US
from tubeq_spark.segmenting import spread
from tubeq_spark.storage.commit import Plan
from tubeq_spark.storage.conflicts import raised_message
from tubeq_spark.storage.quoting import identifier
from tubeq_spark.task import PutResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tubeq_spark.context import TubeContext
    from tubeq_spark.ids import Range
    from tubeq_spark.storage.identity import PutIdentity

__all__ = ["NOTHING", "CountedFrame", "count_frame", "put_df", "put_frame"]

#: What a put returns that adds nothing.
NOTHING = PutResult(0, None, None)
_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_DURATIONS = (*_NUMBERS, T.FloatType, T.DoubleType, T.DecimalType)


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
    """Check and count what is to be put: one pass.

    Raises:
        InvalidOptionError: A column or a value is bad.
    """
    payload = _payload(ctx, df)
    _check_columns(ctx, df)
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
        numbers = ctx.queue.session.task_ids(total + layout.segments, ctx.lane.last_id)
        ctx.lane.last_id = numbers.task_id(total - 1)
        numbering = Numbering(counted, numbers, layout)
        rows = frame_rows(ctx, frame.df, frame.payload, numbering, now_us)
        if ctx.capacity is not None:
            segments = [numbers.task_id(total + i) for i in range(layout.segments)]
            return _admitted(ctx, rows, numbers, total, segments, identity)
        statement = ctx.statements.append(rows, total, identity)
        return Plan(statement, lambda affected: _result(numbers, total, affected.inserted))

    try:
        result = ctx.queue.loop.run("put", ctx.lane, attempt)
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        msg = "df yielded other rows when written than when counted; write it to a table first"
        raise StoreError(msg) from error
    if result is not None and result.count:
        ctx.count("put", result.count)
        ctx.lane.changed()
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


# -- checks -----------------------------------------------------------------------------------


def _payload(ctx: TubeContext, df: DataFrame) -> list[str]:
    """The columns that hold the payload."""
    expected = ctx.table.payload_columns
    names = ["data"] if expected is None else [field.name for field in expected]
    for name in names:
        if name not in df.columns:
            msg = f"df lacks the column {name!r}; it has: {', '.join(df.columns)}"
            raise InvalidOptionError(msg)
    if expected is None:
        kind = df.schema["data"].dataType
        if not isinstance(kind, T.StringType):
            refuse("df column data", kind.simpleString(), "a string of JSON")
    else:
        for field in expected:
            kind = df.schema[field.name].dataType
            # Not by the types: these tell NULLs inside of arrays apart, which are stored as they are.
            if kind.simpleString() != field.dataType.simpleString():
                refuse(
                    f"df column {field.name}", kind.simpleString(), field.dataType.simpleString()
                )
    return names


def _check_columns(ctx: TubeContext, df: DataFrame) -> None:
    expected = ctx.table.payload_columns
    payload = {"data"} if expected is None else {field.name for field in expected}
    for field in df.schema:
        if field.name in payload:
            continue
        if field.name not in ctx.driver.put_options:
            allowed = ", ".join(sorted(payload | ctx.driver.put_options))
            refuse("df column", field.name, f"one of the columns of a {ctx.driver.name}: {allowed}")
        kinds = {"pri": _NUMBERS, "utube": (T.StringType, *_NUMBERS)}.get(field.name, _DURATIONS)
        if not isinstance(field.dataType, (*kinds, T.NullType)):
            refuse(
                f"df column {field.name}", field.dataType.simpleString(), "a column of such options"
            )
    if len(set(df.columns)) != len(df.columns):
        refuse("df columns", df.columns, "names without repetition")


def _count(ctx: TubeContext, df: DataFrame, payload: list[str]) -> Counted:
    """Count the rows of each partition and bucket: at most 256 numbers a partition come back."""
    bad = _bad_values(ctx, df, payload)
    conditions = [f"{condition} AS bad_{i}" for i, condition in enumerate(bad.values())]
    counts = [f"count_if(bad_{i}) AS bad_{i}" for i in range(len(bad))]
    bucket = bucket_column(ctx, df, payload)
    found = (
        df.selectExpr("spark_partition_id() AS partition", f"{bucket} AS bucket", *conditions)
        .groupBy("partition", "bucket")
        .agg(*[F.expr(count) for count in ("count(*) AS rows", *counts)])
        .collect()
    )
    for i, name in enumerate(bad):
        count = sum(row[f"bad_{i}"] for row in found)
        if count:
            refuse(f"df column {name}", f"{count} bad rows", _ALLOWED[name])
    counted = Counted()
    for row in found:
        counted.partitions[row["partition"]] += row["rows"]
        counted.buckets[row["bucket"]] += row["rows"]
    return counted


_ALLOWED = {
    "data": "JSON text that is not NULL",
    "pri": f"a whole number from 0 to {PRI_MAX}, or NULL",
    "ttl": "a finite number of seconds, >= 0, or NULL",
    "ttr": "a finite number of seconds, >= 0.000001, or NULL",
    "delay": "a finite number of seconds, >= 0, or NULL",
}


def _bad_values(ctx: TubeContext, df: DataFrame, payload: list[str]) -> dict[str, str]:
    """Conditions for rows that are refused, by their column."""
    bad = {}
    if ctx.table.payload_columns is None:
        # Spark's parser leaves what comes after a value alone. In a list it must be the end or a
        # comma, in an object too, and after that no text goes on as both.
        texts = ("concat('[', data, ']')", """concat('{"d":', data, '}')""")
        bad["data"] = " OR ".join(f"try_parse_json({text}) IS NULL" for text in texts)
    for name in ("pri", "ttl", "ttr", "delay"):
        if name in df.columns and name not in payload:
            value = f"CAST({identifier(name)} AS DOUBLE)"
            least = "1e-6D" if name == "ttr" else "0D"
            most = f"{PRI_MAX}D" if name == "pri" else "1.7e308D"
            bad[name] = f"coalesce(isnan({value}) OR {value} < {least} OR {value} > {most}, FALSE)"
    return bad
