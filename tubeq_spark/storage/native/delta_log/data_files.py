"""Writes rows into data files, one for each partition, with statistics for file skipping."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.partitions import grouped
from tubeq_spark.storage.native.delta_log.actions import DataFile, as_json
from tubeq_spark.storage.native.delta_log.bounds import bounds, is_ordered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tubeq_spark.storage.native.delta_log.snapshot import Shape

__all__ = ["write"]


def write(table: Path, shape: Shape, rows: pa.Table, at_ms: int) -> list[tuple[DataFile, pa.Table]]:
    """Write rows; a commit that adds their files makes them part of the table.

    Args:
        table: The directory of the table.
        shape: What its rows look like; these have its columns.
        rows: The rows, which are some.
        at_ms: The moment, in milliseconds since 1970.

    Returns:
        The files, each with its rows.

    Raises:
        OSError: They cannot be written.
    """
    written: list[tuple[DataFile, pa.Table]] = []
    begun: list[Path] = []
    try:
        for values, part in grouped(rows, shape.by):
            partition: dict[str, int | None] = dict(zip(shape.by, values, strict=True))
            path = _path(partition)
            begun.append(table / path)
            written.append((_written(begun[-1], path, shape, partition, part, at_ms), part))
    except BaseException:
        # On a full disk these may be what fills it.
        for place in begun:
            with suppress(OSError):
                place.unlink()
        raise
    return written


def _path(partition: Mapping[str, int | None]) -> str:
    """A new path under a table's directory."""
    # As Spark names them.
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    return "/".join([*(_directory(*value) for value in partition.items()), name])


def _written(
    place: Path,
    path: str,
    shape: Shape,
    partition: dict[str, int | None],
    rows: pa.Table,
    at_ms: int,
) -> DataFile:
    from pyarrow.parquet import write_table  # noqa: PLC0415  what only looks does without

    place.parent.mkdir(exist_ok=True, parents=True)
    # Not with Arrow's own schema beside Parquet's: readers take their types from the log.
    with pa.OSFile(str(place), "wb") as sink:
        write_table(rows.drop_columns(list(partition)), sink, store_schema=False)
    stats = as_json(_statistics(rows, shape.measured))
    return DataFile(path, place.stat().st_size, partition, stats, at_ms)


def _directory(column: str, value: int | None) -> str:
    return f"{column}={'__HIVE_DEFAULT_PARTITION__' if value is None else value}"


def _statistics(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    least, greatest, nulls = {}, {}, {}
    for name in columns:
        column = rows.column(name)
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count == rows.num_rows or not is_ordered(column.type):
            continue
        ends = pc.min_max(column)
        low, high = bounds(ends["min"], ends["max"])
        # The library's queries fail where there is one bound and not the other.
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
