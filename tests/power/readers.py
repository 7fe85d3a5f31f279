"""Compares the rows that all readers of Delta find in the tables of a location."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tests.native.grid import told
from tests.native.logs import log_files_of
from tests.queries import everything
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.log import reading
from tubeq_spark.storage.native.engine import NativeEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


def tables_of(location: Path) -> list[Path]:
    """The directories of all tables."""
    return sorted(log.parent for log in location.glob("*/_delta_log"))


def disagreements(location: Path, spark: SparkSession | None = None) -> Iterator[str]:
    """What the readers do not agree on; nobody writes meanwhile.

    Args:
        location: The queue.
        spark: Reads, too, if there is one.
    """
    for table in tables_of(location):
        found: dict[str, Counter[str]] = {}
        for name in ("ours", "deltalake", *(["Spark"] if spark is not None else [])):
            try:
                version, rows = _read(name, table, spark)
            except Exception as error:  # noqa: BLE001  (the test looks for a reader that fails)
                yield f"{name} cannot read {table.name}: {type(error).__name__}: {error}"[:300]
            else:
                found[name] = told(rows) + Counter([f"version {version}"])
        for name, rows_of_one in found.items():
            for other, others in found.items():
                if missing := [*(others - rows_of_one)][:2]:
                    yield f"{name} finds in {table.name} less than {other}: {missing}"


def _read(name: str, table: Path, spark: SparkSession | None) -> tuple[int, pa.Table]:
    """The version and the rows of a table as a reader finds them."""
    path = str(table)
    if spark is not None and name == "Spark":
        newest = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]
        return newest["version"], spark.read.format("delta").load(path).toArrow()
    if name == "deltalake":
        return DeltaTable(path).version(), DeltaTable(path).to_pyarrow_table()
    version = reading.newest(log_files_of(table / "_delta_log")).version
    return version, NativeEngine().arrow(everything(path_table(path)))
