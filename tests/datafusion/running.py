"""Runs queries by DataFusion, over snapshots of tables and over rows that the caller holds."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
import weakref
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from tubeq_spark.storage.rows import with_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltalake import DeltaTable

#: From so many rows on all cores read faster than one.
MANY = 50_000
_SETTINGS = {
    # Strings as Delta and older readers know them.
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.execution.parquet.schema_force_view_types": "false",
    # Spark's moments (INT96) have nanoseconds. If they were read as such, moments before 1677 and after
    # 2262 would change without an error.
    "datafusion.execution.parquet.coerce_int96": "us",
}
#: Planning a small query takes longer than running it. For these queries one pass over the plan gives the same plan,
#: and a look at a file's index or filter costs more than reading the file.
_SMALL = _SETTINGS | {
    "datafusion.execution.target_partitions": "1",
    "datafusion.optimizer.max_passes": "1",
    "datafusion.execution.parquet.enable_page_index": "false",
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
}


class RunningQuery:
    """One query and the tables that it reads."""

    def __init__(self, exchange: ArrowHandover, rows: int = 0) -> None:
        """Read about so many rows, and rows of the caller through `exchange`."""
        self._exchange = exchange
        self._builder = QueryBuilder(_SETTINGS if rows >= MANY else _SMALL)

    def over(self, alias: str, table: DeltaTable) -> None:
        """Give a version of a table a name in the query."""
        self._builder.register(alias, table)

    def rows(self, text: str, sources: Mapping[str, pa.Table]) -> pa.Table:
        """Run a query; `tubeq_{name}` in its text is one of the sources."""
        with ExitStack() as stack:
            for name, rows in sources.items():
                file = stack.enter_context(self._exchange.file(rows))
                place = str(file).replace("'", "''")
                made = f"CREATE EXTERNAL TABLE tubeq_{name} STORED AS ARROW LOCATION '{place}'"
                self._builder.execute(made).read_all()
            # Arrow's own stream is used, because the library's reader stops all threads of the process while it
            # reads, also those that renew leases.
            found = pa.RecordBatchReader.from_stream(self._builder.execute(text))
            try:
                return plain(found.read_all())
            except (pa.ArrowException, OSError) as error:
                # Errors of the library come through Arrow, which has classes of its own.
                raise DeltaError(str(error)) from error


class ArrowHandover:
    """Hands rows to the library, which accepts them only as a file.

    Arrow's own files cost no more than a copy. Only this user can read them, and they exist only during a
    query.
    """

    def __init__(self) -> None:
        self._directory: str | None = None
        self._removed: weakref.finalize[..., ArrowHandover] | None = None
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @contextmanager
    def file(self, rows: pa.Table) -> Iterator[Path]:
        """A file with some rows, for the time of a block."""
        with self._lock:
            if self._directory is None:
                self._directory = tempfile.mkdtemp(prefix="tubeq-")
                self._removed = weakref.finalize(
                    self, shutil.rmtree, self._directory, ignore_errors=True
                )
            place = Path(self._directory) / f"{next(self._numbers)}.arrow"
        try:
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            yield place
        finally:
            place.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the directory; the next file makes another one."""
        with self._lock:
            removed, self._directory, self._removed = self._removed, None, None
        if removed is not None:
            removed()


def plain(rows: pa.Table) -> pa.Table:
    """Rows without string views, which neither Delta nor older readers support."""
    kinds = [with_leaves(kind, _plain) for kind in rows.schema.types]
    if kinds == rows.schema.types:
        return rows
    # Column names may occur twice.
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(rows.columns, kinds, strict=True)
    ]
    fields = [field.with_type(kind) for field, kind in zip(rows.schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
