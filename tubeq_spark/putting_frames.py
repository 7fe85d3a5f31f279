"""put_df: a DataFrame of any size becomes tasks in one commit, and is never collected.

Steps: one counting pass (rows and bad values of each partition), a look whether the tube is still
there, reserve ids, one append (with a key, or as a batch of a stream, under Delta's transaction id).
Ids follow the order of partitions; a DataFrame that yields more rows when written than when counted fails the put, so ids
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
from tubeq_spark.ids import POSITION_BITS, SLOT_BITS, Range
from tubeq_spark.moments import FOREVER_S, US
from tubeq_spark.storage.codegen import compiled
from tubeq_spark.storage.commit import Plan
from tubeq_spark.storage.conflicts import raised_message
from tubeq_spark.storage.quoting import bigint, bigints, identifier, string
from tubeq_spark.storage.rows import INSERTED
from tubeq_spark.task import PutResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.identity import PutIdentity

__all__ = ["NOTHING", "OVERRUN", "CountedFrame", "count_frame", "put_df", "put_frame"]


#: What a put returns that adds nothing.
NOTHING = PutResult(0, None, None)
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


@dataclass(frozen=True, slots=True)
class CountedFrame:
    """A DataFrame whose columns and values were found good."""

    df: DataFrame
    payload: list[str]
    counted: _Counted

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
    # How many rows there are is what it asks; a tube's puts are much alike.
    with compiled(df.sparkSession, ctx.last_frame):
        counted = _count(ctx, df, payload)
    ctx.last_frame = counted.total
    return CountedFrame(df, payload, counted)


def put_frame(
    ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None
) -> PutResult | None:
    """Put counted rows; `None` when the tube has no room for all of them."""
    if not frame.total:
        return NOTHING
    ctx.require_there(look=True)
    ctx.queue.session.start_beating()
    now_us = ctx.queue.now_us()

    def attempt() -> Plan[PutResult | None]:
        total = frame.total
        numbers = ctx.queue.session.task_ids(total, ctx.lane.last_id)
        ctx.lane.last_id = numbers.task_id(total - 1)
        rows = _rows(ctx, frame, numbers, now_us)
        if ctx.capacity is not None:
            return _admitted(ctx, rows, numbers, total, identity)
        statement = ctx.statements.append(rows, total, identity)
        return Plan(statement, lambda affected: _result(numbers, total, affected.inserted))

    try:
        result = ctx.queue.loop.run("put", ctx.lane, attempt)
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        msg = "df yielded more rows when written than when counted; write it to a table first"
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
    ctx: TubeContext, rows: DataFrame, numbers: Range, count: int, identity: PutIdentity | None
) -> Plan[PutResult | None]:
    """The put to a tube with a capacity: all rows, or none when there is no room."""
    now_us = ctx.queue.now_us()
    room = ctx.admission.look(now_us, identity)
    if room.dropped:
        ctx.was_dropped()
        raise dropped(ctx)
    if room.repeats(identity):
        return Plan(None, lambda _: NOTHING)
    if room.stored + count > (ctx.capacity or 0):
        return Plan(None, lambda _: None)
    segments = [numbers.task_id(i) for i in range(0, count, ctx.queue.config.segment_rows)]
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
    bad = _bad_values(ctx, df, payload)
    conditions = [f"{condition} AS bad_{i}" for i, condition in enumerate(bad.values())]
    counts = [f"count_if(bad_{i}) AS bad_{i}" for i in range(len(bad))]
    found = (
        df.selectExpr("spark_partition_id() AS partition", *conditions)
        .groupBy("partition")
        .agg(*[F.expr(count) for count in ("count(*) AS rows", *counts)])
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


def _bad_values(ctx: TubeContext, df: DataFrame, payload: list[str]) -> dict[str, str]:
    """Conditions for rows that are refused, by their column."""
    bad = {}
    if ctx.table.payload_columns is None:
        bad["data"] = "data IS NULL OR try_parse_json(data) IS NULL"
    for name in ("pri", "ttl", "ttr", "delay"):
        if name in df.columns and name not in payload:
            value = f"CAST({identifier(name)} AS DOUBLE)"
            least = "1e-6D" if name == "ttr" else "0D"
            most = f"{PRI_MAX}D" if name == "pri" else "1.7e308D"
            bad[name] = f"coalesce(isnan({value}) OR {value} < {least} OR {value} > {most}, FALSE)"
    return bad


# -- rows -------------------------------------------------------------------------------------


def _rows(ctx: TubeContext, frame: CountedFrame, numbers: Range, now_us: int) -> DataFrame:
    """The rows as a put writes them (columns of `INSERTED`)."""
    df, payload = frame.df, frame.payload
    call = _Constants(frame.counted, numbers, now_us)
    numbered = df.selectExpr(
        *[identifier(name) for name in df.columns],
        f"{call.place} AS tubeq_place",
        f"{call.first} AS tubeq_first",
        f"{call.now} AS tubeq_now",
    )
    options = ctx.record.options
    size = bigint(ctx.queue.config.segment_rows)

    def given(name: str, default: float | None) -> str:
        default_value = f"CAST({'NULL' if default is None else string(repr(default))} AS DOUBLE)"
        if name not in df.columns or name in payload:
            return default_value
        return f"coalesce(CAST({identifier(name)} AS DOUBLE), {default_value})"

    life = given("ttl", options.ttl)
    delay = _microseconds(given("delay", options.delay))
    # Both are below a hundred years: their sum is a moment that every clock can show.
    ttl = f"({_microseconds(life)} + {delay})"
    delayed = f"({delay} IS NULL OR {delay} > 0L)"
    has_utube = "utube" in df.columns and "utube" not in payload
    fields = ", ".join(identifier(name) for name in payload)
    columns = {
        "segment": _task_id(f"(tubeq_place - (tubeq_place - tubeq_first) % {size})", call.slot),
        "task_id": _task_id("tubeq_place", call.slot),
        "state": f"CASE WHEN {delayed} THEN '~' ELSE 'r' END",
        "pri": f"CAST({given('pri', float(options.pri))} AS INT)",
        "utube": "CAST(utube AS STRING)" if has_utube else "CAST(NULL AS STRING)",
        "data": "data" if ctx.table.payload_columns is None else f"struct({fields})",
        "created": "tubeq_now",
        "ttl": ttl,
        "ttr": _microseconds(f"coalesce({given('ttr', options.ttr)}, {life})"),
        "next_event": f"tubeq_now + CASE WHEN {delayed} THEN {delay} ELSE {ttl} END",
        "expires_at": f"tubeq_now + {ttl}",
    }
    return numbered.selectExpr(*[f"{columns[name]} AS {name}" for name in INSERTED])


class _Constants:
    """What is one value for a whole call, as expressions whose generated code is always the same.

    A number is part of the code that Spark generates and compiles, an array only its argument:
    with plain literals each put would compile its code anew.
    """

    def __init__(self, counted: _Counted, numbers: Range, now_us: int) -> None:
        self._partitions = range(max(counted.partitions) + 1)
        counts, offsets = counted.partitions, counted.offsets
        #: The place of the first row, the slot of the session's numbers, the moment of the put.
        self.first = self._at(lambda _: numbers.first)
        self.slot = self._at(lambda _: numbers.slot)
        self.now = self._at(lambda _: now_us)
        row = f"(monotonically_increasing_id() & {bigint(_ROW_MASK)})"
        fits = f"coalesce({self._at(lambda p: counts.get(p, 0))} > {row}, FALSE)"
        start = self._at(lambda p: numbers.first + offsets.get(p, 0))
        #: A row's place: its partition's, and its own in there.
        self.place = (
            f"CASE WHEN {fits} THEN {start} + {row} "
            f"ELSE CAST(raise_error({string(OVERRUN)}) AS BIGINT) END"
        )

    def _at(self, value: Callable[[int], int]) -> str:
        values = bigints(value(partition) for partition in self._partitions)
        return f"try_element_at(array({values}), spark_partition_id() + 1)"


def _task_id(tick: str, slot: str) -> str:
    """`ids.task_id_of` as an expression."""
    high = f"shiftleft(shiftright({tick}, {POSITION_BITS}), {SLOT_BITS + POSITION_BITS})"
    low = f"({tick} & {bigint(_POSITION_MASK)})"
    return f"({high} | shiftleft({slot}, {POSITION_BITS}) | {low})"


def _microseconds(seconds: str) -> str:
    """`us_from_seconds` as an expression: NULL for never and for a hundred years or more."""
    forever = f"{FOREVER_S:.0f}D"
    return f"CASE WHEN {seconds} < {forever} THEN CAST(round({seconds} * {US}D) AS BIGINT) END"
