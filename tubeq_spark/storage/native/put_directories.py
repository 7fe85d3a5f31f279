"""The directories below a table in which Spark writes the files of a put, before a commit of ours adds them.

Nobody else writes to such a directory. A sweep removes what a stopped put has left there.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.disk import PUT
from tubeq_spark.storage.log.log_files import checksum_of
from tubeq_spark.storage.native import handles
from tubeq_spark.storage.statement import WrittenRows

if TYPE_CHECKING:
    from tubeq_spark.storage.log.snapshot import Shape
    from tubeq_spark.storage.native.handles import Handles

log = logging.getLogger(__name__)

#: A version that was the newest within this many seconds is recent enough for the shape of a table.
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
        with handles.telling():
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
            StoreError: They cannot be read.
        """
        opened = self._handles.table(table)
        try:
            files = opened.written(directory, shape)
            if not opened.is_far:
                # Hadoop's checksums are not synced. Spark reads a file without one, but not beside a wrong one.
                opened.store.delete([str(checksum_of(Path(file.path))) for file in files])
        except (OSError, pa.ArrowException) as error:
            msg = f"the files of the put cannot be read, nothing was put: {reason_of(error)}"
            raise StoreError(msg) from error
        return WrittenRows(directory, files, sum(file.rows or 0 for file in files), shape)

    def fit(self, table: str, rows: WrittenRows) -> bool:
        """Whether rows can still be added to a table."""
        opened = self._handles.table(table)
        with handles.reading():
            return rows.shape.is_like(opened.newest().shape) and opened.has(rows.files)

    def discard(self, table: str, directory: str) -> None:
        """Remove a directory, unless the table has files of it."""
        opened, inside = self._handles.table(table), f"{directory}/"
        try:
            with handles.reading():
                newest = opened.newest()
            if not any(path.startswith(inside) for path in newest.files):
                opened.remove(directory)
        except Exception:
            log.warning("%s/%s is left to a sweep", table, directory, exc_info=True)
