"""The directories below a table in which Spark writes the files of a put, before a commit of ours adds them.

Each is a Delta table with one commit of Spark. Nobody else writes there, so it is safe with any log store. Its log
is removed after our commit has added its files to the table. A sweep removes the log that a stopped put has left.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.disk import PUT
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.delta_log import versions
from tubeq_spark.storage.native.delta_log.actions import UnknownLogError
from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
from tubeq_spark.storage.statement import WrittenRows

if TYPE_CHECKING:
    from tubeq_spark.storage.native.delta_log.plain_table import PlainTable
    from tubeq_spark.storage.native.delta_log.snapshot import Shape
    from tubeq_spark.storage.native.handles import Handles

log = logging.getLogger(__name__)

_LOG = "_delta_log"
_FIRST = f"{_LOG}/{0:020}.json"
#: A version that was the newest within so many seconds is recent enough for the shape of a table.
_RECENT = 5.0


class PutDirectories:
    """The put directories of a native engine's tables."""

    def __init__(self, handles: Handles) -> None:
        """Use the tables of these handles."""
        self._handles = handles

    def shape(self, table: str) -> Shape:
        """The columns and properties that files must have so that our commit can add them, by a recent version.

        Raises:
            StoreError: Only the library writes the table.
        """
        # If the table has changed since, the rows do not `fit`, and are written again.
        recent = self._own(table).recent(_RECENT)
        return (recent or self._seen(table)[1]).shape

    @staticmethod
    def new_name() -> str:
        """The name of a new directory."""
        return f"{PUT}{uuid.uuid4()}"

    def read(self, table: str, directory: str, shape: Shape) -> WrittenRows:
        """The rows that Spark has written to a directory, for a table of a shape.

        Raises:
            StoreError: They do not exist, or are no plain files of such a table.
        """
        local = self._own(table)
        try:
            content = local.read(f"{directory}/{_FIRST}")
            found = Snapshot.first(0, versions.parsed(content, f"{directory}/{_FIRST}"))
        except OSError as error:
            msg = f"the files of the put cannot be read, nothing was put: {reason_of(error)}"
            raise StoreError(msg) from error
        except UnknownLogError as error:
            msg = (
                f"Spark has written the files of the put with features ({error}), nothing was put: the defaults "
                "for new tables in this session (spark.databricks.delta.properties.defaults.*) must not ask for any"
            )
            raise StoreError(msg) from error
        counts = [file.rows for file in found.files.values()]
        if None in counts:
            msg = "the files of the put have no statistics, nothing was put: spark.databricks.delta.stats.collect must be true"
            raise StoreError(msg)
        if (found.shape.by, found.shape.schema.names) != (shape.by, shape.schema.names):
            msg = (
                f"the files of the put have the columns {found.shape.schema.names}, nothing was put"
            )
            raise StoreError(msg)
        files = [replace(file, path=f"{directory}/{file.path}") for file in found.files.values()]
        return WrittenRows(directory, files, sum(count or 0 for count in counts), shape)

    def fit(self, table: str, rows: WrittenRows) -> bool:
        """Whether rows can still be added to a table."""
        local, newest = self._seen(table)
        with errors.reading():
            return rows.shape.is_like(newest.shape) and local.has(rows.files)

    def adopted(self, table: str, rows: WrittenRows) -> None:
        """Remove the log of a directory whose files a commit has added to the table."""
        self._remove(table, f"{rows.directory}/{_LOG}")

    def discard(self, table: str, directory: str) -> None:
        """Remove a directory. If the table has files of it, remove only its log."""
        try:
            newest = self._seen(table)[1]
        except Exception:
            log.warning("%s/%s is left to a sweep", table, directory, exc_info=True)
            return
        inside = f"{directory}/"
        if any(path.startswith(inside) for path in newest.files):
            directory = f"{directory}/{_LOG}"
        self._remove(table, directory)

    def _remove(self, table: str, path: str) -> None:
        try:
            self._own(table).remove(path)
        except Exception:
            log.warning("%s/%s is left to a sweep", table, path, exc_info=True)

    def _seen(self, table: str) -> tuple[PlainTable, Snapshot]:
        """A table with its newest version. Raises as `_own`."""
        with errors.reading():
            newest = self._handles.table(table).seen()
        local = self._own(table)
        if newest is None:
            raise _of_library(table)
        return local, newest

    def _own(self, table: str) -> PlainTable:
        """A table whose log this process writes by itself. It is not read.

        Raises:
            StoreError: The library writes it.
        """
        local = self._handles.table(table).local
        if local is None:
            raise _of_library(table)
        return local


def _of_library(table: str) -> StoreError:
    return StoreError(
        f"{table} has features, or is on storage, that only the library deltalake writes: it cannot add "
        "files that Spark has written; put the rows by put_arrow"
    )
