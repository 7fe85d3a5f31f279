"""Writes rows into files of a table, usually one a partition, with the statistics by which they are skipped.

If a column has values but no bounds, Arrow's dataset takes the bounds for NULL and finds no row of
the file, whether or not the NULLs are counted. So a long text gets shortened bounds, as Spark and
`deltalake` write them.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import from_us
from tubeq_spark.payloads.types import FIRST_US, LAST_US
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, grouped, places_in_order
from tubeq_spark.storage.expression import Type
from tubeq_spark.storage.log.actions import FEED, DataFile, as_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyarrow.parquet import FileMetaData

    from tubeq_spark.storage.log.snapshot import Shape

    #: The name of a column, the number of its NULLs, and its least and greatest value if they are known.
    Measured: TypeAlias = tuple[str, int, tuple[pa.Scalar, pa.Scalar] | None]

_MOMENT = ARROW_TYPES[Type.TIMESTAMP]
#: The value of a partition that is NULL, in the name of its directory.
_NULL = "__HIVE_DEFAULT_PARTITION__"
#: Columns of tubes with statistics by which no query skips files: `told_file` reads them from the log.
_TOLD = ("tube", "owner", "created", "since")
#: Bounds of longer texts have this many characters.
_TEXT = 64
#: The rows of the first of several pieces, and the factor by which each next piece is larger.
_PIECE, _GROWS = 512, 4
#: A file gets rows of about this many bytes in memory, because statements read whole files.
PART_BYTES = 64 << 20
#: At most this many rows are written without dictionaries and bounds.
_FEW = 1_000
#: Columns whose values mostly occur once.
_MOSTLY_ONCE = frozenset({"task_id", "data"})
#: The last character. All readers compare texts by code points.
_LAST = chr(0x10FFFF)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether all readers compare values of a type in the same way."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or kind == _MOMENT)


def bounds(least: pa.Scalar, greatest: pa.Scalar) -> tuple[Any, Any]:
    """Lower and upper bound of a column as JSON, or None.

    Args:
        least: The least value.
        greatest: The greatest value.

    Returns:
        Both bounds; `None` for a bound that cannot be told.
    """
    if least.type == _MOMENT:
        # By numbers, because Arrow converts a moment by pandas if that is installed.
        return _milliseconds(least, 0), _milliseconds(greatest, 1)
    low, high = least.as_py(), greatest.as_py()
    if isinstance(low, str):
        # The beginning of a text is a lower bound of the text.
        return low[:_TEXT], _no_less(high)
    return low, high


def _no_less(text: str) -> str:
    """A text that is not less than another one, shortened if possible."""
    shorter = text[:_TEXT] + _LAST
    return shorter if len(text) > _TEXT and shorter >= text else text


def _milliseconds(moment: pa.Scalar, more: int) -> str | None:
    """A timestamp for statistics, which have milliseconds.

    Args:
        moment: The moment.
        more: The milliseconds to add.

    Returns:
        The text; `None` outside the years 1 to 9999, where neither Python nor Arrow reads a bound.
    """
    at_us = moment.value
    bound = min((at_us // 1_000 + more) * 1_000, LAST_US)
    at = from_us(bound) if FIRST_US <= at_us <= LAST_US else None
    told = "microseconds" if bound == LAST_US else "milliseconds"
    return None if at is None else at.isoformat(timespec=told).replace("+00:00", "Z")


def encoded(
    shape: Shape,
    rows: pa.Table,
    at_ms: int,
    gone: Sequence[DataFile] = (),
    order: Sequence[str] = (),
) -> Iterator[tuple[DataFile, pa.Table, bytes]]:
    """The files for rows, each with its rows and its contents.

    With an order, the rest of the partitions of `gone` is written in pieces.

    Args:
        shape: The shape of the table. The rows have its columns.
        rows: The rows, at least one.
        at_ms: The moment, in milliseconds since 1970.
        gone: The files that they replace.
        order: The order in which the rows are taken next; empty if there is none.
    """
    left = {tuple(file.partition[name] for name in shape.by) for file in gone} if order else set()
    for values, part in grouped(rows, shape.by):
        partition: dict[str, int | None] = dict(zip(shape.by, values, strict=True))
        pieces = _pieces(part, order) if values in left else (part,)
        for some in (some for piece in pieces for some in _bounded(piece)):
            path, content = _path(partition), _content(some, partition)
            stats = as_json(_statistics(some.num_rows, _of_rows(some, _measured(shape))))
            yield DataFile(path, len(content), partition, stats, at_ms), some, content


def encoded_feed(
    shape: Shape, rows: pa.Table, at_ms: int
) -> Iterator[tuple[DataFile, pa.Table, bytes]]:
    """The files of a change feed for changed rows, as `encoded`."""
    for file, part, content in encoded(shape, rows, at_ms):
        yield replace(file, path=f"{FEED}{file.path}"), part, content


def _bounded(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in parts of about `PART_BYTES` at most."""
    # A slice keeps the buffers of a larger table. Its own bytes take longer to count.
    if rows.get_total_buffer_size() <= PART_BYTES:
        yield rows
        return
    count = -(-rows.num_rows // (rows.nbytes // PART_BYTES + 1))
    for first in range(0, rows.num_rows, count):
        yield rows.slice(first, count)


def _pieces(rows: pa.Table, order: Sequence[str]) -> Iterator[pa.Table]:
    """Rows in growing pieces, so that the next take of the first ones rewrites a small file and not all rows."""
    if rows.num_rows < 2 * _PIECE:
        yield rows
        return
    rows = rows.take(places_in_order([rows.column(name) for name in order], descending=False))
    key = rows.column(order[0]) if len(order) > 1 else None
    first, size = 0, _PIECE
    while first < rows.num_rows:
        left = rows.num_rows - first
        count = size if left >= 2 * size else left
        if first and key is not None:
            count = min(count, _going_on(key, first) or count)
        yield rows.slice(first, count)
        first, size = first + count, _GROWS * size


def _going_on(key: pa.ChunkedArray, place: int) -> int:
    """The number of values from a place on that are equal to the one before it, in a sorted column.

    A piece that begins with such values has no other ones. Bounds are kept for each column separately, so with
    other values its bounds would allow rows that come before some of the former piece.
    """
    before, following = key[place - 1], key.slice(place)
    if not before.is_valid:
        return int(following.null_count)
    return int(pc.sum(pc.equal(following, before)).as_py() or 0)


def _path(partition: Mapping[str, int | None]) -> str:
    """A new path under a table's directory."""
    # Spark names its files like this.
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    values = {k: _NULL if value is None else value for k, value in partition.items()}
    return "/".join([*(f"{column}={value}" for column, value in values.items()), name])


def _content(rows: pa.Table, partition: Mapping[str, int | None]) -> bytes:
    """The Parquet file of some rows of a partition."""
    from pyarrow.parquet import write_table  # noqa: PLC0415  what only looks does without

    stored = [name for name in rows.column_names if name not in partition]
    # Half of a new task's columns are NULL. They are left out, because readers take a missing column as NULL. A file
    # needs at least one column.
    named = [name for name in stored if rows.column(name).null_count < rows.num_rows]
    # Arrow's own schema is left out, because readers take their types from the log, which has bounds of columns, too.
    # For a few rows dictionaries and bounds make the file larger, and take a quarter of the time to write it. So do
    # dictionaries of ids and payloads for many rows.
    are_many, sink = rows.num_rows > _FEW, pa.BufferOutputStream()
    write_table(
        rows.select(named or stored[:1]),
        sink,
        store_schema=False,
        use_dictionary=are_many and [name for name in named if name not in _MOSTLY_ONCE],
        write_statistics=are_many,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def file_of(path: str, size: int, shape: Shape, footer: FileMetaData, at_ms: int) -> DataFile:
    """A Parquet file that Spark has written, with the statistics that its footer has.

    Args:
        path: Its path below the table's directory. The names of its directories have the partition.
        size: Its bytes.
        shape: The shape of the table.
        footer: The footer of the file.
        at_ms: When it was written, in milliseconds since 1970.
    """
    values = dict(part.split("=") for part in path.split("/")[:-1] if "=" in part)
    partition = {name: None if values[name] == _NULL else int(values[name]) for name in shape.by}
    stats = _statistics(footer.num_rows, _of_footer(footer, shape))
    return DataFile(path, size, partition, as_json(stats), at_ms)


def _measured(shape: Shape) -> Sequence[str]:
    # Arrow makes a new list each time it is asked for names.
    names = shape.schema.names
    return list(dict.fromkeys([*shape.measured, *(name for name in _TOLD if name in names)]))


def _of_rows(rows: pa.Table, names: Sequence[str]) -> Iterator[Measured]:
    for name in names:
        column = rows.column(name)
        if pa.types.is_nested(column.type):
            continue
        if column.null_count == rows.num_rows or not is_ordered(column.type):
            yield name, column.null_count, None
        elif rows.num_rows == 1:
            yield name, 0, (column[0], column[0])
        else:
            ends = pc.min_max(column)
            yield name, column.null_count, (ends["min"], ends["max"])


def _of_footer(footer: FileMetaData, shape: Shape) -> Iterator[Measured]:
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    for name in _measured(shape):
        # The columns of a nested one have longer paths.
        if name not in places:
            continue
        parts = [group.column(places[name]).statistics for group in groups]
        if not all(part is not None and part.has_null_count for part in parts):
            continue
        nulls = sum(part.null_count for part in parts)
        valued = [part for part in parts if part.num_values]
        kind = shape.schema.field(name).type
        if not valued or not is_ordered(kind) or not all(part.has_min_max for part in valued):
            yield name, nulls, None
            continue
        # The raw value of a moment is its number of microseconds.
        ends = [
            (part.min_raw, part.max_raw) if kind == _MOMENT else (part.min, part.max)
            for part in valued
        ]
        least, greatest = min(low for low, _ in ends), max(high for _, high in ends)
        yield name, nulls, (pa.scalar(least, kind), pa.scalar(greatest, kind))


def _statistics(count: int, columns: Iterable[Measured]) -> dict[str, Any]:
    least, greatest, nulls = {}, {}, {}
    for name, null_count, ends in columns:
        nulls[name] = null_count
        low, high = (None, None) if ends is None else bounds(*ends)
        # Queries of `deltalake` fail if a column has only one of both bounds.
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {
        "numRecords": count,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
