"""Answers queries by DataFusion, the query engine of `deltalake`, as another reader that must agree."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tests.datafusion.text import DataFusionRenderer
from tubeq_spark.storage.arrow.columns import held
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.rows import with_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.query import Select

_SETTINGS = {
    # Strings as Delta and older readers know them.
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.execution.parquet.schema_force_view_types": "false",
    # Spark's moments (INT96) have nanoseconds. If they were read as such, moments before 1677 and after
    # 2262 would change without an error.
    "datafusion.execution.parquet.coerce_int96": "us",
    # Planning a small query takes longer than running it.
    "datafusion.execution.target_partitions": "1",
    "datafusion.optimizer.max_passes": "1",
}


def answered(query: Select) -> pa.Table:
    """The rows of a query about a table on local files."""
    tables: dict[str, DeltaTable] = {}

    def named(name: str) -> str:
        tables["tubeq_asked"] = DeltaTable(path_of(name) or "")
        return "tubeq_asked"

    renderer = DataFusionRenderer(named)
    text = renderer.query(query)
    return _run(text, tables, {name: held(rows) for name, rows in renderer.sources.items()})


def _run(text: str, tables: Mapping[str, DeltaTable], sources: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a query about tables by their aliases; `tubeq_{name}` in its text is one of the sources."""
    builder = QueryBuilder(_SETTINGS)
    for alias, table in tables.items():
        builder.register(alias, table)
    # The library accepts rows only as a file.
    with tempfile.TemporaryDirectory(prefix="tubeq-") as directory:
        for name, rows in sources.items():
            place = Path(directory) / f"{name}.arrow"
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            made = f"CREATE EXTERNAL TABLE tubeq_{name} STORED AS ARROW LOCATION '{place}'"
            builder.execute(made).read_all()
        # Arrow's own stream is used, because the library's reader stops all threads of the process while it reads.
        found = pa.RecordBatchReader.from_stream(builder.execute(text))
        try:
            return _plain(found.read_all())
        except (pa.ArrowException, OSError) as error:
            # Errors of the library come through Arrow, which has classes of its own.
            raise DeltaError(str(error)) from error


def _plain(rows: pa.Table) -> pa.Table:
    """Rows without string views, which neither Delta nor older readers support."""
    kinds = [with_leaves(kind, _plain_leaf) for kind in rows.schema.types]
    # Column names may occur twice.
    columns = [column.cast(kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    fields = [field.with_type(kind) for field, kind in zip(rows.schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
