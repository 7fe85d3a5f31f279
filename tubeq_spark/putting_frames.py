"""put_df: a DataFrame of any size becomes tasks in one commit, and is never collected.

Steps: one counting pass (rows and bad values of each partition), reserve ids, one insert-only
MERGE (with a key: one append under Delta's transaction id). Ids follow the order of partitions; a
DataFrame that yields more rows when written than when counted fails the put, so ids never overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.checks import PRI_MAX, refuse
from tubeq_spark.context import dropped
from tubeq_spark.errors import InvalidOptionError, StoreError
from tubeq_spark.ids import POSITION_BITS, SLOT_BITS, Range
from tubeq_spark.moments import FOREVER_S, US
from tubeq_spark.storage.commit import Plan
from tubeq_spark.storage.conflicts import raised_message
from tubeq_spark.storage.rows import INSERTED
from tubeq_spark.task import PutResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.engine import Affected, Append, Merge

__all__ = ["OVERRUN", "put_df"]

#: What the numbering raises when a partition has more rows than were counted.
OVERRUN = "tubeq:overrun"
_POSITION_MASK = (1 << POSITION_BITS) - 1
#: The low bits of monotonically_increasing_id are the row's place in its partition.
_ROW_MASK = (1 << 33) - 1
_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_DURATIONS = (*_NUMBERS, T.FloatType, T.DoubleType, T.DecimalType)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows of each non-empty partition, by its number."""

    partitions: dict[int, int]

    @property
    def total(self) -> int:
        return sum(self.partitions.values())

    @property
    def offsets(self) -> dict[int, int]:
        offsets, so_far = {}, 0
        for partition, count in sorted(self.partitions.items()):
            offsets[partition] = so_far
            so_far += count
        return offsets


def put_df(ctx: TubeContext, df: DataFrame, key: str | None) -> PutResult:
    """Put the rows of a DataFrame."""
    payload = _payload(ctx, df)
    _check_columns(ctx, df)
    now_us = ctx.queue.now_us()
    counted = _count(ctx, df, payload)
    if not counted.partitions:
        return PutResult(0, None, None)
    if key is not None:
        # An append is blind: it would not see the mark of a drop.
        ctx.require_there(look=True)
    ctx.queue.session.start_beating()

    def attempt() -> Plan[PutResult]:
        numbers = ctx.queue.session.task_ids(counted.total, ctx.lane.last_id)
        ctx.lane.last_id = numbers.task_id(counted.total - 1)
        rows = _rows(ctx, df, payload, numbers, counted, now_us)
        size = ctx.queue.config.segment_rows
        segments = [numbers.task_id(i) for i in range(0, counted.total, size)]
        statement = _statement(ctx, rows, segments, key)

        def finish(affected: Affected) -> PutResult:
            count = affected.inserted
            if not count:
                if key is None:
                    ctx.was_dropped()
                    raise dropped(ctx)
                return PutResult(0, None, None)
            return PutResult(count, segments[0], numbers.task_id(counted.total - 1))

        return Plan(statement, finish)

    try:
        result = ctx.queue.loop.run("put", ctx.lane, attempt)
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        msg = "df yielded more rows when written than when counted; write it to a table first"
        raise StoreError(msg) from error
    ctx.count("put", result.count)
    ctx.lane.changed()
    return result


def _statement(
    ctx: TubeContext, rows: DataFrame, segments: Sequence[int], key: str | None
) -> Merge | Append:
    if key is None:
        return ctx.statements.put(rows, segments)
    return ctx.statements.append(rows, key)


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
            if kind != field.dataType:
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


def _count(ctx: TubeContext, df: DataFrame, payload: list[str]) -> _Counted:
    bad = dict(_bad_values(ctx, df, payload))
    found = (
        df.select(
            F.spark_partition_id().alias("partition"),
            *[condition.alias(f"bad_{i}") for i, condition in enumerate(bad.values())],
        )
        .groupBy("partition")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            *[F.count_if(F.col(f"bad_{i}")).alias(f"bad_{i}") for i in range(len(bad))],
        )
        .collect()
    )
    for i, name in enumerate(bad):
        count = sum(row[f"bad_{i}"] for row in found)
        if count:
            refuse(f"df column {name}", f"{count} bad rows", _ALLOWED[name])
    return _Counted({row["partition"]: row["rows"] for row in found})


_ALLOWED = {
    "data": "JSON text that is not NULL",
    "pri": f"a whole number from 0 to {PRI_MAX}, or NULL",
    "ttl": "a finite number of seconds, >= 0, or NULL",
    "ttr": "a finite number of seconds, >= 0.000001, or NULL",
    "delay": "a finite number of seconds, >= 0, or NULL",
}


def _bad_values(ctx: TubeContext, df: DataFrame, payload: list[str]) -> list[tuple[str, Column]]:
    bad = []
    if ctx.table.payload_columns is None:
        parsed = F.try_parse_json(F.col("data"))
        bad.append(("data", F.col("data").isNull() | parsed.isNull()))
    for name in ("pri", "ttl", "ttr", "delay"):
        if name in df.columns and name not in payload:
            value = F.col(name).cast("double")
            least = 1e-6 if name == "ttr" else 0.0
            most = float(PRI_MAX) if name == "pri" else 1.7e308
            wrong = F.isnan(value) | (value < least) | (value > most)
            bad.append((name, F.coalesce(wrong, F.lit(False))))  # noqa: FBT003
    return bad


# -- rows -------------------------------------------------------------------------------------


def _rows(
    ctx: TubeContext,
    df: DataFrame,
    payload: list[str],
    numbers: Range,
    counted: _Counted,
    now_us: int,
) -> DataFrame:
    """The rows as a put writes them (columns of `INSERTED`)."""
    numbered = df.select(
        *[F.col(name) for name in df.columns],
        _position(counted).alias("tubeq_position"),
    )
    size = F.lit(ctx.queue.config.segment_rows).cast("bigint")
    position = F.col("tubeq_position")
    first = F.lit(numbers.first).cast("bigint")
    options = ctx.record.options

    def given(name: str, default: float | None) -> Column:
        default_value = F.lit(default).cast("double")
        if name not in df.columns or name in payload:
            return default_value
        return F.coalesce(F.col(name).cast("double"), default_value)

    ttl_given = given("ttl", options.ttl)
    delay = _microseconds(given("delay", options.delay))
    # Both are below a hundred years: their sum is a moment that every clock can show.
    ttl = _microseconds(ttl_given) + delay
    ttr = _microseconds(F.coalesce(given("ttr", options.ttr), ttl_given))
    now = F.lit(now_us).cast("bigint")
    delayed = delay.isNull() | (delay > 0)
    has_utube = "utube" in df.columns and "utube" not in payload
    columns = {
        "segment": _task_id(first + position - position % size, numbers.slot),
        "task_id": _task_id(first + position, numbers.slot),
        "state": F.when(delayed, F.lit("~")).otherwise(F.lit("r")),
        "pri": given("pri", float(options.pri)).cast("int"),
        "utube": (F.col("utube") if has_utube else F.lit(None)).cast("string"),
        "data": F.col("data") if ctx.table.payload_columns is None else F.struct(*payload),
        "created": now,
        "ttl": ttl,
        "ttr": ttr,
        "next_event": F.when(delayed, now + delay).otherwise(now + ttl),
        "expires_at": now + ttl,
    }
    return numbered.select(*[columns[name].alias(name) for name in INSERTED])


def _position(counted: _Counted) -> Column:
    """The place of a row among all rows, by the order of partitions."""
    highest = max(counted.partitions)
    offsets = [counted.offsets.get(p, 0) for p in range(highest + 1)]
    counts = [counted.partitions.get(p, 0) for p in range(highest + 1)]
    partition = F.spark_partition_id() + F.lit(1)
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_MASK))
    fits = F.coalesce(F.try_element_at(_bigints(counts), partition) > row, F.lit(False))  # noqa: FBT003
    place = F.try_element_at(_bigints(offsets), partition) + row
    return F.when(fits, place).otherwise(F.raise_error(F.lit(OVERRUN)).cast("bigint"))


def _bigints(values: list[int]) -> Column:
    return F.array(*[F.lit(value).cast("bigint") for value in values])


def _task_id(tick: Column, slot: int) -> Column:
    """`ids.task_id_of` as an expression."""
    high = F.shiftleft(F.shiftright(tick, POSITION_BITS), SLOT_BITS + POSITION_BITS)
    low = tick.bitwiseAND(F.lit(_POSITION_MASK).cast("bigint"))
    return high.bitwiseOR(F.lit(slot << POSITION_BITS).cast("bigint")).bitwiseOR(low)


def _microseconds(seconds: Column) -> Column:
    """`us_from_seconds` as an expression: NULL for never and for a hundred years or more."""
    return F.when(seconds < F.lit(FOREVER_S), F.round(seconds * F.lit(float(US))).cast("bigint"))
