"""Compares the rows that all readers of Delta find in the tables of a location."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tests.native.logs import log_files_of
from tests.queries import everything
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.log import reading
from tubeq_spark.storage.native.engine import NativeEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


#: In place of rows.
_FAILED = "cannot be read:"


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
        readers = {
            "ours": _read_by_us,
            "deltalake": _read_by_deltalake,
            **({} if spark is None else {"Spark": _read_by(spark)}),
        }
        found = {name: _told(read, table) for name, read in readers.items()}
        common = set.intersection(*map(set, found.values()))
        failed = [name for name, rows in found.items() if rows[0].startswith(_FAILED)]
        if failed or any(set(rows) != common for rows in found.values()):
            told = {
                name: [row for row in rows if row not in common][:2] for name, rows in found.items()
            }
            yield f"readers of {table.name} disagree: {told}"


def _told(
    read: Callable[[Path], tuple[int | None, Iterable[dict[str, object]]]], table: Path
) -> list[str]:
    try:
        version, rows = read(table)
    except Exception as error:  # noqa: BLE001  (that one fails is what is looked for)
        return [f"{_FAILED} {type(error).__name__}: {error}"[:300]]
    return [f"version {version}", *sorted(str(sorted(row.items())) for row in rows)]


def _read_by_us(table: Path) -> tuple[int, Iterable[dict[str, object]]]:
    version = reading.newest(log_files_of(table / "_delta_log")).version
    return version, map(_plain, NativeEngine().rows(everything(path_table(str(table)))))


def _read_by_deltalake(table: Path) -> tuple[int, Iterable[dict[str, object]]]:
    found = DeltaTable(str(table))
    return found.version(), map(_plain, found.to_pyarrow_table().to_pylist())


def _read_by(spark: SparkSession) -> Callable[[Path], tuple[int, Iterable[dict[str, object]]]]:
    def read(table: Path) -> tuple[int, Iterable[dict[str, object]]]:
        rows = spark.read.format("delta").load(str(table)).collect()
        (newest,) = (
            spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").select("version").collect()
        )
        return newest[0], (_plain(row.asDict(recursive=True)) for row in rows)

    return read


def _plain(row: dict[str, object]) -> dict[str, object]:
    """A row without its NULLs, as all readers tell it."""
    return {name: _value(value) for name, value in row.items() if value is not None}


def _value(value: object) -> object:
    match value:
        case dt.datetime():
            # Spark tells local time.
            return value.astimezone(dt.UTC).isoformat()
        case dict():
            return sorted(value.items())
        case list():
            return sorted(value)
        case _:
            return value
