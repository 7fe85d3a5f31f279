"""The floor: the bare Delta statements that a put, take and ack cannot do without.

The table has the columns, partitions and properties of a tube's. The statements do nothing of what
makes a queue safe: no lease, no check of what time has changed, no lock, no second look.
"""

# ruff: noqa: S608  (names are quoted, values are numbers; both by the library's quoting)

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from bench.plan import Form
from bench.spark.frames import latest_version, payload_column
from bench.subjects import PUT_COLUMNS, new_rows
from tubeq_spark.tables import bigint, bigints, identifier, string

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Floor", "create_like"]

_NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_MOMENT = "TIMESTAMP'2026-01-01 00:00:00+00:00'"
#: Up to so many ids are text of the statement, more go as a DataFrame.
_INLINE = 200
_VIEW = "bench_rows"


def create_like(spark: SparkSession, table: str, model: str) -> None:
    """Create an empty table with the columns, partitions and properties of another.

    Args:
        spark: The session.
        table: SQL name of the new table.
        model: SQL name of the other.
    """
    detail = spark.sql(f"DESCRIBE DETAIL {model}").collect()[0]
    columns = spark.table(model).schema.toDDL()
    partitions = ", ".join(identifier(name) for name in detail["partitionColumns"])
    properties = ", ".join(
        f"{string(name)} = {string(value)}" for name, value in detail["properties"].items()
    )
    spark.sql(
        f"CREATE TABLE {table} ({columns}) USING delta "
        f"PARTITIONED BY ({partitions}) TBLPROPERTIES ({properties})"
    )


class Floor:
    """Bare statements on a table that `create_like` made."""

    def __init__(
        self, spark: SparkSession, table: str, form: Form, batch: int, segment_rows: int
    ) -> None:
        """Measure an empty table.

        Args:
            spark: The session.
            table: SQL name of the table.
            form: Whether the rows come from the driver, or are a DataFrame anyway.
            batch: Tasks in a batch.
            segment_rows: Rows of a segment.
        """
        self._spark = spark
        self._table = table
        self._form = form
        self._batch = batch
        self._segment_rows = segment_rows
        self._firsts = itertools.count(1_000_000_000, batch)
        self._lease_segments = itertools.count(-1_000_000_000, -1)
        self._first = self._lease_segment = 0
        self._source: Callable[[], DataFrame] = self._frame

    def prepare(self) -> None:
        """Make the rows, ids included; what Spark has to do about them is measured."""
        self._first, self._lease_segment = next(self._firsts), next(self._lease_segments)
        if self._form is Form.MANY:
            table = new_rows(self._first, self._batch, self._segment_rows)
            self._source = lambda: self._spark.createDataFrame(table)
        else:
            frame = self._frame()
            self._source = lambda: frame

    def put(self) -> int:
        """Insert-only MERGE into segments of its own."""
        rows = self._source()
        segments = range(self._first, self._first + self._batch, self._segment_rows)
        values = ", ".join(f"s.{name}" for name in PUT_COLUMNS)
        return self._merge(
            rows,
            f"ON t.segment IN ({bigints(segments)}) AND t.task_id = s.task_id "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(PUT_COLUMNS)}) VALUES ({values})",
        )

    def take(self) -> int:
        """SELECT of the next tasks in order, MERGE that moves them by id to a lease segment."""
        columns = "*" if self._form is Form.MANY else "segment, task_id"
        ready = f"SELECT {columns} FROM {self._table} WHERE state = 'r' ORDER BY task_id"
        found = self._spark.sql(f"{ready} LIMIT {self._batch}").toArrow()
        ids = found["task_id"].to_pylist()
        segments = {*found["segment"].to_pylist(), self._lease_segment}
        clauses = (
            f"ON t.segment IN ({bigints(segments)}) AND t.task_id = s.task_id AND t.state = 'r' "
            f"WHEN MATCHED THEN UPDATE SET segment = {bigint(self._lease_segment)}, state = 't', "
            f"owner = 'floor', attempts = t.attempts + 1, taken_at = {_MOMENT}, "
            f"claim = {bigint(self._lease_segment)}"
        )
        if len(ids) > _INLINE:
            source = pa.table({"task_id": pa.array(ids, pa.int64())})
            return self._merge(self._spark.createDataFrame(source), clauses)
        rows = " UNION ALL ".join(f"SELECT {bigint(task_id)} AS task_id" for task_id in ids)
        return self._affected(f"MERGE INTO {self._table} t USING ({rows}) s {clauses}")

    def ack(self) -> int:
        """DELETE of the lease segment's partition."""
        return self._affected(
            f"DELETE FROM {self._table} WHERE segment = {bigint(self._lease_segment)}"
        )

    def version(self) -> int:
        """The latest version of the table."""
        return latest_version(self._spark, self._table)

    def _frame(self) -> DataFrame:
        place, first = F.col("id"), F.lit(self._first).cast("bigint")
        columns = [
            first + place - place % self._segment_rows,
            F.lit(1).cast("bigint"),
            first + place,
            F.lit("r"),
            F.lit(0),
            payload_column("id"),
            F.lit(_NOW),
            F.lit(0),
        ]
        named = [c.alias(name) for name, c in zip(PUT_COLUMNS, columns, strict=True)]
        return self._spark.range(self._batch).select(*named)

    def _merge(self, source: DataFrame, clauses: str) -> int:
        source.createOrReplaceTempView(_VIEW)
        try:
            return self._affected(f"MERGE INTO {self._table} t USING {_VIEW} s {clauses}")
        finally:
            self._spark.catalog.dropTempView(_VIEW)

    def _affected(self, statement: str) -> int:
        return int(self._spark.sql(statement).collect()[0]["num_affected_rows"])
