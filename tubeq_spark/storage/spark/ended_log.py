"""Reads totals and notes of ended tasks by Spark, from the log of a table on any storage.

No query of Delta shows transaction ids of applications, so this module reads the files of the log:
the last checkpoints first, then the commits. If a catalog does not show the directory of a table,
only the history is left: notes, as far back as it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.ended import told_total, total
from tubeq_spark.storage.ended_log import EndedLog, notes_of
from tubeq_spark.storage.table_names import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame, Row, SparkSession

__all__ = ["read_log"]

_TXN = "txn STRUCT<appId: STRING, version: BIGINT, lastUpdated: BIGINT>"
_TEXTS = "MAP<STRING, STRING>"
_SAID = f"userMetadata: STRING, operationParameters: {_TEXTS}, operationMetrics: {_TEXTS}"
_COLUMNS = ("version", "userMetadata", "operationParameters", "operationMetrics")


class _Engine(Protocol):
    """The used part of a `SparkEngine`."""

    unreachable: bool

    @property
    def own(self) -> SparkSession: ...
    def reading(self) -> AbstractContextManager[None]: ...
    def sql_rows(self, sql: str) -> list[dict[str, Any]]: ...
    def frame(self, sql: str) -> DataFrame: ...
    def collect(self, frame: DataFrame) -> list[Row]: ...


def read_log(engine: _Engine, table: str, tube: int, *, for_sum: bool) -> EndedLog:
    """The totals and notes in the log of a tube's table; arguments as for `Tables.ended_log`."""
    try:
        with engine.reading():
            return _by_files(engine, _log_of(engine, table), tube)
    except (AnalysisException, StoreError):
        if engine.unreachable:
            raise
    # What is added up could not be read.
    notes = [] if for_sum else notes_of(tube, _history(engine, table))
    return EndedLog(0, 0, None, notes, -1)


def _log_of(engine: _Engine, table: str) -> str:
    path = path_of(table) or engine.sql_rows(f"DESCRIBE DETAIL {table}")[0]["location"]
    return f"{path}/_delta_log"


def _by_files(engine: _Engine, log: str, tube: int) -> EndedLog:
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
    # A checkpoint of some kinds is JSON, too.
    newest_first = sorted((row for row in said if row["version"]), key=_version, reverse=True)
    version = _version(newest_first[0]) if newest_first else -1
    return EndedLog(by_app[apps[0]][0], *by_app[apps[1]], notes_of(tube, newest_first), version)


def _tells() -> Column:
    """Whether a commit has a note, or has added up notes."""
    predicate = F.try_element_at("operationParameters", F.lit("predicate"))
    return predicate.contains(" ended=") | F.col("userMetadata").contains(" read=")


def _version(row: Mapping[str, Any]) -> int:
    return int(row["version"])


def _history(engine: _Engine, table: str) -> list[dict[str, Any]]:
    history = engine.frame(f"DESCRIBE HISTORY {table}").select(*_COLUMNS).where(_tells())
    return [row.asDict() for row in engine.collect(history.orderBy(F.desc("version")))]
