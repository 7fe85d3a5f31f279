"""Writes rows into files of a table, one a partition, with the statistics by which they are skipped."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.rules.microseconds import from_us
from tubeq_spark.storage.native.delta_log.actions import DataFile, as_json
from tubeq_spark.storage.native.literals import MOMENT
from tubeq_spark.storage.native.partitions import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tubeq_spark.storage.native.delta_log.snapshot import Shape

__all__ = ["write"]

#: Of a longer text no more than this is kept, as its beginning is no greater.
_TEXT = 64


def write(table: Path, shape: Shape, rows: pa.Table, at_ms: int) -> list[tuple[DataFile, pa.Table]]:
    """Write rows; they are part of the table once a commit adds their files.

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
    return [
        (_written(table, shape, dict(zip(shape.by, partition, strict=True)), part, at_ms), part)
        for partition, part in grouped(rows, shape.by)
    ]


def _written(
    table: Path, shape: Shape, partition: dict[str, int | None], rows: pa.Table, at_ms: int
) -> DataFile:
    from pyarrow.parquet import write_table  # noqa: PLC0415  what only looks does without

    # As Spark names them.
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    path = "/".join([*(_directory(*value) for value in partition.items()), name])
    place = table / path
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
        if column.null_count == rows.num_rows or not _is_ordered(column.type):
            continue
        ends = pc.min_max(column)
        low, high = _bounds(ends["min"], ends["max"])
        # The library's queries fail where there is one bound and not the other.
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether its values are compared here as everywhere."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or kind == MOMENT)


def _bounds(least: pa.Scalar, greatest: pa.Scalar) -> tuple[Any, Any]:
    """What is no greater and what is no less than any value, as JSON; `None`: that is not told."""
    if least.type == MOMENT:
        # As numbers: for a moment Arrow asks pandas, wherever that is installed.
        return _milliseconds(least, 0), _milliseconds(greatest, 1)
    low, high = least.as_py(), greatest.as_py()
    if isinstance(low, str):
        return low[:_TEXT], high if len(high) <= _TEXT else None
    return low, high


def _milliseconds(moment: pa.Scalar, more: int) -> str | None:
    """A moment as statistics have it, which know no more than milliseconds.

    Args:
        moment: The moment.
        more: So many milliseconds later.

    Returns:
        `None`: Python does not know so late a moment.
    """
    try:
        at = from_us((moment.cast(pa.int64()).as_py() // 1_000 + more) * 1_000)
    except OverflowError:
        return None
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
