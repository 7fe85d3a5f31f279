"""Reads the history of a table: the notes of its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.model.times import US
from tubeq_spark.storage.spark.quoting import limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row

#: The number of commits that the first read of a history has. Each further read has ten times as many.
_FIRST_LOOK = 200
#: The largest difference between the clocks of hosts and of the storage, in microseconds.
_SKEW = 15 * 60 * US


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


def newest(engine: Reads, table: str, limit: int) -> list[dict[str, Any]]:
    """The newest commits to a table for `read_commit`, the newest first."""
    found = engine.frame(f"DESCRIBE HISTORY {table} {limited(limit)}")
    columns = ("version", "operation", "userMetadata", "operationParameters", "operationMetrics")
    rows = found.select(*columns, F.unix_micros("timestamp").alias("timestamp"))
    return [row.asDict() for row in engine.collect(rows)]
