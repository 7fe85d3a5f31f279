"""Spark: put_df, take_df and ack of a batch beside the bare Delta statements that these cannot do without.

The bare table has the columns, partitions and properties of a tube's. The statements do nothing of what makes a queue
safe: no lease, no check of what time has changed, no lock, no second look. The queue is at a path, so its commits are
native; with `engine="spark"` they are statements of Spark, as in a catalog.
"""

# ruff: noqa: S608  (names are quoted, values are numbers; both by the library's quoting)

from __future__ import annotations

import datetime as dt
import itertools
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from bench.measure import by_turns, timed
from tubeq_spark import Queue, QueueConfig, local_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from bench.measure import Round, Sizes
    from bench.report import Page
    from tubeq_spark import Tube

__all__ = ["measure"]

#: Columns of a tube's table that a put writes.
_PUT = ("segment", "tube", "task_id", "state", "pri", "data", "created", "attempts")
_NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_MOMENT = "TIMESTAMP'2026-01-01 00:00:00+00:00'"
#: Up to so many ids are text of the statement, more go as a DataFrame.
_INLINE = 200
_VIEW = "bench_rows"


def measure(page: Page, place: Path, sizes: Sizes) -> None:
    """Measure in a session of its own, and add a table to the page."""
    samples = page.compare("Spark", "s", ["bare statements"])
    spark = local_session("tubeq-bench")
    try:
        with (
            Queue(spark, str(place)) as queue,
            Queue(spark, f"{place}-by-spark", engine="spark") as by_spark,
        ):
            for batch in (1, sizes.batch):
                name = f"of_{batch}"
                tube, other = queue.create_tube(name), by_spark.create_tube(name)
                bare = f"delta.`{place.with_name(f'bare_{batch}')}`"
                create_like(spark, bare, f"delta.`{by_spark.location}/{name}`")
                subjects: list[tuple[str, Round]] = [
                    ("tubeq", partial(_queue_round, spark, tube, batch)),
                    ("tubeq, engine=spark", partial(_queue_round, spark, other, batch)),
                    ("bare statements", BareStatements(spark, bare, batch).round),
                ]
                rounds = sizes.rounds if batch > 1 else sizes.calls // 10
                title = f"spark, {batch:,} tasks"
                by_turns(title, subjects, rounds, samples, warm_up=sizes.rounds)
    finally:
        spark.stop()


def _queue_round(spark: SparkSession, tube: Tube, batch: int) -> Mapping[str, float]:
    """put_df, take_df, Batch.ack; the DataFrame is evaluated by the put."""
    frame = spark.range(batch).select(_payload(F.col("id")).alias("data"))
    taken = []

    def take() -> int:
        taken.append(tube.take_df(batch))
        return taken[0].count

    return {
        f"put_df of {batch:,}": timed(lambda: tube.put_df(frame).count, batch),
        f"take_df of {batch:,}": timed(take, batch),
        f"ack of {batch:,}": timed(taken[0].ack, batch),
    }


def create_like(spark: SparkSession, table: str, model: str) -> None:
    """Create an empty table with the columns, partitions and properties of another; both by SQL names."""
    detail = spark.sql(f"DESCRIBE DETAIL {model}").collect()[0]
    columns = spark.table(model).schema.toDDL()
    partitions = ", ".join(f"`{name}`" for name in detail["partitionColumns"])
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in detail["properties"].items())
    spark.sql(
        f"CREATE TABLE {table} ({columns}) USING delta "
        f"PARTITIONED BY ({partitions}) TBLPROPERTIES ({properties})"
    )


class BareStatements:
    """Bare statements on an empty table that `create_like` made."""

    def __init__(self, spark: SparkSession, table: str, batch: int) -> None:
        """Use a table by its SQL name."""
        self._spark, self._table, self._batch = spark, table, batch
        self._segment_rows = QueueConfig().segment_rows
        self._firsts = itertools.count(1_000_000_000, batch)
        self._lease_segments = itertools.count(-1_000_000_000, -1)

    def round(self) -> Mapping[str, float]:
        """Put, take and ack a batch."""
        first, lease, batch = next(self._firsts), next(self._lease_segments), self._batch
        rows = self._rows(first)
        return {
            f"put_df of {batch:,}": timed(lambda: self.put(first, rows), batch),
            f"take_df of {batch:,}": timed(lambda: self.take(lease), batch),
            f"ack of {batch:,}": timed(lambda: self.ack(lease), batch),
        }

    def put(self, first: int, rows: DataFrame) -> int:
        """Insert-only MERGE into segments of its own."""
        segments = range(first, first + self._batch, self._segment_rows)
        values = ", ".join(f"s.{name}" for name in _PUT)
        return self._merge(
            rows,
            f"ON t.segment IN ({', '.join(map(_long, segments))}) AND t.task_id = s.task_id "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(_PUT)}) VALUES ({values})",
        )

    def take(self, lease: int) -> int:
        """SELECT of the next tasks in order, MERGE that moves them by id to a lease segment."""
        ready = f"SELECT segment, task_id FROM {self._table} WHERE state = 'r' ORDER BY task_id"
        found = self._spark.sql(f"{ready} LIMIT {self._batch}").toArrow()
        ids = found["task_id"].to_pylist()
        segments = {*found["segment"].to_pylist(), lease}
        clauses = (
            f"ON t.segment IN ({', '.join(map(_long, segments))}) AND t.task_id = s.task_id AND t.state = 'r' "
            f"WHEN MATCHED THEN UPDATE SET segment = {lease}L, state = 't', "
            f"owner = 'bare', attempts = t.attempts + 1, since = {_MOMENT}, "
            f"claim = {lease}L"
        )
        if len(ids) > _INLINE:
            source = pa.table({"task_id": pa.array(ids, pa.int64())})
            return self._merge(self._spark.createDataFrame(source), clauses)
        rows = " UNION ALL ".join(f"SELECT {task_id}L AS task_id" for task_id in ids)
        return self._affected(f"MERGE INTO {self._table} t USING ({rows}) s {clauses}")

    def ack(self, lease: int) -> int:
        """DELETE of the lease segment's partition."""
        return self._affected(f"DELETE FROM {self._table} WHERE segment = {lease}L")

    def _rows(self, number: int) -> DataFrame:
        place, first = F.col("id"), F.lit(number).cast("bigint")
        columns = [
            first + place - place % self._segment_rows,
            F.lit(1).cast("bigint"),
            first + place,
            F.lit("r"),
            F.lit(0),
            _payload(place),
            F.lit(_NOW),
            F.lit(0),
        ]
        named = [column.alias(name) for name, column in zip(_PUT, columns, strict=True)]
        return self._spark.range(self._batch).select(*named)

    def _merge(self, source: DataFrame, clauses: str) -> int:
        source.createOrReplaceTempView(_VIEW)
        try:
            return self._affected(f"MERGE INTO {self._table} t USING {_VIEW} s {clauses}")
        finally:
            self._spark.catalog.dropTempView(_VIEW)

    def _affected(self, statement: str) -> int:
        return int(self._spark.sql(statement).collect()[0]["num_affected_rows"])


def _payload(number: Column) -> Column:
    """A payload as JSON text, in Spark."""
    url = F.concat(F.lit("http://example.org/page/"), number)
    return F.concat(F.lit('{"url":"'), url, F.lit('","depth":3}'))


def _long(number: int) -> str:
    """A BIGINT literal."""
    return f"{number}L"
