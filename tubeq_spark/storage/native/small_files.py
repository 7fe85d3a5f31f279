"""Reads the rows of a few small files without a query, because planning one takes longer.

The rows are cached for a while: a file never changes, and the statement of a take changes the rows
from which the take has chosen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage.arrow_arrays import array, repeated
from tubeq_spark.storage.native.file_statistics import files_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyarrow.parquet import FileMetaData, ParquetFile

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.native.delta_log.table import LocalTable

__all__ = ["Listed", "SmallFiles"]

#: So many files are read without a query, and so many bytes of all of them together.
FILES, BYTES = 64, 1 << 20
#: A file whose rows are more bytes than this is not small: what repeats may be little in a file.
ROWS_BYTES = 4 << 20
#: What was read is kept: so many files, and so many bytes.
_KEPT_FILES, _KEPT_BYTES = 256, ROWS_BYTES
#: Where the rows of a file may be more bytes than this, so many are read at a time.
_AT_ONCE, _BATCH = 64 << 20, 1024


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of a version to read, and the columns of its table."""

    directory: Path
    files: Sequence[DataFile]
    schema: pa.Schema


class SmallFiles:
    """The small files of some tables. Thread-safe."""

    def __init__(self) -> None:
        """Begin with an empty cache."""
        #: What was read last is last; `None`: it is not small.
        self._kept: OrderedDict[Path, pa.Table | None] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @staticmethod
    def listed(
        table: LocalTable,
        version: Snapshot,
        near: Mapping[str, Sequence[int]],
        where: Expression | None = None,
    ) -> Listed | None:
        """The files of a version of the table to read.

        Args:
            table: The table.
            version: The version.
            near: The values of partition columns, as of a `Statement`; none: in all partitions.
            where: A condition; files that have no row of it may be left out.

        Returns:
            The files; `None`: there are too many.
        """
        may_hold = files_of(where, version.shape.schema)
        files, size = [], 0
        for file in version.within(near):
            if may_hold(file):
                files.append(file)
                size += file.size
                if len(files) > FILES or size > BYTES:
                    return None
        return Listed(table.directory, files, version.shape.schema)

    def rows(self, listed: Listed) -> pa.Table | None:
        """The rows of some files; `None` if they are missing, not small, or not ours."""
        parts = []
        for file in listed.files:
            rows = self._rows_of(listed.directory / file.path, file, listed.schema)
            if rows is None:
                return None
            parts.append(rows)
        return pa.concat_tables(parts) if parts else pa.Table.from_batches([], listed.schema)

    def _rows_of(self, path: Path, file: DataFile, schema: pa.Schema) -> pa.Table | None:
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
                rows = self._kept[path]
                if rows is None or rows.schema == schema:
                    return rows
        try:
            rows = _read(path, file.partition, schema)
        except _LargeError:
            rows = None
        except (OSError, pa.ArrowException):
            return None
        self._keep(path, rows)
        return rows

    def keep(self, path: Path, rows: pa.Table) -> None:
        """Cache the rows of a new file if it is small.

        They are copied: a program may change what it has put, and a part of a table keeps all of it.
        """
        if rows.nbytes <= ROWS_BYTES:
            self._keep(path, rows.take(array(range(rows.num_rows), pa.int64())))

    def _keep(self, path: Path, rows: pa.Table | None) -> None:
        with self._lock:
            self._bytes += _size(rows) - _size(self._kept.pop(path, None))
            self._kept[path] = rows
            while self._bytes > _KEPT_BYTES or len(self._kept) > _KEPT_FILES:
                self._bytes -= _size(self._kept.popitem(last=False)[1])

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0


class _LargeError(Exception):
    """The rows of a file are not small."""


def _size(rows: pa.Table | None) -> int:
    return 0 if rows is None else rows.nbytes


def _read(path: Path, partition: Mapping[str, int | None], schema: pa.Schema) -> pa.Table | None:
    # Imported where it is needed: what only puts does without.
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    with pa.OSFile(str(path)) as source, ParquetFile(source) as file:
        found = _decoded(file)
    columns = []
    for field in schema:
        if field.name in partition:
            value = partition[field.name]
            columns.append(repeated(value, field.type, found.num_rows))
            continue
        place = found.schema.get_field_index(field.name)
        if place < 0 or found.schema.field(place).type != field.type:
            return None
        columns.append(found.column(place))
    return pa.Table.from_arrays(columns, schema=schema)


def _decoded(file: ParquetFile) -> pa.Table:
    """All rows of a file.

    Raises:
        _LargeError: They are not small.
    """
    if _most_bytes(file.metadata) <= _AT_ONCE:
        rows = file.read(use_threads=False)
    else:
        batches, size = [], 0
        for batch in file.iter_batches(_BATCH, use_threads=False):
            size += batch.nbytes
            if size > ROWS_BYTES:
                raise _LargeError
            batches.append(batch)
        rows = pa.Table.from_batches(batches, file.schema_arrow).combine_chunks()
    if rows.nbytes > ROWS_BYTES:
        raise _LargeError
    return rows


def _most_bytes(metadata: FileMetaData) -> int:
    """An upper bound for the bytes of its rows: each text may be as long as all of them."""
    most = 0
    for n in range(metadata.num_row_groups):
        group = metadata.row_group(n)
        for column in map(group.column, range(metadata.num_columns)):
            each = column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else 8
            most += column.num_values * each
    return most
