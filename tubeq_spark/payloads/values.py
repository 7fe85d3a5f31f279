"""Converts Python values for the columns of a typed payload, or refuses them.

The stored value is the one that Spark's INSERT stores by its ANSI store assignment. It equals the
given value; only a float in a FLOAT column is rounded. All other values are refused. These include some that
an INSERT would convert, because the conversion would lose digits or a time, or would depend on a
time zone that is not given.
"""

from __future__ import annotations

import datetime as dt
import operator
import reprlib
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa

from tubeq_spark.payloads.types import WHOLE_MAX, described, range_of

#: Returns the stored form of a value; `None` is NULL.
Converter: TypeAlias = Callable[[Any], Any]

_NO_ITEMS = (str, bytes, bytearray, memoryview)
#: An integer of more bits has more digits than any DECIMAL.
_DECIMAL_BITS = 128


_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = 60


def shown(value: Any) -> str:
    """A value for a message, shortened if it is long."""
    return _REPR.repr(value)


class MisfitError(Exception):
    """A value does not fit a column, or a part of it."""

    def __init__(self, allowed: str, value: Any) -> None:
        """Create the error with the allowed values and the given one."""
        super().__init__(allowed)
        self.allowed, self.value, self._path = allowed, value, ""

    def within(self, step: str) -> MisfitError:
        """The same error, one level further out."""
        self._path = step + self._path
        return self

    def __str__(self) -> str:
        path = self._path.lstrip(".") or "it"
        return f"{path} must be {self.allowed}, not {shown(self.value)}"


def converter(kind: pa.DataType) -> Converter:
    """The converter for values of a column; it raises `MisfitError`."""
    if pa.types.is_struct(kind):
        return _of_struct(kind)
    if pa.types.is_map(kind):
        return _of_map(kind)
    if pa.types.is_list(kind):
        return _of_list(kind)
    of, allowed = _leaf(kind), described(kind)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        found = of(value)
        if found is None and _is_numpy_scalar(value):
            found = of(value.item())
        if found is None:
            raise MisfitError(allowed, value)
        return found

    return convert


def _is_numpy_scalar(value: Any) -> bool:
    """Whether a value is a scalar of numpy that has an equal Python value."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is None or getattr(value, "ndim", None) != 0 or not hasattr(value, "item"):
        return False
    # Datetimes and timedeltas may become integers, and a masked value becomes zero.
    is_number = kind == "m" or (kind == "M" and isinstance(value.item(), int))
    return not is_number and not hasattr(value, "mask")


# -- values with parts ----------------------------------------------------------------------------


def _of_struct(kind: pa.StructType) -> Converter:
    parts = [(part.name, part.nullable, converter(part.type)) for part in kind]
    names, allowed = {name for name, _, _ in parts}, described(kind)

    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        given = _named(value)
        if given is None or not given.keys() <= names:
            raise MisfitError(allowed, value)
        found = {}
        for name, nullable, of in parts:
            try:
                found[name] = of(given.get(name))
                if found[name] is None and not nullable:
                    raise MisfitError("a value: the schema says NOT NULL", None)  # noqa: TRY301
            except MisfitError as error:
                raise error.within(f".{name}") from None
        return found

    return convert


def _named(value: Any) -> Mapping[Any, Any] | None:
    """A value with named parts: a mapping or a Spark Row."""
    if isinstance(value, Mapping):
        return value
    try:
        found: Mapping[Any, Any] = value.asDict()
    except (AttributeError, TypeError):
        return None
    # A Row may have the same name twice.
    return found if len(found) == len(value) else None


def _of_map(kind: pa.MapType) -> Converter:
    key_of, item_of, allowed = converter(kind.key_type), converter(kind.item_type), described(kind)

    def convert(value: Any) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise MisfitError(allowed, value)
        found = {}
        for key, item in value.items():
            try:
                stored = key_of(key)
            except MisfitError as error:
                raise error.within(".key") from None
            try:
                found[stored] = item_of(item)
            except MisfitError as error:
                raise error.within(f"[{shown(key)}]") from None
        # All NaNs are the same key, though they are not equal in Python. Two keys may become the same FLOAT.
        keys = {"NaN" if key != key else key for key in found}  # noqa: PLR0124
        if None in found or len(keys) < len(value):
            raise MisfitError(allowed, value)
        return found

    return convert


def _of_list(kind: pa.ListType) -> Converter:
    of, allowed = converter(kind.value_type), described(kind)

    def convert(value: Any) -> list[Any] | None:
        if value is None:
            return None
        is_items = isinstance(value, Sequence) and not isinstance(value, _NO_ITEMS)
        if hasattr(value, "asDict") or not (is_items or getattr(value, "ndim", 0) == 1):
            raise MisfitError(allowed, value)
        found = []
        for place, item in enumerate(value):
            try:
                found.append(of(item))
            except MisfitError as error:
                raise error.within(f"[{place}]") from None
        return found

    return convert


# -- single values; `None` for a refused one ------------------------------------------------------


def _leaf(kind: pa.DataType) -> Converter:
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        least, most = range_of(kind)
        return lambda value: _whole(value, least, most)
    if pa.types.is_floating(kind):
        return _single if kind.bit_width == 32 else _double
    if pa.types.is_decimal(kind):
        return _of_decimal(kind)
    if pa.types.is_timestamp(kind):
        return _local if kind.tz is None else _moment
    return _OTHERS.get(kind, lambda _: None)


def _whole(value: Any, least: int, most: int) -> int | None:
    if isinstance(value, float | Decimal):
        # Comparisons with numbers that are not finite are false, or raise.
        finite = value.is_finite() if isinstance(value, Decimal) else value - value == 0
        if not finite or not least <= value <= most or value != int(value):
            return None
        return int(value)
    number = _index(value)
    return number if number is not None and least <= number <= most else None


def _index(value: Any) -> int | None:
    """Whether a value is an integer of any class, but not a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _double(value: Any, bits: int = 64) -> float | None:
    if isinstance(value, float):
        return float(value)
    number = _index(value)
    return float(number) if number is not None and abs(number) <= WHOLE_MAX[bits] else None


def _single(value: Any) -> float | None:
    number = _double(value, 32)
    if number is None:
        return None
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return None
    return rounded


def _of_decimal(kind: pa.DataType) -> Converter:
    exactly = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    last = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal | None:
        whole = None if isinstance(value, Decimal) else _index(value)
        if whole is not None and whole.bit_length() <= _DECIMAL_BITS:
            value = Decimal(whole)
        if not isinstance(value, Decimal) or not value.is_finite():
            return None
        try:
            found = value.quantize(last, context=exactly)
        except (Inexact, InvalidOperation):
            return None
        # A DECIMAL has no negative zero.
        return found or found.copy_abs()

    return convert


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return str.__str__(value)


def _bytes(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _day(value: Any) -> dt.date | None:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        return None
    return dt.date(value.year, value.month, value.day)


def _moment(value: Any) -> dt.datetime | None:
    if not _is_moment(value) or value.utcoffset() is None:
        return None
    try:
        return _plain(value.astimezone(dt.UTC), dt.UTC)
    except OverflowError:
        return None


def _local(value: Any) -> dt.datetime | None:
    return _plain(value, None) if _is_moment(value) and value.tzinfo is None else None


def _is_moment(value: Any) -> bool:
    # The missing value of pandas is a datetime, too, and does not equal itself.
    return isinstance(value, dt.datetime) and value == value  # noqa: PLR0124


def _plain(value: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime | None:
    """A value as a datetime of Python; `None` for one of pandas with nanoseconds."""
    if getattr(value, "nanosecond", 0):
        return None
    day, time = (value.year, value.month, value.day), (value.hour, value.minute, value.second)
    return dt.datetime(*day, *time, value.microsecond, tzinfo=zone)


_OTHERS: dict[pa.DataType, Converter] = {
    pa.string(): _text,
    pa.binary(): _bytes,
    pa.date32(): _day,
}
