"""The directories below a table in which Spark writes the files of a put, before a commit of ours adds them.

Each is a Delta table with one commit of Spark. Nobody else writes there, so it is safe with any log store. Its log
is removed after our commit has added its files to the table. A sweep removes the log that a stopped put has left.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.disk import PUT
from tubeq_spark.storage.log import versions
from tubeq_spark.storage.log.actions import UnknownLogError
from tubeq_spark.storage.log.log_files import LOG
from tubeq_spark.storage.log.names import checksum_of
from tubeq_spark.storage.log.snapshot import Snapshot
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.statement import WrittenRows

if TYPE_CHECKING:
    from tubeq_spark.storage.log.snapshot import Shape
    from tubeq_spark.storage.native.handles import Handles

log = logging.getLogger(__name__)

_FIRST = f"{LOG}/{0:020}.json"
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
            StoreError: The table has features, so our commits do not write it.
        """
        opened = self._handles.table(table)
        # If the table has changed since, the rows do not `fit`, and are written again.
        with errors.telling():
            recent = opened.recent(_RECENT) or opened.newest()
            recent.shape.require_writable()
        return recent.shape

    @staticmethod
    def new_name() -> str:
        """The name of a new directory."""
        return f"{PUT}{uuid.uuid4()}"

    def read(self, table: str, directory: str, shape: Shape) -> WrittenRows:
        """The rows that Spark has written to a directory, for a table of a shape.

        Raises:
            StoreError: They do not exist, or are no plain files of such a table.
        """
        opened = self._handles.table(table)
        try:
            content = opened.read(f"{directory}/{_FIRST}")
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
        if not opened.is_far:
            # Hadoop's checksums are not synced. Spark reads a file without one, but not beside a wrong one.
            opened.store.delete([str(checksum_of(Path(file.path))) for file in files])
        return WrittenRows(directory, files, sum(count or 0 for count in counts), shape)

    def fit(self, table: str, rows: WrittenRows) -> bool:
        """Whether rows can still be added to a table."""
        opened = self._handles.table(table)
        with errors.reading():
            return rows.shape.is_like(opened.newest().shape) and opened.has(rows.files)

    def adopted(self, table: str, rows: WrittenRows) -> None:
        """Remove the log of a directory whose files a commit has added to the table."""
        self._remove(table, f"{rows.directory}/{LOG}")

    def discard(self, table: str, directory: str) -> None:
        """Remove a directory. If the table has files of it, remove only its log."""
        try:
            with errors.reading():
                newest = self._handles.table(table).newest()
        except Exception:
            log.warning("%s/%s is left to a sweep", table, directory, exc_info=True)
            return
        inside = f"{directory}/"
        if any(path.startswith(inside) for path in newest.files):
            directory = f"{directory}/{LOG}"
        self._remove(table, directory)

    def _remove(self, table: str, path: str) -> None:
        try:
            self._handles.table(table).remove(path)
        except Exception:
            log.warning("%s/%s is left to a sweep", table, path, exc_info=True)
