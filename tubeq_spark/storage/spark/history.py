"""Reads the history of a table: the notes of its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.model.times import US
from tubeq_spark.storage.outcome import PATTERN
from tubeq_spark.storage.spark.quoting import limited
from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row

#: The number of commits that the first read of a history has. Each further read has ten times as many.
_FIRST_LOOK = 200
#: The largest difference between the clocks of hosts and of the storage, in microseconds.
_SKEW = 15 * 60 * US


def read_history(history: DataFrame) -> DataFrame:
    """The commits of a table's history with their notes.

    Args:
        history: The result of DESCRIBE HISTORY.
    """
    predicate = F.try_element_at("operationParameters", F.lit("predicate"))
    # Commits of the native engine have a predicate, too, but their note is in the user metadata, as in Spark's appends.
    noted = F.when(F.col("userMetadata").startswith("tubeq "), F.col("userMetadata"))
    said = F.coalesce(noted, predicate, F.lit(""))

    def group(number: int) -> Column:
        return F.nullif(F.regexp_extract(said, PATTERN, number), F.lit(""))

    return history.select(
        "version",
        F.col("timestamp").alias("at"),
        group(1).alias("operation"),
        group(2).alias("session"),
        F.coalesce(group(4).cast("bigint"), _changed()).alias("tasks"),
        group(3).cast("int").alias("conflicts"),
        F.col("operation").alias("statement"),
    )


def _changed() -> Column:
    """The number of rows that a statement changed, from its metrics."""

    def metric(name: str) -> Column:
        return F.try_element_at("operationMetrics", F.lit(name)).cast("bigint")

    kinds = ("Inserted", "Updated", "Deleted")
    merged = [metric(f"numTargetRows{kind}") for kind in kinds]
    return F.coalesce(
        merged[0] + merged[1] + merged[2],
        metric("numDeletedRows"),
        metric("numUpdatedRows"),
        metric("numOutputRows"),
        # The name that the native engine uses for removals of whole segments.
        metric("num_deleted_rows"),
    )


def commits_since(
    read: Callable[[int], Sequence[Mapping[str, Any]]], sent_us: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the newest commits, back to one before a moment. Some commits are yielded twice.

    Args:
        read: Reads a number of the newest commits, the newest first, with `version` and `timestamp`.
        sent_us: The moment.

    Raises:
        StoreError: The log does not reach back to the moment any more.
    """
    before, limit = sent_us - _SKEW, _FIRST_LOOK
    while commits := read(limit):
        yield from commits
        oldest = commits[-1]
        if oldest["timestamp"] < before or oldest["version"] == 0:
            return
        if len(commits) < limit:
            msg = f"the log was cleaned: version {oldest['version']} is younger than the statement"
            raise StoreError(msg)
        limit *= 10


class Reads(Protocol):
    """The part of a `SparkEngine` that reads."""

    def frame(self, sql: str) -> DataFrame:
        """A query as a DataFrame that has not run yet."""

    def collect(self, frame: DataFrame) -> list[Row]:
        """The rows of a small DataFrame."""


def newest(engine: Reads, table: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """Some columns of the newest commits to a table, with their `timestamp` in microseconds; the newest first."""
    found = engine.frame(f"DESCRIBE HISTORY {table} {limited(limit)}")
    rows = found.select(*columns, F.unix_micros("timestamp").alias("timestamp"))
    return [row.asDict() for row in engine.collect(rows)]


def changed_rows(metrics: Mapping[str, str]) -> Affected | None:
    """The rows changed by a commit, from its metrics; `None` if they are missing."""
    names = (
        ("numTargetRowsInserted", "numOutputRows"),
        ("numTargetRowsUpdated", "numUpdatedRows"),
        ("numTargetRowsDeleted", "numDeletedRows"),
    )
    if not any(name in metrics for pair in names for name in pair):
        return None
    numbers = (next((int(metrics[n]) for n in pair if n in metrics), 0) for pair in names)
    return Affected(*numbers)
