"""put_df: a DataFrame of any size becomes tasks in one commit, and is never collected.

Steps: one counting pass (rows and bad values of each partition), a check that the tube still
exists, reserve ids, one append (with a key, or as a batch of a stream, under Delta's transaction
id). Ids follow the order of partitions. If a partition has more rows when it is
written than when it is counted, the put fails, so ids never overlap. The append does not read the
tombstone of a drop that commits between the check and the append. Its rows are then dropped with
the tube, as if they had been put just before.

The executors evaluate the expressions of this module; the driver has only counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tubeq_spark.errors import CommitUnknownError, ConflictError, StoreError, TubeqError
from tubeq_spark.model.ids import BUCKETS, POSITION_BITS, SLOT_BITS
from tubeq_spark.model.options import MOST_RANK
from tubeq_spark.model.times import FOREVER_S, US
from tubeq_spark.model.validation import refuse
from tubeq_spark.payloads.arrow_values import too_large
from tubeq_spark.payloads.put_columns import JSON, check_columns
from tubeq_spark.storage.arrow.columns import empty
from tubeq_spark.storage.location import identifier
from tubeq_spark.storage.rows import INSERTED, insert_schema, key_row
from tubeq_spark.storage.spark.conflicts import raised_message
from tubeq_spark.storage.spark.put_files import read_alike
from tubeq_spark.storage.spark.put_frame_checks import (
    arrow_fields,
    as_stored,
    checks_of,
    example,
    payload_size,
)
from tubeq_spark.storage.spark.quoting import bigint, string
from tubeq_spark.verbs.put import NewRows
from tubeq_spark.verbs.put_rows import Added, put_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import PutsSeen
    from tubeq_spark.storage.spark.put_frame_checks import Check
    from tubeq_spark.storage.statement import PutIdentity, WrittenRows
    from tubeq_spark.verbs.put import Numbering

#: The error of the numbering if a partition has more rows than were counted.
OVERRUN = "tubeq:overrun"
_OTHER_ROWS = "df yielded other rows when written than when counted; write it to a table first"
_POSITION_MASK = (1 << POSITION_BITS) - 1
#: The low bits of monotonically_increasing_id are the row's index in its partition.
_ROW_MASK = (1 << 33) - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of rows of each non-empty partition, and of each bucket of sub-queues, and of rows with keys."""

    partitions: Counter[int] = field(default_factory=Counter)
    buckets: Counter[int] = field(default_factory=Counter)
    keys: int = 0


@dataclass(frozen=True, slots=True)
class CountedFrame:
    """A checked DataFrame.

    Attributes:
        df: Its rows.
        payload: The columns of the payload.
        counted: The numbers of its rows.
        trace: The span that each task stores.
    """

    df: DataFrame
    payload: list[str]
    counted: Counted
    trace: str | None = None

    @property
    def total(self) -> int:
        """The number of its rows."""
        return self.counted.partitions.total()

    @property
    def has_keys(self) -> bool:
        """Whether its rows may have keys."""
        return _has(self.df, "unique", self.payload)


def _has(df: DataFrame, name: str, payload: list[str]) -> bool:
    """Whether a DataFrame has the column of an option."""
    return name in df.columns and name not in payload


def bucket_column(ctx: TubeContext, df: DataFrame, payload: list[str]) -> str:
    """The bucket of each row, as `segment_layout.hash_of` computes it."""
    if not ctx.driver.subqueues or not _has(df, "utube", payload):
        return "0"
    text = "coalesce(CAST(utube AS STRING), '')"
    return f"CAST(crc32(CAST({text} AS BINARY)) % {BUCKETS} AS INT)"


def frame_rows(ctx: TubeContext, frame: CountedFrame, numbering: Numbering) -> DataFrame:
    """The rows that a put writes (columns of `INSERTED`)."""
    df, payload, counted = frame.df, frame.payload, frame.counted
    constants = _numbers(counted, numbering, bucket_column(ctx, df, payload))
    numbered = df.selectExpr(
        *[identifier(name) for name in df.columns],
        *[f"{value} AS tubeq_{name}" for name, value in constants.items()],
    )
    options = ctx.record.options

    def given(name: str, default: float | None) -> str:
        default_value = f"CAST({'NULL' if default is None else string(repr(default))} AS DOUBLE)"
        if not _has(df, name, payload):
            return default_value
        return f"coalesce(CAST({identifier(name)} AS DOUBLE), {default_value})"

    life = given("ttl", options.ttl)
    delay = _microseconds(given("delay", options.delay))
    # Both are below a hundred years, so their sum does not overflow a timestamp.
    ttl = f"({_microseconds(life)} + {delay})"
    delayed = f"({delay} IS NULL OR {delay} > 0L)"

    def text(name: str) -> str:
        value = identifier(name) if _has(df, name, payload) else "NULL"
        return f"CAST({value} AS STRING)"

    fields = ", ".join(identifier(name) for name in payload)
    columns = {
        "segment": _task_id("(tubeq_segment + (tubeq_place - tubeq_first) div tubeq_step)"),
        "task_id": _task_id("tubeq_place"),
        "state": f"CASE WHEN {delayed} THEN '~' ELSE 'r' END",
        "pri": f"CAST({given('pri', float(options.pri))} AS INT)",
        "utube": text("utube"),
        "data": "data" if ctx.table.payload_columns is None else f"struct({fields})",
        "created": "tubeq_now",
        "ttl": ttl,
        "ttr": _microseconds(f"coalesce({given('ttr', options.ttr)}, {life})"),
        "next_event": f"tubeq_now + CASE WHEN {delayed} THEN {delay} ELSE {ttl} END",
        "expires_at": f"tubeq_now + {ttl}",
        "unique": text("unique"),
        "rank": _rank(f"CAST({given('pri', float(options.pri))} AS BIGINT)", options.aging_us),
        # Spark's generated code does not contain the text, so each put uses the same code.
        "trace": string(frame.trace),
    }
    rows = numbered.selectExpr(*[f"{columns[name]} AS {name}" for name in INSERTED])
    if numbering.key_segment is None or not frame.has_keys:
        return rows
    return _with_key_rows(ctx, rows, numbering, numbering.key_segment)


def _with_key_rows(
    ctx: TubeContext, rows: DataFrame, numbering: Numbering, segment: int
) -> DataFrame:
    """As `rows.with_key_rows`. A union would number the partitions anew."""
    until_us = numbering.now_us + (ctx.table.unique_for_us or 0)
    which = "CASE WHEN unique IS NULL THEN array(FALSE) ELSE array(FALSE, TRUE) END"
    columns = {name: name for name in INSERTED}
    for name, value in key_row(segment, until_us).items():
        text = "NULL"
        if value is not None:
            text = string(value) if isinstance(value, str) else bigint(value)
        columns[name] = f"CASE WHEN tubeq_is_key THEN {text} ELSE {name} END"
    doubled = rows.selectExpr("*", f"explode({which}) AS tubeq_is_key")
    return doubled.selectExpr(*[f"{value} AS {name}" for name, value in columns.items()])


def _rank(pri: str, aging_us: int | None) -> str:
    """`options.rank_of` as an expression, for a priority that is not negative."""
    if aging_us is None:
        return pri
    aging, most = bigint(aging_us), bigint(MOST_RANK)
    fits = f"{pri} <= ({most} - tubeq_now) div {aging}"
    return f"CASE WHEN {fits} THEN tubeq_now + {pri} * {aging} ELSE {most} END"


def _numbers(counted: Counted, numbering: Numbering, bucket: str) -> dict[str, str]:
    """The numbers of each row, and those of the put, as expressions with the same generated code for all puts.

    A literal number is part of the code that Spark generates and compiles, but an array is only an argument
    of that code. With plain literals Spark would compile new code for each put.
    """
    numbers, layout, counts = numbering.numbers, numbering.layout, counted.partitions
    sizes = [counts[partition] for partition in range(max(counts) + 1)]
    groups = [layout.groups.get(bucket) for bucket in range(max(layout.groups) + 1)]

    def by_partition(values: Iterable[int]) -> str:
        return _element(values, "spark_partition_id()")

    def by_group(values: Iterable[int | None]) -> str:
        return _element(values, f"{bucket} % {layout.buckets}")

    step = by_group(None if g is None else g.step for g in groups)
    row = f"(monotonically_increasing_id() & {bigint(_ROW_MASK)})"
    fits = f"coalesce({by_partition(sizes)} > {row} AND {step} IS NOT NULL, FALSE)"
    start = by_partition(accumulate(sizes[:-1], initial=numbers.first))
    after = numbers.first + numbering.total
    return {
        # The first number, plus the number of rows in the partitions before, plus the index in the partition.
        "place": f"CASE WHEN {fits} THEN {start} + {row} "
        f"ELSE CAST(raise_error({string(OVERRUN)}) AS BIGINT) END",
        # The first segment of a row's group, and the number of rows of the put after which its next segment begins.
        "segment": by_group(None if g is None else after + g.first for g in groups),
        "step": step,
        "first": by_partition(numbers.first for _ in sizes),
        "slot": by_partition(numbers.slot for _ in sizes),
        "now": by_partition(numbering.now_us for _ in sizes),
    }


def _element(values: Iterable[int | None], index: str) -> str:
    return f"try_element_at(array({', '.join(map(bigint, values))}), {index} + 1)"


def _task_id(tick: str) -> str:
    """`ids.task_id_of` as an expression."""
    high = f"shiftleft(shiftright({tick}, {POSITION_BITS}), {SLOT_BITS + POSITION_BITS})"
    low = f"({tick} & {bigint(_POSITION_MASK)})"
    return f"({high} | shiftleft(tubeq_slot, {POSITION_BITS}) | {low})"


def _microseconds(seconds: str) -> str:
    """`us_from_seconds` as an expression. NULL is never, as is a hundred years or more."""
    forever = f"{FOREVER_S:.0f}D"
    return f"CASE WHEN {seconds} < {forever} THEN CAST(bround({seconds} * {US}D) AS BIGINT) END"


def count_frame(ctx: TubeContext, df: DataFrame, trace: str | None = None) -> CountedFrame:
    """Check and count the rows in one pass. If the plan has a shuffle, another pass copies them first.

    A refusal reads the rows once more, to find a bad value for the message.

    Raises:
        InvalidOptionError: A column or a value is bad.
        StoreError: There is no Spark session.
    """
    queue, driver, typed = ctx.queue, ctx.driver, ctx.codec.payload
    columns = typed or JSON
    payload = [part.name for part in columns]
    with queue.require_spark().operating("put", ctx.table.name):
        check_columns("df", arrow_fields(df), columns, driver.put_options, driver.name)
        df = read_alike(df)
        if typed is None:
            # Of a text with a collation not all checks can be made, and no table of a tube stores one.
            df = as_stored(df, columns)
        counted = _count(ctx, df, payload, checks_of(df, typed))
        return CountedFrame(as_stored(df, columns), payload, counted, trace)


def put_frame(ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None) -> Added:
    """Put counted rows, or none if the capacity is too small for all."""
    try:
        return _FramePut(ctx, frame, identity).run()
    except StoreError as error:
        if error.__cause__ is None or raised_message(error.__cause__) != OVERRUN:
            raise
        raise StoreError(_OTHER_ROWS) from error


class _UnwrittenError(Exception):
    """The rows of a put must be written to files first, without the table's lock."""

    def __init__(self, frame: CountedFrame, numbering: Numbering) -> None:
        super().__init__()
        self.frame, self.numbering = frame, numbering


class _FramePut:
    """One put of a DataFrame.

    Its rows are written by a statement of Spark, or, where Spark must not commit, to files that the native engine
    commits.
    """

    def __init__(self, ctx: TubeContext, frame: CountedFrame, identity: PutIdentity | None) -> None:
        self._ctx, self._frame, self._identity = ctx, frame, identity
        self._files = ctx.queue.put_files
        #: A number of the gate, and the rows whose keys were free then.
        self._new: tuple[int, CountedFrame] | None = None
        #: The rows that were written last.
        self._written: tuple[CountedFrame, Numbering, WrittenRows] | None = None

    def run(self) -> Added:
        """Put the rows, and write them to files whenever an attempt needs other files.

        Raises:
            ConflictError: Other commits changed the rows to put, or the table, in each attempt.
        """
        queue, has_keys = self._ctx.queue, self._frame.has_keys
        call = (self._ctx, self._choose, queue.loop, self._identity)
        for _ in range(queue.config.attempts + 1):
            try:
                added = put_rows(*call, has_keys=has_keys, appends=True)
            except _UnwrittenError as unwritten:
                needed = unwritten
            except CommitUnknownError:
                # The files may be part of the table, so they must stay.
                raise
            except TubeqError:
                self._discard()
                raise
            else:
                if not added.result.count:
                    self._discard()
                return added
            self._write(needed.frame, needed.numbering)
        self._discard()
        msg = "put: others committed first while the rows were written; nothing was put"
        raise ConflictError(msg)

    def _choose(self, seen: PutsSeen | None) -> NewRows[Added] | None:
        ctx, frame = self._ctx, self._frame
        if seen is not None and frame.has_keys:
            if ctx.put_gate.has_ended_key(ctx.queue.now_us()):
                return None
            if self._new is None or self._new[0] != seen.number:
                self._new = seen.number, _with_new_keys(ctx, frame)
            frame = self._new[1]
        buckets = frame.counted.buckets
        if self._files is not None and self._written is not None:
            of, numbering, rows = self._written
            if of is frame and self._files.directories.fit(ctx.table.name, rows):
                none = empty(insert_schema(ctx.codec.arrow_type))
                return NewRows(buckets, lambda _: none, Added.of, numbering=numbering, written=rows)
        return NewRows(buckets, lambda numbering: self._rows(frame, numbering), Added.of)

    def _rows(self, frame: CountedFrame, numbering: Numbering) -> DataFrame:
        if self._files is not None:
            raise _UnwrittenError(frame, numbering)
        return frame_rows(self._ctx, frame, numbering)

    def _write(self, frame: CountedFrame, numbering: Numbering) -> None:
        self._discard()
        ctx, files = self._ctx, self._files
        if files is None:
            return
        with ctx.queue.loop.tally.running.running(ctx.table.name, ctx.table_lock):
            numbered = frame_rows(ctx, frame, numbering)
            rows = files.write(ctx.table.name, numbered, ctx.writer.stored)
        self._written = frame, numbering, rows
        keys = 0 if numbering.key_segment is None else frame.counted.keys
        if rows.size != frame.total + keys:
            self._discard()
            raise StoreError(_OTHER_ROWS)

    def _discard(self) -> None:
        """Remove the files that were written last."""
        written, self._written = self._written, None
        if written is not None and self._files is not None:
            self._files.directories.discard(self._ctx.table.name, written[2].directory)


def _with_new_keys(ctx: TubeContext, frame: CountedFrame) -> CountedFrame:
    """The rows without a key, and the first row with each key that no stored task has, in their order.

    They are evaluated once, because the stored keys must be those of this moment.
    """
    columns = [identifier(name) for name in frame.df.columns]
    numbered = frame.df.selectExpr(
        *columns,
        f"CAST({identifier('unique')} AS STRING) AS tubeq_key",
        "monotonically_increasing_id() AS tubeq_order",
    )
    # Each row without a key is a group of its own.
    apart = "tubeq_key, CASE WHEN tubeq_key IS NULL THEN tubeq_order END"
    place = f"row_number() OVER (PARTITION BY {apart} ORDER BY tubeq_order) AS tubeq_place"
    firsts = numbered.selectExpr("*", place).where("tubeq_place = 1")
    stored = ctx.frames.keys(frame.df.sparkSession, ctx.queue.now_us())
    new = firsts.join(stored, F.expr("tubeq_key = tubeq_stored"), "left_anti")
    df = read_alike(new.orderBy("tubeq_order").selectExpr(*columns))
    return replace(frame, df=df, counted=_count(ctx, df, frame.payload))


def _count(
    ctx: TubeContext, df: DataFrame, payload: list[str], checks: Sequence[Check] = ()
) -> Counted:
    """Check and count the rows of each partition and bucket: at most 256 numbers for each partition."""
    columns = {
        "partition": "spark_partition_id()",
        "bucket": bucket_column(ctx, df, payload),
        "bytes": payload_size(df, payload),
        "key": identifier("unique") if _has(df, "unique", payload) else "NULL",
    }
    totals = {"rows": "count(*)", "keys": "count(key)", "bytes": "max(bytes)"}
    for i, check in enumerate(checks):
        columns[f"bad_{i}"], totals[f"bad_{i}"] = check.is_bad, f"count_if(bad_{i})"
    rows = df.selectExpr(*[f"{value} AS {name}" for name, value in columns.items()])
    sums = [F.expr(f"{total} AS {name}") for name, total in totals.items()]
    found = rows.groupBy("partition", "bucket").agg(*sums).collect()
    for i, check in enumerate(checks):
        bad = sum(row[f"bad_{i}"] for row in found)
        if bad:
            allowed = f"{check.allowed}{example(df, check)}"
            refuse(f"df column {check.column}", f"{bad} bad rows", allowed)
    largest = max((row["bytes"] for row in found), default=0)
    if largest > ctx.queue.config.largest_payload:
        raise too_large("df", largest, ctx.queue.config.largest_payload)
    counted = Counted(keys=sum(row["keys"] for row in found))
    for row in found:
        counted.partitions[row["partition"]] += row["rows"]
        counted.buckets[row["bucket"]] += row["rows"]
    return counted
