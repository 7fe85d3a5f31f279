"""Checks the payload columns of a DataFrame, and casts them to their stored types.

The rule is that of `payloads.values`: a value is stored if Arrow's safe cast keeps it. Here SQL conditions find
the others: those that a cast there and back changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.sizes import OF_ONE
from tubeq_spark.payloads.types import (
    FIRST_US,
    LAST_US,
    WHOLE_MAX,
    arrow_struct,
    delta_type,
    described,
    sql_name,
)
from tubeq_spark.payloads.values import misfit
from tubeq_spark.storage.location import identifier
from tubeq_spark.storage.spark.quoting import bigint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

#: By the bits of a floating-point number, the condition for whole numbers that it represents exactly.
_WHOLE = {bits: f"BETWEEN {bigint(-most)} AND {bigint(most)}" for bits, most in WHOLE_MAX.items()}
#: The condition for values that are not stored, by the type: those that Python cannot represent, and numbers beyond a FLOAT.
_NOT_STORED: Mapping[type[T.DataType], str] = {
    T.DateType: "year({}) NOT BETWEEN 1 AND 9999",
    T.FloatType: "abs(CAST({} AS FLOAT)) = CAST('Infinity' AS FLOAT)",
    T.StringType: "NOT is_valid_utf8({})",
    T.TimestampNTZType: "year({}) NOT BETWEEN 1 AND 9999",
    T.TimestampType: f"unix_micros({{}}) NOT BETWEEN {bigint(FIRST_US)} AND {bigint(LAST_US)}",
}


class Check(NamedTuple):
    """A condition for bad values of a column, with a message.

    Attributes:
        column: The name of the column.
        is_bad: The SQL condition, which is never NULL.
        allowed: The allowed values, for the message.
    """

    column: str
    is_bad: str
    allowed: str


def payload_struct(ddl: str) -> T.StructType:
    """The type of a payload's columns."""
    return T.StructType.fromJson(delta_type(columns_of(ddl)))


def require_assignable(given: T.StructType, payload: T.StructType) -> None:
    """Refuse columns of types whose values the payload cannot store.

    Raises:
        InvalidOptionError: There is such a column. The message has its name, its type and the payload's type.
    """
    kinds, wanted = _kinds(given), _kinds(payload)
    for name, part in wanted.items():
        reason = misfit(kinds[name].type, part.type, name)
        if reason is not None:
            shown = given[name].dataType.simpleString()
            msg = f"df column {name}={shown!r}: must be {sql_name(part)}; {reason}"
            raise InvalidOptionError(msg)


def _kinds(columns: T.StructType) -> Mapping[str, pa.Field]:
    return {part.name: part for part in arrow_struct(columns.jsonValue()["fields"])}


def as_stored(df: DataFrame, payload: T.StructType) -> DataFrame:
    """Cast the checked payload of a DataFrame to the stored types."""
    columns = {
        field.name: F.col(identifier(field.name)).cast(field.dataType)
        for field in payload
        # The nullability of parts needs no cast.
        if field.dataType.simpleString() != df.schema[field.name].dataType.simpleString()
    }
    return df.withColumns(columns) if columns else df


def payload_checks(given: T.StructType, payload: T.StructType) -> list[Check]:
    """The checks of each row's payload. The types of the columns must have been accepted before."""
    kinds, checks = _kinds(payload), []
    for field in payload:
        is_bad = _is_bad(given[field.name].dataType, field, identifier(field.name))
        if is_bad is not None:
            checks.append(Check(field.name, is_bad, described(kinds[field.name])))
    return checks


def _is_bad(given: T.DataType, wanted: T.StructField, value: str, depth: int = 0) -> str | None:
    """The condition for values that cannot be stored or handed out; `None` if all can."""
    within = (
        None if isinstance(given, T.NullType) else _within(given, wanted.dataType, value, depth)
    )
    return within if wanted.nullable else _either(f"{value} IS NULL", within)


def _within(given: T.DataType, wanted: T.DataType, value: str, depth: int) -> str | None:
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        item = f"v{depth}"
        element = T.StructField(item, wanted.elementType)
        is_bad = _is_bad(given.elementType, element, item, depth + 1)
        found = None if is_bad is None else f"exists({value}, {item} -> {is_bad})"
        return found and f"coalesce({found}, FALSE)"
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        keys, values = f"map_keys({value})", f"map_values({value})"
        # Two different numbers may become the same FLOAT.
        stored = f"try_cast({keys} AS {T.ArrayType(wanted.keyType).simpleString()})"
        return _either(
            f"coalesce(size(array_distinct({stored})) < size({keys}), FALSE)",
            _within(T.ArrayType(given.keyType), T.ArrayType(wanted.keyType), keys, depth),
            _within(T.ArrayType(given.valueType), T.ArrayType(wanted.valueType), values, depth),
        )
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        pairs = zip(given, wanted, strict=True)
        inside = [_is_bad(a.dataType, b, f"{value}.{identifier(a.name)}", depth) for a, b in pairs]
        is_bad = _either(*inside)
        return is_bad and f"({value} IS NOT NULL AND {is_bad})"
    kept = _is_kept(given, wanted, value)
    never = _NOT_STORED.get(type(wanted))
    return _either(
        kept and f"coalesce(NOT ({kept}), FALSE)",
        never and f"coalesce({never.format(value)}, FALSE)",
    )


def _is_kept(given: T.DataType, wanted: T.DataType, value: str) -> str | None:
    """The condition for numbers that a cast keeps unchanged; `None` if it keeps all."""
    if given == wanted or not isinstance(wanted, T.NumericType):
        return None
    if isinstance(wanted, (T.FloatType, T.DoubleType)):
        bits = 32 if isinstance(wanted, T.FloatType) else 64
        return f"{value} {_WHOLE[bits]}" if isinstance(given, T.IntegralType) else None
    there = f"try_cast({value} AS {wanted.simpleString()})"
    back = f"try_cast({there} AS {given.simpleString()}) <=> {value}"
    # Spark casts 2^63 to the greatest BIGINT.
    return (
        f"{back} AND {value} < {2**63}D" if isinstance(given, (T.FloatType, T.DoubleType)) else back
    )


def _either(*conditions: str | None) -> str | None:
    found = [condition for condition in conditions if condition is not None]
    return f"({' OR '.join(found)})" if found else None


# -- sizes ------------------------------------------------------------------------------------


def payload_size(df: DataFrame, payload: Iterable[str]) -> str:
    """The bytes of a row's payload, as `payloads.sizes` counts them."""
    return " + ".join(_size(df.schema[name].dataType, identifier(name)) for name in payload)


def _size(kind: T.DataType, value: str, depth: int = 0) -> str:
    if isinstance(kind, (T.StringType, T.BinaryType)):
        return f"coalesce(octet_length({value}), 0L)"
    if isinstance(kind, T.MapType):
        keys = _size(T.ArrayType(kind.keyType), f"map_keys({value})", depth)
        return f"{keys} + {_size(T.ArrayType(kind.valueType), f'map_values({value})', depth)}"
    if isinstance(kind, T.StructType):
        parts = [_size(f.dataType, f"{value}.{identifier(f.name)}", depth) for f in kind.fields]
        return " + ".join(parts)
    if not isinstance(kind, T.ArrayType):
        return f"CASE WHEN {value} IS NULL THEN 0L ELSE {bigint(OF_ONE)} END"
    item = f"v{depth}"
    size = _size(kind.elementType, item, depth + 1)
    return f"coalesce(aggregate({value}, 0L, (sum{depth}, {item}) -> sum{depth} + {size}), 0L)"
