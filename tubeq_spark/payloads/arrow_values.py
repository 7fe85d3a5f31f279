"""Values in Arrow columns: equivalent types, and values that Python cannot represent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model.json_payload import is_utf8
from tubeq_spark.payloads.put_columns import FIRST_US, LAST_US

if TYPE_CHECKING:
    from collections.abc import Callable

#: Days of the first and the last date that Python knows, from 1970 on.
_FIRST_DAY, _LAST_DAY = FIRST_US // 86_400_000_000, LAST_US // 86_400_000_000

#: For each type of views, the plain type with the same values.
_OF_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts."""
    known: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return known or bool(pa.types.is_string_view(kind))


def is_integer(kind: pa.DataType) -> bool:
    """Whether a type is one of whole numbers."""
    return bool(pa.types.is_integer(kind))


def as_alike(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Convert a column of texts to another text type; `None` if the column is too large for that type."""
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException:
        return None


def decoded(values: pa.DictionaryArray) -> pa.Array:
    """Values without their dictionary."""
    kind = _OF_VIEWS.get(values.type.value_type)
    if kind is not None:
        # Arrow cannot decode a dictionary of views, which some programs use.
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(kind))
    return values.dictionary_decode()


def places(size: int) -> Any:
    """The positions of rows: 0, 1, 2, ..."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), size)), 1)


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def map_entries(values: pa.Array) -> pa.Array:
    """Maps as lists of their entries."""
    kind = values.type
    # Arrow cannot cast a NULL struct to a type with a NOT NULL field.
    item = pa.field(kind.item_field.name, _nullable(kind.item_type))
    return values.cast(pa.list_(pa.struct([kind.key_field, item])))


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A type without NOT NULL fields."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _nullable(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    return pa.list_(_nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Convert the maps in a value to dicts. Arrow returns pairs (before version 20 always).

    Maps whose keys cannot be keys of a dict stay pairs.

    Raises:
        ValueError: A map has a key twice.
    """
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {part.name: with_dicts(value[part.name], part.type) for part in kind}
    if not pa.types.is_map(kind):
        return [with_dicts(item, kind.value_type) for item in value]
    if pa.types.is_nested(kind.key_type):
        return [(key, with_dicts(item, kind.item_type)) for key, item in value]
    found = {key: with_dicts(item, kind.item_type) for key, item in value}
    if len(found) < len(value):
        msg = f"a map has a key twice: {value}"
        raise ValueError(msg)
    return found


def first_bad(column: pa.ChunkedArray, is_bad: Callable[[pa.ChunkedArray], object]) -> int:
    """The first bad row of a column that has bad rows; `is_bad` returns whether some of its rows are bad."""
    first, behind = 0, len(column)
    while behind - first > 1:
        middle = (first + behind) // 2
        if is_bad(column.slice(first, middle - first)):
            behind = middle
        else:
            first = middle
    return first


def lacking(column: pa.ChunkedArray, part: pa.Field) -> int:
    """How many rows lack a required value; 1 if some lack one in a nested column."""
    if column.null_count and not part.nullable:
        return int(column.null_count)
    return int(any(_lacks(chunk, part.type) for chunk in column.chunks))


def _lacks(values: pa.Array, kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        parts = zip(values.drop_null().flatten(), kind, strict=True)
        return any(
            (inside.null_count and not part.nullable) or _lacks(inside, part.type)
            for inside, part in parts
        )
    if pa.types.is_map(kind):
        entries = pc.list_flatten(map_entries(values.drop_null()))
        return _lacks(entries.field(1), kind.item_type)
    return is_list(kind) and _lacks(pc.list_flatten(values), kind.value_type)


def unreadable(column: pa.ChunkedArray) -> int:
    """How many rows have values that Python cannot represent; 1 for nested ones."""
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
    # Values within a NULL list, map or struct do not count.
    if pa.types.is_map(kind):
        entries = map_entries(values.drop_null())
        if _has_key_twice(entries):
            return 1
        inside = [pc.list_flatten(entries)]
    elif is_list(kind):
        inside = [pc.list_flatten(values)]
    elif pa.types.is_struct(kind):
        inside = values.flatten()
    else:
        inside = []
    return int(any(_unreadable(part) for part in inside))


def _has_key_twice(entries: pa.Array) -> bool:
    """Whether a list of entries has a key twice."""
    keys = pc.list_flatten(entries).field(0)
    if pa.types.is_nested(keys.type):
        return False  # no dict is made of them
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0, keys.type))  # zero is one key, with whatever sign
    encoded = keys.dictionary_encode()
    of_map = pc.multiply(pc.list_parent_indices(entries), len(encoded.dictionary))
    places = pc.add(of_map, encoded.indices.cast(pa.int64()))
    return len(places.unique()) < len(places)


def _not_utf8(values: Any) -> int:
    if is_utf8(values):
        return 0
    return sum(not is_utf8(values.slice(place, 1)) for place in range(len(values)))


def _outside(values: Any, first: int, last: int) -> int:
    bad = pc.sum(pc.or_(pc.less(values, first), pc.greater(values, last))).as_py()
    return bad or 0
