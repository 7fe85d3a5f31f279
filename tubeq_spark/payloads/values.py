"""Payloads in their stored form: JSON text, or values of the columns of a schema.

A value is stored in a typed column if Arrow's safe cast to the column's type keeps it, and refused otherwise.
Arrow would also parse texts, and take numbers for moments. So a cast is tried only within a family of types, and
between whole numbers and the others. The same holds for columns of Arrow tables, for DataFrames
(`storage/spark/put_frame_checks`), and for values of Python: they must equal what Arrow makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import json_payload
from tubeq_spark.model.validation import shown
from tubeq_spark.payloads.arrow_values import first_bad, places
from tubeq_spark.payloads.types import (
    described,
    family,
    is_list,
    sql_name,
    stored_type,
    with_leaves,
)

#: The pairs of different families between which a cast may keep values.
_CASTS = {
    ("integer", "float"),
    ("integer", "decimal"),
    ("float", "integer"),
    ("decimal", "integer"),
}
#: The errors of Arrow, and of pandas within it, for a value that no column can hold.
NO_VALUE = (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError)
#: Sequences that are no lists.
_NO_ITEMS = (str, bytes, bytearray, memoryview)


class PayloadCodec:
    """Converts payloads to their stored form: JSON text, or a dict of the schema's columns.

    Attributes:
        payload: The columns of a typed payload, some perhaps NOT NULL; `None` is JSON text.
        arrow_type: The type of such payloads in the table, in which all columns are nullable.
    """

    def __init__(self, payload: pa.StructType | None = None) -> None:
        """Convert payloads with these columns, or any JSON values."""
        self.payload = payload
        self.arrow_type = None if payload is None else stored_type(payload)
        #: The stored form of a payload. It raises `InvalidOptionError` if the payload would not come back equal.
        self.encode: Callable[[Any], Any] = (
            json_payload.encode if payload is None else partial(_encoded, payload=payload)
        )


def _encoded(data: Any, payload: pa.StructType) -> dict[str, Any]:
    """The columns of a typed payload. Missing ones are NULL."""
    try:
        given = _named(data, payload, "")
        return {part.name: _stored(given.get(part.name), part) for part in payload}
    except _MisfitError as error:
        raise InvalidOptionError(f"data={shown(data)}: {error}") from None


# -- values of Python -----------------------------------------------------------------------------


class _MisfitError(Exception):
    """A value does not fit a column, or a part of it."""

    def __init__(self, path: str, part: pa.Field, value: Any) -> None:
        super().__init__(f"{path or 'it'} must be {described(part)}, not {shown(value)}")


def _stored(value: Any, part: pa.Field) -> Any:
    """The stored form of a value of a column."""
    try:
        return _kept(pa.scalar(value, part.type).as_py(), value, part, part.name)
    except NO_VALUE:
        raise _MisfitError(part.name, part, value) from None


def _kept(found: Any, given: Any, part: pa.Field, path: str) -> Any:
    """What Arrow made of a value, with dicts for maps, if it equals the value.

    Raises:
        _MisfitError: Arrow has changed the value, or it is NULL and must not be.
    """
    kind = part.type
    if found is None and given is None and part.nullable:
        return None
    if found is None or given is None:
        raise _MisfitError(path, part, given)
    if pa.types.is_struct(kind):
        named = _named(given, kind, path)
        return {
            of.name: _kept(found[of.name], named.get(of.name), of, f"{path}.{of.name}")
            for of in kind
        }
    if pa.types.is_map(kind):
        return _kept_map(found, given, part, path)
    if pa.types.is_list(kind):
        is_items = isinstance(given, Sequence) or getattr(given, "ndim", 0) == 1
        if not is_items or isinstance(given, _NO_ITEMS) or hasattr(given, "asDict"):
            raise _MisfitError(path, part, given)
        pairs = enumerate(zip(found, given, strict=True))
        return [_kept(a, b, kind.value_field, f"{path}[{place}]") for place, (a, b) in pairs]
    if not _is_equal(found, given) or (pa.types.is_float32(kind) and math.isinf(found)):
        raise _MisfitError(path, part, given)
    return found


def _named(value: Any, kind: pa.StructType, path: str) -> Mapping[Any, Any]:
    """A mapping or a Row as a mapping from names."""
    given = value if isinstance(value, Mapping) else None
    # A Row may have the same name twice, or no names.
    if hasattr(value, "asDict") and len(set(getattr(value, "__fields__", ()))) == len(value):
        given = value.asDict(recursive=True)
    if given is None or not given.keys() <= {part.name for part in kind}:
        raise _MisfitError(path, pa.field("", kind), value)
    return given


def _kept_map(found: Any, given: Any, part: pa.Field, path: str) -> dict[Any, Any]:
    if not isinstance(given, Mapping):
        raise _MisfitError(path, part, given)
    key, item = part.type.key_field, part.type.item_field
    kept = {
        _kept(a, b, key, f"{path}.key"): _kept(x, y, item, f"{path}.value")
        for (a, x), (b, y) in zip(found, given.items(), strict=True)
    }
    # All NaNs are the same key, though they are not equal in Python. Two keys may become the same FLOAT.
    if len({repr(name) for name in kept}) < len(given):
        raise _MisfitError(path, part, given)
    return kept


def _is_equal(found: Any, given: Any) -> bool:
    """Whether Arrow has kept a value. A float may be rounded to a FLOAT."""
    of_numpy = getattr(getattr(given, "dtype", None), "kind", None)
    if isinstance(found, float) and (isinstance(given, float) or of_numpy == "f"):
        return True
    # Arrow takes truths and durations of numpy for numbers, which also equal them.
    is_truth = isinstance(given, bool) or of_numpy == "b"
    return (
        isinstance(found, bool) == is_truth and of_numpy not in {"m", "M"} and bool(found == given)
    )


# -- columns of Arrow -----------------------------------------------------------------------------


def misfit(given: pa.DataType, wanted: pa.DataType, path: str) -> str | None:
    """The reason why values of a type are never stored in a column; `None` if a cast may keep them."""
    if given == wanted or pa.types.is_null(given):
        return None
    if pa.types.is_dictionary(given):
        return misfit(given.value_type, wanted, path)
    families = family(given), family(wanted)
    parts: list[tuple[Any, Any, str]] = []
    fits = families[0] == families[1] or families in _CASTS
    if pa.types.is_struct(wanted) and fits:
        fits = [part.name for part in given] == [part.name for part in wanted]
        parts = [(a.type, b.type, f".{b.name}") for a, b in zip(given, wanted, strict=False)]
    elif pa.types.is_map(wanted) and fits:
        parts = [(given.key_type, wanted.key_type, ".key")]
        parts += [(given.item_type, wanted.item_type, ".value")]
    elif is_list(wanted) and fits:
        parts = [(given.value_type, wanted.value_type, ".element")]
    if not fits:
        return (
            f"{path} must be {described(pa.field('', wanted))}, not {sql_name(pa.field('', given))}"
        )
    return next((bad for a, b, name in parts if (bad := misfit(a, b, path + name))), None)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to a type of the same family.

    Raises:
        pa.ArrowException: A value would be changed.
    """
    if pa.types.is_nested(column.type):
        # Of a part of a nested column Arrow casts all items of the whole.
        column = column.take(places(len(column)))
    # For decimals Arrow asks for the digits of all numbers of a type, also if the values have fewer.
    return column.cast(with_leaves(kind, _widest)).cast(stored_type(kind))


def _widest(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def assigned(column: pa.ChunkedArray, part: pa.Field) -> pa.ChunkedArray:
    """Cast a column of a table, whose type fits, to the stored type of the payload's column.

    Raises:
        InvalidOptionError: The column has values that cannot be stored. The message names the first bad row.
    """
    if column.type == stored_type(part.type):
        return column
    try:
        return _cast(column, part.type)
    except pa.ArrowException:
        changes = lambda rows: not _is_kept(rows, part.type)  # noqa: E731
        raise bad_row(part.name, column, changes, described(part)) from None


def _is_kept(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        _cast(column, kind)
    except pa.ArrowException:
        return False
    return True


def bad_row(
    name: str, column: pa.ChunkedArray, is_bad: Callable[[pa.ChunkedArray], bool], allowed: str
) -> InvalidOptionError:
    """The error for a column of a table that has bad values. It names the first bad row."""
    row = first_bad(column, is_bad)
    try:
        value = shown(column[row].as_py())
    except NO_VALUE:
        value = f"{str(column.type)!r} that Python cannot hold"
    return InvalidOptionError(
        f"table column {name}={value}: must be {allowed}; the first is row {row}"
    )
