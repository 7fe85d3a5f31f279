"""Asks other readers for the rows with one value in a column, and compares our snapshot with the library's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.storage.log.snapshot import Snapshot

_LAST = "\U0010ffff"
#: Longer than the bounds of texts in the statistics of a file, or of characters that are seldom met.
NAMES = [
    "a",
    "z" * 70,
    "y" * 64,
    "x" * 65,
    "w" * 63 + "\U00020bb7" * 5,
    "v" * 63 + "\ud7ff" * 2,
    "u" * 63 + _LAST * 3,
    "t" * 63 + "\uffff" * 3,
    "\u00e9" * 80,
    "\U0001f600" * 66,
    _LAST * 70,
    _LAST,
    "",
    "\x01\x1f\x7f\u2028",
    "\x00",
    'a"\\b\n',
    "'",
    "C:\\udata",
    "%2F/=?",
]


def _by_arrow(table: DeltaTable, column: str, value: object) -> pa.Table:
    return table.to_pyarrow_dataset().to_table(filter=ds.field(column) == pa.scalar(value))


def _by_polars(table: DeltaTable, column: str, value: object) -> pa.Table:
    found = pl.scan_delta(table).filter(pl.col(column) == pl.lit(value))
    return found.collect().to_arrow()


def _by_polars_through_arrow(table: DeltaTable, column: str, value: object) -> pa.Table:
    found = pl.scan_delta(table, use_pyarrow=True).filter(pl.col(column) == pl.lit(value))
    return found.collect().to_arrow()


def _by_duckdb(table: DeltaTable, column: str, value: object) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table.to_pyarrow_dataset())
        found = connection.sql(f"SELECT * FROM t WHERE {column} = ?", params=[value])
        return pa.table(found.to_arrow_table())


def _by_library(table: DeltaTable, column: str, value: object) -> pa.Table:
    text = "'{}'".format(value.replace("'", "''")) if isinstance(value, str) else str(value)
    query = QueryBuilder().register("t", table)
    return pa.table(query.execute(f"SELECT * FROM t WHERE {column} = {text}").read_all())


#: The rows of a table's version in which a column has a value, by each reader.
FINDS: Mapping[str, Callable[[DeltaTable, str, object], pa.Table]] = {
    "arrow": _by_arrow,
    "polars": _by_polars,
    "polars through arrow": _by_polars_through_arrow,
    "duckdb": _by_duckdb,
    "deltalake": _by_library,
}


def agrees_with_the_library(found: Snapshot, table: DeltaTable) -> None:
    """Assert that we have read of a version what the library has: files, bounds, transactions and definition."""
    assert found.version == table.version()
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {
        (file.path, file.size, file.rows, file.partition["segment"], file.at_ms)
        for file in found.files.values()
    } == {
        (
            action["path"],
            action["size_bytes"],
            action["num_records"],
            action["partition.segment"],
            action["modification_time"],
        )
        for action in actions
    }
    for action in actions:
        file = found.files[action["path"]]
        for name in ("task_id", "pri", "state", "utube", "claim"):
            for which in ("min", "max"):
                bound = file.bound(f"{which}Values", name)
                assert bound == action.get(f"{which}.{name}"), (action["path"], name)
    for app, (version, _) in found.transactions.items():
        assert table.transaction_version(app) == version
    metadata = table.metadata()
    assert found.shape.properties == metadata.configuration
    assert list(found.shape.by) == metadata.partition_columns
    assert found.shape.schema == pa.schema(table.schema().to_arrow())
