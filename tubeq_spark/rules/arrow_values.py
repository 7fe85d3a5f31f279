"""What Arrow's columns hold: types that stand for one another, and values that Python cannot hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.rules.json_texts import is_utf8
from tubeq_spark.rules.put_columns import FIRST_US, LAST_US

__all__ = ["as_alike", "is_integer", "is_text", "unreadable"]

#: Days of the first and the last date that Python knows, from 1970 on.
_FIRST_DAY, _LAST_DAY = FIRST_US // 86_400_000_000, LAST_US // 86_400_000_000


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts."""
    known: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return known or bool(pa.types.is_string_view(kind))


def is_integer(kind: pa.DataType) -> bool:
    """Whether a type is one of whole numbers."""
    return bool(pa.types.is_integer(kind))


def as_alike(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """A column in a type that holds the same values in another form; `None` if it has others.

    Forms differ by program: where texts and lists lie, and in which unit a moment is counted.
    """
    if column.type == kind:
        return column
    if not _are_alike(column.type, kind):
        return None
    try:
        return column.cast(kind)
    except pa.ArrowException:
        # A part of a microsecond, or more text than the form has room for.
        return None


def _are_alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [[part.name for part in kind] for kind in (given, wanted)]
        kinds = zip(given, wanted, strict=False)
        return names[0] == names[1] and all(_are_alike(a.type, b.type) for a, b in kinds)
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        keys = _are_alike(given.key_type, wanted.key_type)
        return keys and _are_alike(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return _are_alike(given.value_type, wanted.value_type)
    kinds_alike = (is_text, _is_binary)
    return bool(given == wanted or any(of(given) and of(wanted) for of in kinds_alike))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def unreadable(column: pa.ChunkedArray) -> int:
    """How many rows of a column have values that Python cannot hold; 1 for some inside of others."""
    return sum(_unreadable(chunk) for chunk in column.chunks)


def _unreadable(values: Any) -> int:
    kind = values.type
    if is_text(kind):
        return _not_utf8(values)
    if pa.types.is_timestamp(kind):
        per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(kind.unit, 1)
        return _outside(values.cast(pa.int64()), FIRST_US // per_unit, LAST_US // per_unit)
    if pa.types.is_date32(kind):
        return _outside(values.cast(pa.int32()), _FIRST_DAY, _LAST_DAY)
    # What lies in a list, a map or a struct that is NULL is nobody's.
    if pa.types.is_map(kind):
        entries = values.drop_null()
        inside = [pc.list_flatten(entries.cast(pa.list_(_entry(kind))))]
    elif _is_list(kind):
        inside = [pc.list_flatten(values)]
    elif pa.types.is_struct(kind):
        inside = values.flatten()
    else:
        inside = []
    return int(any(_unreadable(part) for part in inside))


def _entry(kind: pa.MapType) -> pa.StructType:
    return pa.struct([kind.key_field, kind.item_field])


def _not_utf8(values: Any) -> int:
    if is_utf8(values):
        return 0
    return sum(not is_utf8(values.slice(place, 1)) for place in range(len(values)))


def _outside(values: Any, first: int, last: int) -> int:
    bad = pc.sum(pc.or_(pc.less(values, first), pc.greater(values, last))).as_py()
    return bad or 0
