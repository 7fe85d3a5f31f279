"""Assigns Arrow columns to the columns of a typed payload, by the rules of `payloads.values`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.payloads.arrow_values import (
    decoded,
    first_bad,
    is_integer,
    is_list,
    is_text,
    map_entries,
    with_dicts,
)
from tubeq_spark.payloads.put_columns import PYTHON_VALUES
from tubeq_spark.payloads.types import described, sql_name
from tubeq_spark.payloads.values import MisfitError, converter, shown


def assigned(column: pa.ChunkedArray, part: pa.Field) -> pa.ChunkedArray:
    """Convert a column to its stored form.

    Args:
        column: The column of the table that is put.
        part: The payload's column.

    Raises:
        InvalidOptionError: The column has values that cannot be stored. The message has its name, the type and the
            first bad row.
    """
    if column.type == part.type:
        return column
    reason = misfit(column.type, part.type, part.name)
    if reason is None:
        try:
            return _converted(column, part.type)
        except pa.ArrowException:
            row = first_bad(column, lambda rows: _has_bad(rows, part.type))
            reason = f"row {row}: {_reason(column[row], part)}"
    msg = f"table column {part.name}={str(column.type)!r}: must be {sql_name(part.type)}; {reason}"
    raise InvalidOptionError(msg)


def misfit(given: pa.DataType, wanted: pa.DataType, path: str) -> str | None:
    """The path of the part of a type that has a wrong kind of values; `None` if there is none."""
    reason = f"{path} must be {described(wanted)}, not {sql_name(given)}"
    if given == wanted or pa.types.is_null(given):
        return None
    if pa.types.is_dictionary(given):
        return misfit(given.value_type, wanted, path)
    parts: list[tuple[Any, Any, str]]
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        if [part.name for part in given] != [part.name for part in wanted]:
            return reason
        pairs = zip(given, wanted, strict=True)
        parts = [(a.type, b.type, f"{path}.{b.name}") for a, b in pairs]
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        parts = [
            (given.key_type, wanted.key_type, f"{path}.key"),
            (given.item_type, wanted.item_type, f"{path}.value"),
        ]
    elif is_list(given) and pa.types.is_list(wanted):
        parts = [(given.value_type, wanted.value_type, f"{path}.element")]
    else:
        return None if _is_assignable(given, wanted) else reason
    return next((bad for part in parts if (bad := misfit(*part))), None)


def _is_assignable(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a primitive type may be stored as another one."""
    whole, decimal = is_integer(given), pa.types.is_decimal(given)
    if is_integer(wanted):
        return bool(whole or decimal or pa.types.is_floating(given))
    if pa.types.is_floating(wanted):
        return bool(whole or pa.types.is_floating(given))
    if pa.types.is_decimal(wanted):
        return bool(whole or decimal)
    if pa.types.is_timestamp(wanted):
        return pa.types.is_timestamp(given) and (given.tz is None) == (wanted.tz is None)
    return (is_text(given) and is_text(wanted)) or (_is_binary(given) and _is_binary(wanted))


def _is_binary(kind: pa.DataType) -> bool:
    known = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(of(kind) for of in (*known, pa.types.is_binary_view))


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert a column whose values can be stored.

    Raises:
        pa.ArrowException: A value cannot be stored.
    """
    return pa.chunked_array([_values(chunk, kind) for chunk in column.chunks], kind)


def _values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = decoded(values)
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind):
        parts = [_values(*pair) for pair in zip(values.flatten(), _types(kind), strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_list(kind):
        items = _values(pc.list_flatten(values), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items, type=kind)
    if pa.types.is_map(kind):
        entries = map_entries(values)
        keys, items = pc.list_flatten(entries).flatten()
        keys, items = _values(keys, kind.key_type), _values(items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=kind)
    return _leaves(values, kind)


def _types(kind: pa.StructType) -> list[pa.DataType]:
    return [part.type for part in kind]


def _offsets(lists: pa.Array) -> pa.Array:
    """The offsets of lists among all items; NULL for a list that is NULL."""
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0)).cast(pa.int32())
    starts = pa.concat_arrays([pa.nulls(1, pa.int32()).fill_null(0), ends])
    begins = pc.if_else(lists.is_null(), pa.nulls(len(lists), pa.int32()), starts[:-1])
    return pa.concat_arrays([begins, starts[-1:]])


def _leaves(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind) and is_integer(values.type):
        # Arrow requires digits for all values of a type, also if the column does not have them.
        values = values.cast(pa.decimal128(38, 0))
    found = values.cast(kind)
    # A value that is too large for a FLOAT silently becomes infinite.
    if kind == pa.float32() and not pc.is_inf(found).equals(pc.is_inf(values)):
        msg = "beyond a FLOAT"
        raise pa.ArrowInvalid(msg)
    return found


# -- refusals -------------------------------------------------------------------------------------

#: The errors for a value that Python cannot represent: a moment after the year 9999, or in an unknown time zone.
_NO_VALUE = (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError)


def _has_bad(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        _converted(column, kind)
    except pa.ArrowException:
        return True
    return False


def _reason(value: pa.Scalar, part: pa.Field) -> str:
    """The part of a row that must not be stored."""
    try:
        given = with_dicts(value.as_py(), value.type)
        converter(part.type)(given)
    except MisfitError as error:
        return str(error.within(part.name))
    except _NO_VALUE:
        pass
    try:
        return shown(str(value))
    except _NO_VALUE:
        return f"it has others than {PYTHON_VALUES}"
