"""Reads the history of a table: the notes of its commits, and the numbers of tasks that they have ended.

No query of Delta shows transaction ids of applications, so this module reads the files of the log:
the last checkpoints first, then the commits. If a catalog does not show the directory of a table,
only the notes in the history are left, as far back as it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.model.times import US
from tubeq_spark.storage.ended import EndedLog, notes_of, told_total, total
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.outcome import PATTERN
from tubeq_spark.storage.spark.quoting import limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame, Row, SparkSession

_TXN = "txn STRUCT<appId: STRING, version: BIGINT, lastUpdated: BIGINT>"
_TEXTS = "MAP<STRING, STRING>"
_SAID = f"userMetadata: STRING, operationParameters: {_TEXTS}, operationMetrics: {_TEXTS}"
_COLUMNS = ("version", "userMetadata", "operationParameters", "operationMetrics")
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

    unreachable: bool

    @property
    def own(self) -> SparkSession:
        """The session for the queue's own small statements."""

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads tables, and turn errors of Spark into ours."""

    def sql_rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a small query, given as SQL."""

    def frame(self, sql: str) -> DataFrame:
        """A query as a DataFrame that has not run yet."""

    def collect(self, frame: DataFrame) -> list[Row]:
        """The rows of a small DataFrame."""


def newest(engine: Reads, table: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """Some columns of the newest commits to a table, with their `timestamp` in microseconds; the newest first."""
    found = engine.frame(f"DESCRIBE HISTORY {table} {limited(limit)}")
    rows = found.select(*columns, F.unix_micros("timestamp").alias("timestamp"))
    return [row.asDict() for row in engine.collect(rows)]


def read_log(engine: Reads, table: str, tube: int, *, for_sum: bool) -> EndedLog:
    """The totals and notes in the log of a tube's table; arguments as for `Tables.ended_log`."""
    try:
        with engine.reading():
            return _by_files(engine, _log_of(engine, table), tube)
    except (AnalysisException, StoreError):
        if engine.unreachable:
            raise
    # Without the log no sum of notes can be read, so no notes can be added up.
    notes = [] if for_sum else notes_of(tube, _history(engine, table))
    return EndedLog(0, 0, None, notes, -1)


def _log_of(engine: Reads, table: str) -> str:
    path = path_of(table) or engine.sql_rows(f"DESCRIBE DETAIL {table}")[0]["location"]
    return f"{path}/_delta_log"


def _by_files(engine: Reads, log: str, tube: int) -> EndedLog:
    apps = [total(tube), told_total(tube)]
    is_total, files = F.col("txn.appId").isin(apps), engine.own.read
    checkpoints = files.schema(_TXN).option("pathGlobFilter", "*.checkpoint*.parquet").parquet(log)
    totals = engine.collect(checkpoints.where(is_total).select("txn"))
    commits = files.schema(f"{_TXN}, commitInfo STRUCT<{_SAID}>").option("pathGlobFilter", "*.json")
    number = F.regexp_extract("_metadata.file_path", r"/(\d{20})\.json$", 1)
    lines = commits.json(log).select("txn", "commitInfo.*", number.alias("version"))
    said = [row.asDict() for row in engine.collect(lines.where(is_total | _tells()))]
    by_app: dict[str, tuple[int, int | None]] = dict.fromkeys(apps, (0, None))
    for found in [row["txn"] for row in totals] + [line["txn"] for line in said if line["txn"]]:
        if found.version >= by_app[found.appId][0]:
            by_app[found.appId] = (found.version, found.lastUpdated)
    # Some kinds of checkpoints are JSON, too.
    newest_first = sorted((row for row in said if row["version"]), key=_version, reverse=True)
    version = _version(newest_first[0]) if newest_first else -1
    return EndedLog(by_app[apps[0]][0], *by_app[apps[1]], notes_of(tube, newest_first), version)


def _tells() -> Column:
    """The condition for commits that have a note of ended tasks, or have added up notes."""
    predicate = F.try_element_at("operationParameters", F.lit("predicate"))
    return predicate.contains(" ended=") | F.col("userMetadata").contains(" read=")


def _version(row: Mapping[str, Any]) -> int:
    return int(row["version"])


def _history(engine: Reads, table: str) -> list[dict[str, Any]]:
    history = engine.frame(f"DESCRIBE HISTORY {table}").select(*_COLUMNS).where(_tells())
    return [row.asDict() for row in engine.collect(history.orderBy(F.desc("version")))]
