"""Creates, changes and measures Delta tables through Spark."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrameWriter
from pyspark.sql import types as T

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability.synced_log import synced_log_of
from tubeq_spark.storage.engine import Extent, Outcome, Tables
from tubeq_spark.storage.location import local_directory, path_of
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.native.plain_table import LocalTable
from tubeq_spark.storage.spark.conflicts import classify, is_missing_table
from tubeq_spark.storage.spark.quoting import bigint, string
from tubeq_spark.storage.spark.render import creation_of, view_of_taken_utubes
from tubeq_spark.storage.statement import Commit, read_commit
from tubeq_spark.storage.tables.schema import LOG_RETENTION, NewTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tubeq_spark.storage.spark.reads import SparkReads

log = logging.getLogger(__name__)

#: Seconds between the attempts to create a table that others may be creating.
_CREATION_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

#: The names of the table feature for catalog-managed commits: the present one, and that of Delta 4.0.0.
_CATALOG_MANAGED = frozenset({"catalogManaged", "catalogOwned-preview"})
_FEATURE = "delta.feature."


class SparkTables(Tables):
    """The tables of a `SparkEngine`."""

    def __init__(self, engine: SparkReads) -> None:
        """Use an engine for queries and statements."""
        self._engine = engine

    # -- making and changing -----------------------------------------------------------------

    def create(self, table: NewTable) -> bool:
        """Create a table if it does not exist, and return whether it did not. Another creator meanwhile is no error.

        Delta makes the directory of the log before the first commit. In between, a second CREATE fails,
        or silently does nothing.

        Raises:
            StoreError: The place of the table has something else, or what is left of a program that was stopped
                before the first commit.
        """
        is_new = not self.is_table(table.name)
        for wait in _CREATION_WAITS:
            if self._is_first(creation_of(table)) and self.is_table(table.name):
                return is_new
            SystemClock().sleep(wait)
        raise StoreError(
            f"{table.name} cannot be created: there is something else in its place, perhaps of a program that was "
            "stopped before it had created the table: remove it"
        )

    def show_taken_utubes(self, table: str) -> None:
        """Show the taken sub-queues of a tube by a view, if the table has a name in a catalog."""
        if path_of(table) is not None:
            return
        try:
            self._engine.own.sql(view_of_taken_utubes(table))
        except AnalysisException:
            # The tube needs no view, and some principals may create tables only.
            log.warning("there is no view of the taken sub-queues of %s", table, exc_info=True)

    def set_property(self, table: str, name: str, value: str) -> bool:
        """Set a table property; False if another commit came first."""
        return self._is_first(
            f"ALTER TABLE {table} SET TBLPROPERTIES ({string(name)} = {string(value)})"
        )

    def _is_first(self, statement: str) -> bool:
        """Run a statement; false if another commit came first."""
        try:
            self._engine.own.sql(statement)
        except Exception as error:
            if classify(error) is not Outcome.CONFLICT:
                raise
            return False
        return True

    def vacuum(self, table: str, *, purges: bool = False) -> None:
        """Remove the files that no kept version of a table needs, and the old part of its log.

        On other storage than local files Delta removes the old part when it writes a checkpoint.

        Raises:
            StoreError: Delta cannot remove files of old versions without those of running writes.
        """
        if purges:
            raise StoreError(
                "a purge needs native commits: Delta's VACUUM would remove files of running writes"
            )
        # All writers of the table wait for it.
        with self._engine.hurried(table):
            self._engine.own.sql(f"VACUUM {table}")
        path = path_of(table)
        directory = None if path is None else local_directory(path)
        if directory is None or not directory.is_dir():
            # The table is elsewhere, or on another host.
            return
        hours = hours_of(self.properties(table), LOG_RETENTION)
        if hours is not None:
            kept = SystemClock().now().timestamp() - hours * 3600
            newest = synced_log_of(directory).newest_since()
            LocalTable(directory).tidying.shorten(newest, kept)

    def has_payload(self, table: str, payload: str | None) -> bool:
        """Whether the table of a tube has this payload type."""
        try:
            schema = self._engine.frame(f"SELECT * FROM {table}").schema
        except AnalysisException as error:
            raise StoreError(
                f"{table} cannot be used: there is something else in its place: {reason_of(error)}"
            ) from None
        if not {"data", "tube"} <= {*schema.names}:
            raise StoreError(f"{table} cannot be used: it is not the table of a tube")
        wanted = T.StringType() if payload is None else T.StructType.fromDDL(payload)
        return schema["data"].dataType == wanted

    @staticmethod
    def refused_columns(error: BaseException) -> str | None:
        """The reason why a table cannot have its columns; `None` if its creation failed for another reason."""
        refused = error if isinstance(error, AnalysisException) else error.__cause__
        return reason_of(refused) if isinstance(refused, AnalysisException) else None

    # -- looking ------------------------------------------------------------------------------

    def is_table(self, name: str) -> bool:
        """Whether a table exists; false if its log has no commit yet."""
        try:
            with self._engine.reading():
                return bool(self._engine.own.sql(f"SELECT * FROM {name}").columns)
        except AnalysisException as error:
            if is_missing_table(error):
                return False
            raise

    def properties(self, table: str) -> Mapping[str, str | None]:
        """The properties of a table."""
        found = self._engine.sql_rows(f"SHOW TBLPROPERTIES {table}")
        return {row["key"]: row["value"] for row in found}

    def is_catalog_managed(self, table: str) -> bool:
        """Whether the catalog manages a table's commits, and alone may clean it up."""
        detail = self._engine.sql_rows(f"DESCRIBE DETAIL {table}")[0]
        names = (*(detail["tableFeatures"] or ()), *detail["properties"])
        return any(name.removeprefix(_FEATURE) in _CATALOG_MANAGED for name in names)

    def extent(self, table: str) -> Extent:
        """Measure a table. Spark itself writes the checkpoints, so nobody asks for the commits since the last one."""
        (detail,) = self._engine.sql_rows(f"DESCRIBE DETAIL {table}")
        version, committed_us = self.last_commit(table)
        return Extent(detail["numFiles"], detail["sizeInBytes"], version, committed_us, None)

    def segment_bytes(self, table: str, segments: Collection[int]) -> Mapping[int, int]:
        """The size of the data files of some segments of a tube, by Spark's metadata."""
        found = self._engine.sql_rows(
            "SELECT segment, sum(size) AS size FROM (SELECT DISTINCT segment, _metadata.file_path, "
            f"_metadata.file_size AS size FROM {table} "
            f"WHERE segment IN ({', '.join(map(bigint, segments))})) GROUP BY segment"
        )
        return {row["segment"]: row["size"] for row in found}

    def commits(self, table: str, limit: int) -> list[Commit]:
        """The newest commits to a table, the newest first."""
        return [read_commit(row) for row in self._engine.newest(table, limit)]


def save(writer: DataFrameWriter, table: str) -> None:
    """Write to a table by its name or its path."""
    path = path_of(table)
    if path is None:
        writer.saveAsTable(table)
    else:
        writer.save(path)
