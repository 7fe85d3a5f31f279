"""Values in Arrow columns: as objects of Python, those that Python cannot represent, and their sizes.

The size of a JSON payload is that of its text. The size of a typed payload is that of its texts and binary values,
plus eight bytes for each other value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.json_payload import is_utf8
from tubeq_spark.payloads.types import FIRST_US, LAST_US, is_binary, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Callable

#: Days of the first and the last date that Python knows, from 1970 on.
_FIRST_DAY, _LAST_DAY = FIRST_US // 86_400_000_000, LAST_US // 86_400_000_000

#: Made without a value of Python, for which pyarrow would import pandas.
_ONE = pa.nulls(1).is_null().cast(pa.int64())[0]
#: For each type of views, the plain type with the same values.
_OF_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def decoded(values: pa.DictionaryArray) -> pa.Array:
    """Values without their dictionary."""
    kind = _OF_VIEWS.get(values.type.value_type)
    if kind is not None:
        # Arrow cannot decode a dictionary of views, which some programs use.
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(kind))
    return values.dictionary_decode()


def places(size: int) -> Any:
    """The positions of rows: 0, 1, 2, ..."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(_ONE, size)), _ONE)


def map_entries(values: pa.Array) -> pa.Array:
    """Maps as lists of their entries."""
    kind = values.type
    return values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))


def with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Convert the maps in a value to dicts. Arrow returns pairs (before version 20 always).

    Raises:
        ValueError: A map has a key twice.
    """
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {part.name: with_dicts(value[part.name], part.type) for part in kind}
    if not pa.types.is_map(kind):
        return [with_dicts(item, kind.value_type) for item in value]
    found = {key: with_dicts(item, kind.item_type) for key, item in value}
    if len(found) < len(value):
        raise ValueError(f"a map has a key twice: {value}")
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


def is_bad(column: pa.ChunkedArray, part: pa.Field) -> bool:
    """Whether a column lacks a required value, or has one that is not stored: one that Python cannot represent."""
    return any(_is_bad(chunk, part) for chunk in column.chunks)


def _is_bad(values: Any, part: pa.Field) -> bool:
    kind = part.type
    if values.null_count and not part.nullable:
        return True
    if is_text(kind):
        return not is_utf8(values)
    if pa.types.is_float32(kind):
        # A finite number beyond the range of a FLOAT becomes infinite.
        return bool(pc.any(pc.is_inf(values)).as_py())
    if pa.types.is_timestamp(kind):
        return is_outside(values.cast(pa.int64()), FIRST_US, LAST_US)
    if pa.types.is_date32(kind):
        return is_outside(values.cast(pa.int32()), _FIRST_DAY, _LAST_DAY)
    return pa.types.is_nested(kind) and _is_bad_within(values.drop_null(), kind)


def _is_bad_within(values: Any, kind: pa.DataType) -> bool:
    """Whether one of the values within others is bad; those within a NULL do not count."""
    if pa.types.is_map(kind):
        entries = map_entries(values)
        inside = pc.list_flatten(entries).flatten()
        if _has_key_twice(entries):
            return True
        parts = [kind.key_field, pa.field("value", kind.item_type)]
    elif pa.types.is_struct(kind):
        inside, parts = values.flatten(), list(kind)
    else:
        inside, parts = [pc.list_flatten(values)], [kind.value_field]
    return any(map(_is_bad, inside, parts))


def _has_key_twice(entries: pa.Array) -> bool:
    """Whether a list of entries has a key twice."""
    keys = pc.list_flatten(entries).field(0)
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0, keys.type))  # zero is one key, with whatever sign
    encoded = keys.dictionary_encode()
    of_map = pc.multiply(pc.list_parent_indices(entries), len(encoded.dictionary))
    places = pc.add(of_map, encoded.indices.cast(pa.int64()))
    return len(places.unique()) < len(places)


def is_outside(values: Any, least: float, most: float) -> bool:
    """Whether one of some numbers is NaN, or not in a range."""
    inside = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    return not pc.all(inside, min_count=0).as_py()


# -- sizes ------------------------------------------------------------------------------------

#: The bytes for a value that is no text and no binary value.
OF_ONE = 8


def refuse_large(column: pa.ChunkedArray, most: int, named: Callable[[int], str]) -> None:
    """Refuse payloads that are too large.

    Args:
        column: The payloads, JSON texts or structs.
        most: `QueueConfig.largest_payload`.
        named: Returns the name of the payload at a position, for the message.

    Raises:
        InvalidOptionError: A payload has more than `most` bytes.
    """
    found = pa.chunked_array([sizes(chunk) for chunk in column.chunks], pa.int64())
    largest = pc.max(found).as_py() or 0
    if largest > most:
        raise too_large(named(pc.index(found, largest).as_py()), largest, most)


def too_large(name: str, size: int, most: int) -> InvalidOptionError:
    """The error for a payload that is too large."""
    return InvalidOptionError(
        f"{name}: a payload of {size:,} bytes; must be at most {most:,} (largest_payload in "
        "QueueConfig). Store the content elsewhere, and put its address"
    )


def sizes(values: pa.Array) -> pa.Array:
    """The size of each value in bytes."""
    kind = values.type
    if is_text(kind) or is_binary(kind):
        return pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0)
    if pa.types.is_map(kind):
        return sizes(map_entries(values))
    if is_list(kind):
        return _of_lists(values)
    is_struct = pa.types.is_struct(kind)
    total = pc.multiply(pc.is_valid(values).cast(pa.int64()), 0 if is_struct else OF_ONE)
    for part in values.flatten() if is_struct else ():
        total = pc.add(total, sizes(part))
    return total


def _of_lists(values: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(values).cast(pa.int64()), 0)
    ends = pc.cumulative_sum(lengths)
    # The running sum of the sizes of all items.
    items = pc.cumulative_sum(sizes(pc.list_flatten(values)))
    before = pa.concat_arrays([pa.repeat(pa.scalar(0, pa.int64()), 1), items])
    return pc.subtract(before.take(ends), before.take(pc.subtract(ends, lengths)))
