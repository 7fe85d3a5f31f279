"""Reads the files of a table, some columns or all, and caches the rows of small files for a while.

Files never change, and the statement of a take reads the same rows from which the take has chosen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tubeq_spark.storage.arrow.columns import array, empty, repeated
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.fold import columns_read
from tubeq_spark.storage.log.data_files import PART_BYTES
from tubeq_spark.storage.native.file_statistics import constants, files_of, least
from tubeq_spark.storage.store.store import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow.parquet import FileMetaData, ParquetFile

    from tubeq_spark.storage.arrow.fold import Bound
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.native.file_statistics import MayHold
    from tubeq_spark.storage.native.plain_table import PlainTable
    from tubeq_spark.storage.query import Select

#: A read of at most this many files with at most this many bytes together reads and caches all columns.
FILES, BYTES = 64, 1 << 20
#: A larger read still does so for files of at most this many bytes.
_SMALL = 64 << 10
#: So many of the files that were added last are fetched together.
_LAST = 32
#: Rows of more bytes than this are not cached. A part of a query ends as soon as its rows have more.
ROWS_BYTES = 4 << 20
#: The cache has at most this many files, and this many bytes of rows.
_KEPT_FILES, _KEPT_BYTES = 256, ROWS_BYTES
#: If the rows of a file may have more than `_AT_ONCE` bytes, `_BATCH` rows are read at a time.
_AT_ONCE, _BATCH = 64 << 20, 1024


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of a version to read, and the columns of its table."""

    table: PlainTable
    files: Sequence[DataFile]
    schema: pa.Schema

    @property
    def is_small(self) -> bool:
        """Whether the files are few, and small together."""
        return len(self.files) <= FILES and sum(file.size for file in self.files) <= BYTES

    def narrowed(self, where: Expression) -> Listed:
        """The same without the files that have no row for a condition."""
        may_hold = files_of(where, self.schema)
        return Listed(self.table, [file for file in self.files if may_hold(file)], self.schema)


#: Stands for an entry that is not in the cache.
_NOTHING: tuple[pa.Table | None, int] = (None, 0)
#: Cached rows may keep buffers of this many times their own bytes, or of this many bytes.
_SPARE, _SHARED = 2, 16 << 10


class FilesRows(NamedTuple):
    """The rows of some files, and whether they are the last that are read."""

    files: Sequence[DataFile]
    rows: pa.Table
    are_last: bool


class SmallFiles:
    """Reads files of tables, and caches the rows of small ones. Thread-safe."""

    def __init__(self) -> None:
        """Begin with an empty cache."""
        #: The rows of each file and their bytes; the file that was read last is last.
        self._kept: OrderedDict[str, tuple[pa.Table, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def parts(self, listed: Listed) -> Iterator[FilesRows]:
        """The rows of some files, as few files at a time as have half of `PART_BYTES`. Raises as `read`."""
        self.fetch(listed, listed.files)
        files: list[DataFile] = []
        rows: list[pa.Table] = []
        keeps, size = listed.is_small, 0
        for file in listed.files:
            if files and size >= PART_BYTES // 2:
                yield FilesRows(files, pa.concat_tables(rows), are_last=False)
                files, rows, size = [], [], 0
            files.append(file)
            rows.append(self._whole(listed, file, keeps=keeps))
            # To count the bytes of a small file takes as long as to read it.
            size += 0 if keeps else rows[-1].get_total_buffer_size()
        all_rows = pa.concat_tables(rows) if rows else empty(listed.schema)
        yield FilesRows(files, all_rows, are_last=True)

    def fetch(self, listed: Listed, files: Sequence[DataFile]) -> None:
        """Fetch some of the files at the same time, on storage where each costs a request.

        If one of them is not cached, other programs have probably committed. Then the files that were added last are
        fetched, too, because the next query of the same decision reads them.
        """
        table = listed.table
        if table.is_far and any(table.key(file) not in self._kept for file in files):
            last = [file for file in listed.files[-_LAST:] if file.size <= _SMALL]
            wanted = {table.key(file): file for file in [*files, *last]}
            files = [file for key, file in wanted.items() if key not in self._kept]
            table.store.prefetch([(file.path, file.size) for file in files])

    def read(
        self, listed: Listed, file: DataFile, names: Sequence[str], *, keeps: bool
    ) -> Iterator[pa.Table]:
        """The rows of one file, at most about `_AT_ONCE` bytes at a time.

        Args:
            listed: All files of the read.
            file: The file.
            names: The columns to read, at least one, for the number of rows. All may be read.
            keeps: Whether the rows of a small file are cached.

        Raises:
            NotByArrowError: The file is gone, or has another form than this process writes.
        """
        rows = self._kept_of(listed.table.key(file), listed.schema)
        if rows is None and (listed.is_small or file.size <= _SMALL):
            with suppress(_LargeError):
                rows = self._whole(listed, file, keeps=keeps, at_most=_AT_ONCE)
        if rows is not None:
            yield rows
            return
        schema = pa.schema([listed.schema.field(name) for name in names])
        known = constants(file, schema)
        if file.rows is not None and len(known) == len(schema):
            columns = [repeated(known[field.name], field.type, file.rows) for field in schema]
            yield pa.Table.from_arrays(columns, schema=schema)
            return
        yield from _read(listed.table, file, schema, known)

    def _whole(
        self, listed: Listed, file: DataFile, *, keeps: bool, at_most: int | None = None
    ) -> pa.Table:
        key = listed.table.key(file)
        rows = self._kept_of(key, listed.schema)
        if rows is None:
            rows = pa.concat_tables(
                _read(listed.table, file, listed.schema, file.partition, at_most)
            )
            if keeps:
                self._keep(key, rows, rows.get_total_buffer_size())
        return rows

    def _kept_of(self, key: str, schema: pa.Schema) -> pa.Table | None:
        with self._lock:
            rows, _ = self._kept.get(key, _NOTHING)
            if rows is None or rows.schema != schema:
                return None
            self._kept.move_to_end(key)
            return rows

    def keep(self, key: str, rows: pa.Table) -> None:
        """Cache the rows of a new file if it is small.

        They are copied if they are a slice that keeps the buffers of a larger table.

        Args:
            key: The key of the file.
            rows: The rows.
        """
        # Their own bytes take longer to count than a small file takes to read.
        size = rows.get_total_buffer_size()
        if size > _SHARED:
            own = rows.nbytes
            if own <= ROWS_BYTES and size > _SPARE * own:
                rows = rows.take(array(range(rows.num_rows), pa.int64()))
            size = own
        self._keep(key, rows, size)

    def _keep(self, key: str, rows: pa.Table, size: int) -> None:
        if size > ROWS_BYTES:
            return
        with self._lock:
            _, before = self._kept.pop(key, _NOTHING)
            self._bytes += size - before
            self._kept[key] = rows, size
            while self._bytes > _KEPT_BYTES or len(self._kept) > _KEPT_FILES:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0


@dataclass(frozen=True, slots=True)
class FileParts:
    """The rows of a table's version that may match a condition, in parts.

    Attributes:
        files: Reads and caches the files.
        listed: All files of the version.
        may_hold: Whether a file may have such rows. It is not called for files behind the last that is read.
    """

    files: SmallFiles
    listed: Listed
    may_hold: MayHold

    def read(
        self, query: Select, order: Sequence[str], limit: int | None
    ) -> Iterator[tuple[Bound, Iterator[pa.Table]]]:
        """The rows in the order of the lower bounds of files, in parts: first about `limit` rows, then more.

        Each part has its lower bound, `None` if it is unknown. Raises as `SmallFiles.read`.
        """
        files: Sequence[DataFile] = self.listed.files
        bounds = {file.path: least(file, order) for file in files} if order else {}
        if order:
            files = sorted(files, key=lambda file: bounds[file.path] or ())
        some: list[DataFile] = []
        read = size = rows = 0
        for file in filter(self.may_hold, files):
            some.append(file)
            size += file.size
            rows += file.rows or 0
            if len(some) == FILES or size >= BYTES or (limit is not None and rows >= limit):
                yield bounds.get(some[0].path), self._rows(query, some, keeps=read < FILES)
                read += len(some)
                some, size, rows = [], 0, 0
                limit = None if limit is None else 2 * limit
        if some:
            yield bounds.get(some[0].path), self._rows(query, some, keeps=read < FILES)

    def _rows(self, query: Select, files: Sequence[DataFile], *, keeps: bool) -> Iterator[pa.Table]:
        """The rows of some files; with `keeps` those of small files are cached."""
        self.files.fetch(self.listed, files)
        # The evaluation reports a column that does not exist.
        names = [name for name in columns_read(query) if name in self.listed.schema.names]
        names = names or self.listed.schema.names[:1]
        some, size = [], 0
        for file in files:
            for found in self.files.read(self.listed, file, names, keeps=keeps):
                # Some reads have all columns, others those of the query.
                rows = found.select(names)
                if len(files) == 1:
                    yield rows
                    continue
                some.append(rows)
                size += found.get_total_buffer_size()
                if size > ROWS_BYTES:
                    yield pa.concat_tables(some)
                    some, size = [], 0
        if some:
            yield pa.concat_tables(some)


class _LargeError(Exception):
    """The rows of a file may have more bytes than are wanted at once."""


def _read(
    table: PlainTable,
    file: DataFile,
    schema: pa.Schema,
    known: Mapping[str, int | str | None],
    at_most: int | None = None,
) -> Iterator[pa.Table]:
    """Some columns of a file's rows, a few rows at a time if they may have many bytes.

    Columns with a `known` value in all rows are not read.

    Raises:
        NotByArrowError: The file is gone, or has another form than this process writes.
        _LargeError: The rows may have more bytes than `at_most`.
        RequestError: The object store fails.
    """
    # Imported here, because a process that only puts does not need it.
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    names = [name for name in schema.names if name not in known]
    try:
        with (
            table.store.open_file(file.path, file.size) as source,
            ParquetFile(source, coerce_int96_timestamp_unit="us") as opened,
        ):
            if at_most is not None and _most_bytes(opened.metadata, names) > at_most:
                raise _LargeError
            stored = opened.schema_arrow
            for field in map(schema.field, names):
                place = stored.get_field_index(field.name)
                if place >= 0 and not _fits(opened, stored.field(place), field.type):
                    raise NotByArrowError(f"another column {field.name}")
            # A column that was added later is NULL. At least one is read, for the number of rows.
            there = [name for name in names if name in stored.names] or stored.names[:1]
            for rows in _decoded(opened, there):
                columns = [
                    repeated(known[field.name], field.type, rows.num_rows)
                    if field.name in known
                    else _as(field.type, rows.column(field.name))
                    if field.name in there
                    else pa.nulls(rows.num_rows, field.type)
                    for field in schema
                ]
                yield pa.Table.from_arrays(columns, schema=schema)
    except RequestError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise NotByArrowError(str(error)) from error


def _fits(file: ParquetFile, stored: pa.Field, kind: pa.DataType) -> bool:
    """Whether a column of a file has a type, another form of it, or Spark's timestamps (INT96) in place of it."""
    if _family(stored.type) == _family(kind):
        return True
    if (stored.type, kind) != (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        return False
    columns = map(file.schema.column, range(len(file.schema)))
    return {c.physical_type for c in columns if c.path == stored.name} == {"INT96"}


def _family(kind: pa.DataType) -> object:
    """The types to which a type can be cast, because other writers store the same values in them."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return "bytes"
    return "nested" if pa.types.is_nested(kind) else kind


def _as(kind: pa.DataType, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _decoded(file: ParquetFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    if _most_bytes(file.metadata, columns) <= _AT_ONCE:
        yield file.read(columns=columns, use_threads=False)
        return
    some, size = [], 0
    for batch in file.iter_batches(_BATCH, columns=columns, use_threads=False):
        some.append(batch)
        size += batch.get_total_buffer_size()
        if size > ROWS_BYTES:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)


def _most_bytes(metadata: FileMetaData, columns: Sequence[str]) -> int:
    """An upper bound of the bytes of its rows: each text counts as long as all texts of its column together."""
    most = 0
    for n in range(metadata.num_row_groups):
        group = metadata.row_group(n)
        for column in map(group.column, range(metadata.num_columns)):
            if column.path_in_schema.split(".")[0] in columns:
                each = column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else 8
                most += column.num_values * each
    return most
