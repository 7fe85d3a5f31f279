"""The rows of a DataFrame that is put: counts, numbers and completes them by SQL, and has Spark write them to files.

The driver has only counts. Ids follow the order of partitions. If a partition has more rows when it is written than
when it is counted, the numbering fails, so ids never overlap.

A put reads its DataFrame twice: to count the rows of each partition, and to write them with their
ids. If the plan has a shuffle, the two reads can differ: a sort draws new samples for the bounds of
its partitions, adaptive execution and the choice of a join depend on sizes, and counting needs
fewer columns than writing. Such a DataFrame is evaluated once, into blocks on the executors' disks,
and both passes read these. A DataFrame that is only filtered and projected is read twice.

Spark writes plain Parquet files if it must not commit to the tube's table: to a directory of their own, below that of
the tube's table. The native engine reads their footers for the statistics, and commits them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.clock import FOREVER_S, US
from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.ids import BUCKETS, POSITION_BITS, SLOT_BITS, Numbering
from tubeq_spark.model.options import MOST_RANK, TubeOptions
from tubeq_spark.model.validation import refuse, shown
from tubeq_spark.payloads.arrow_values import too_large
from tubeq_spark.storage.location import identifier, path_of
from tubeq_spark.storage.rows import INSERTED, key_row
from tubeq_spark.storage.spark.jvm import plan_text, with_settings
from tubeq_spark.storage.spark.put_frame_checks import Check, payload_size
from tubeq_spark.storage.spark.quoting import bigint, string
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.spark.spark_session import OF_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.native.tables import PutDirectories
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.statement import WrittenRows
    from tubeq_spark.storage.tables.tube_table import TubeTable

#: How Spark commits a write: each task moves its files to their place, and no file marks the end. A task that is
#: repeated writes files of the same names.
_WRITE: Final = {
    "compression": "snappy",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
#: Spark's own form of a moment (INT96) has no bounds in a footer.
_MOMENTS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
#: A part of the names of all operators that move rows to other partitions, including broadcasts.
_EXCHANGE = "Exchange"


def read_alike(df: DataFrame) -> DataFrame:
    """Return the DataFrame itself if two reads give the same rows; otherwise copy it, by one pass.

    The copy is lost with the executors that have it. A read then fails, and never returns other
    rows. The disk space is freed when the copy is collected as garbage.

    Raises:
        PySparkException: The platform keeps no copies, such as serverless compute; nothing was written.
    """
    plan = plan_text(df)
    if plan is not None and _EXCHANGE not in plan:
        return df
    return df.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


class PutFiles:
    """Writes the rows of puts to files, for commits of the native engine."""

    def __init__(self, spark: SparkEngine, directories: PutDirectories) -> None:
        """Write files with `spark` for tables of the native engine."""
        self._spark = spark
        #: The directories of these files below their tables.
        self.directories = directories

    def write(self, table: str, rows: DataFrame, stored: Mapping[str, Expression]) -> WrittenRows:
        """Write rows to a new directory below a table.

        If it is interrupted, a sweep removes the directory.

        Args:
            table: The SQL name of the table.
            rows: The rows.
            stored: The stored expressions by column, over the rows. Other columns are NULL.

        Raises:
            StoreError: The rows cannot be written, or the native engine cannot commit the files.
        """
        shape, directory = self.directories.shape(table), self.directories.new_name()
        columns = T.StructType.fromJson(shape.schema_json)
        named = {name: F.expr(text_of(value)) for name, value in stored.items()}
        values = [
            named.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name)
            for column in columns
        ]
        settings = {**dict.fromkeys(OF_FILES), **_MOMENTS}
        written = with_settings(rows.select(*values), settings).write
        writer = written.options(**_WRITE).partitionBy(*shape.by)
        try:
            with self._spark.operating("put", table):
                writer.parquet(f"{path_of(table)}/{directory}")
            return self.directories.read(table, directory, shape)
        except Exception as error:
            self.directories.discard(table, directory)
            if isinstance(error, TubeqError):
                raise
            msg = f"Spark could not write the rows, nothing was put: {reason_of(error)}"
            raise StoreError(msg) from error


#: The error of the numbering if a partition has more rows than were counted.
OVERRUN = "tubeq:overrun"
_POSITION_MASK = (1 << POSITION_BITS) - 1
#: The low bits of monotonically_increasing_id are the row's index in its partition.
_ROW_MASK = (1 << 33) - 1


@dataclass(frozen=True, slots=True)
class CountedFrame:
    """A checked DataFrame.

    Attributes:
        df: Its rows.
        payload: The columns of the payload.
        trace: The span that each task stores.
        bucket: The bucket of each row, as an expression.
        partitions: The number of rows of each non-empty partition.
        buckets: The number of rows of each bucket of sub-queues.
        keys: The number of rows with keys.
    """

    df: DataFrame
    payload: list[str]
    trace: str | None = None
    bucket: str = "0"
    partitions: Counter[int] = field(default_factory=Counter)
    buckets: Counter[int] = field(default_factory=Counter)
    keys: int = 0

    @property
    def total(self) -> int:
        """The number of its rows."""
        return self.partitions.total()

    @property
    def has_keys(self) -> bool:
        """Whether its rows may have keys."""
        return _has(self.df, "unique", self.payload)


def _has(df: DataFrame, name: str, payload: list[str]) -> bool:
    """Whether a DataFrame has the column of an option."""
    return name in df.columns and name not in payload


def bucket_of(df: DataFrame, payload: list[str]) -> str:
    """The bucket of each row in a tube with sub-queues, as `ids.hash_of` computes it."""
    if not _has(df, "utube", payload):
        return "0"
    text = "coalesce(CAST(utube AS STRING), '')"
    return f"CAST(crc32(CAST({text} AS BINARY)) % {BUCKETS} AS INT)"


def frame_rows(
    table: TubeTable, options: TubeOptions, frame: CountedFrame, numbering: Numbering
) -> DataFrame:
    """The rows that a put writes into a tube with some options (columns of `INSERTED`)."""
    df, payload = frame.df, frame.payload
    constants = _numbers(frame, numbering)
    numbered = df.selectExpr(
        *[identifier(name) for name in df.columns],
        *[f"{value} AS tubeq_{name}" for name, value in constants.items()],
    )

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
        "data": "data" if table.payload_columns is None else f"struct({fields})",
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
    return _with_key_rows(table, rows, numbering, numbering.key_segment)


def _with_key_rows(
    table: TubeTable, rows: DataFrame, numbering: Numbering, segment: int
) -> DataFrame:
    """As `rows.with_key_rows`. A union would number the partitions anew."""
    until_us = numbering.now_us + (table.unique_for_us or 0)
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


def _numbers(frame: CountedFrame, numbering: Numbering) -> dict[str, str]:
    """The numbers of each row, and those of the put, as expressions with the same generated code for all puts.

    A literal number is part of the code that Spark generates and compiles, but an array is only an argument
    of that code. With plain literals Spark would compile new code for each put.
    """
    numbers, layout, counts = numbering.numbers, numbering.layout, frame.partitions
    sizes = [counts[partition] for partition in range(max(counts) + 1)]
    groups = [layout.groups.get(bucket) for bucket in range(max(layout.groups) + 1)]

    def by_partition(values: Iterable[int]) -> str:
        return _element(values, "spark_partition_id()")

    def by_group(values: Iterable[int | None]) -> str:
        return _element(values, f"{frame.bucket} % {layout.buckets}")

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


def first_of_keys(frame: CountedFrame, stored: DataFrame) -> DataFrame:
    """The rows without a key, and the first row with each key that is not in `tubeq_stored`, in their order."""
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
    new = firsts.join(stored, F.expr("tubeq_key = tubeq_stored"), "left_anti")
    return new.orderBy("tubeq_order").selectExpr(*columns)


def count_rows(
    frame: CountedFrame, largest_payload: int, checks: Sequence[Check] = ()
) -> CountedFrame:
    """Check and count the rows of each partition and bucket: at most 256 numbers for each partition."""
    df, payload = frame.df, frame.payload
    columns = {
        "partition": "spark_partition_id()",
        "bucket": frame.bucket,
        "bytes": payload_size(df, payload),
        "key": identifier("unique") if _has(df, "unique", payload) else "NULL",
    }
    totals = {"rows": "count(*)", "keys": "count(key)", "bytes": "max(bytes)"}
    for i, check in enumerate(checks):
        columns[f"bad_{i}"] = check.shown
        totals |= {f"bad_{i}": f"count(bad_{i})", f"example_{i}": f"max(bad_{i})"}
    rows = df.selectExpr(*[f"{value} AS {name}" for name, value in columns.items()])
    sums = [F.expr(f"{total} AS {name}") for name, total in totals.items()]
    found = rows.groupBy("partition", "bucket").agg(*sums).collect()
    for i, check in enumerate(checks):
        bad = sum(row[f"bad_{i}"] for row in found)
        if bad:
            example = max(row[f"example_{i}"] for row in found if row[f"bad_{i}"])
            allowed = f"{check.allowed}; one of them is {shown(example)}"
            refuse(f"df column {check.column}", f"{bad} bad rows", allowed)
    largest = max((row["bytes"] for row in found), default=0)
    if largest > largest_payload:
        raise too_large("df", largest, largest_payload)
    partitions, buckets = Counter[int](), Counter[int]()
    for row in found:
        partitions[row["partition"]] += row["rows"]
        buckets[row["bucket"]] += row["rows"]
    keys = sum(row["keys"] for row in found)
    return replace(frame, partitions=partitions, buckets=buckets, keys=keys)
