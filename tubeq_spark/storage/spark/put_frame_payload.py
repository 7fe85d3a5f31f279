"""Checks the payload columns of a DataFrame, and casts them to their stored types.

The rules are those of `payloads.values`: for types in Python, and for values as SQL conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.validation import refuse
from tubeq_spark.payloads.assignment import misfit
from tubeq_spark.payloads.put_columns import (
    FIRST_US,
    LAST_US,
    NOT_IN_NAMES,
    NOT_NULL_VALUES,
    PYTHON_VALUES,
)
from tubeq_spark.payloads.sizes import OF_ONE
from tubeq_spark.payloads.types import WHOLE_MAX, arrow_struct, described, range_of
from tubeq_spark.storage.location import identifier
from tubeq_spark.storage.spark.quoting import bigint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame


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


def require_assignable(given: T.StructType, payload: T.StructType) -> None:
    """Refuse columns of types whose values the payload cannot store.

    Raises:
        InvalidOptionError: There is such a column. The message has its name, its type and the payload's type.
    """
    kinds, wanted = _kinds(given), _kinds(payload)
    for field in payload:
        reason = misfit(kinds[field.name], wanted[field.name], field.name)
        if reason is not None:
            shown, stored = (s[field.name].dataType.simpleString() for s in (given, payload))
            msg = f"df column {field.name}={shown!r}: must be {stored}; {reason}"
            raise InvalidOptionError(msg)


def _kinds(columns: T.StructType) -> Mapping[str, pa.DataType]:
    return {part.name: part.type for part in arrow_struct(columns.jsonValue()["fields"])}


def without_void(df: DataFrame, payload: T.StructType) -> DataFrame:
    """Give columns of NULLs, which have no type, the payload's types."""
    return _cast(
        df, {part.name: _filled(df.schema[part.name].dataType, part.dataType) for part in payload}
    )


def as_stored(df: DataFrame, payload: T.StructType) -> DataFrame:
    """Cast the checked payload of a DataFrame to the stored types."""
    return _cast(df, {field.name: field.dataType for field in payload})


def _cast(df: DataFrame, kinds: Mapping[str, T.DataType]) -> DataFrame:
    """Cast the columns whose types differ, apart from the nullability of their parts."""
    columns = {
        name: F.col(identifier(name)).cast(kind)
        for name, kind in kinds.items()
        if kind.simpleString() != df.schema[name].dataType.simpleString()
    }
    return df.withColumns(columns) if columns else df


def _filled(given: T.DataType, wanted: T.DataType) -> T.DataType:
    """A type in which parts without a type are replaced by those of another type."""
    if isinstance(given, T.NullType):
        return wanted
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return T.ArrayType(_filled(given.elementType, wanted.elementType), given.containsNull)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        key = _filled(given.keyType, wanted.keyType)
        return T.MapType(key, _filled(given.valueType, wanted.valueType), given.valueContainsNull)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        pairs = zip(given.fields, wanted.fields, strict=True)
        return T.StructType(
            [T.StructField(a.name, _filled(a.dataType, b.dataType), a.nullable) for a, b in pairs]
        )
    return given


def payload_checks(given: T.StructType, payload: T.StructType) -> list[Check]:
    """The checks of each row's payload. The types of the columns must have been accepted before."""
    kinds, checks = _kinds(payload), []
    for field in payload:
        value, kind = identifier(field.name), given[field.name].dataType
        conditions = (
            (_is_lost(kind, field.dataType, value), described(kinds[field.name])),
            (_is_unreadable(field.dataType, value), PYTHON_VALUES),
            (_lacks_one(field, value), NOT_NULL_VALUES),
        )
        checks += [Check(field.name, is_bad, allowed) for is_bad, allowed in conditions if is_bad]
    return checks


# -- values that do not fit another type ------------------------------------------------------


def _is_lost(given: T.DataType, wanted: T.DataType, value: str, depth: int = 0) -> str | None:
    """The condition for values that a cast would change; `None` if it changes none."""
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        of, stored = given.elementType, wanted.elementType
        return _any(value, depth, lambda item: _is_lost(of, stored, item, depth + 1))
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        keys, values = T.ArrayType(given.keyType), T.ArrayType(given.valueType)
        return _either(
            _is_lost(keys, T.ArrayType(wanted.keyType), f"map_keys({value})", depth),
            _is_lost(values, T.ArrayType(wanted.valueType), f"map_values({value})", depth),
        )
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        pairs = zip(given.fields, wanted.fields, strict=True)
        return _either(
            *(
                _is_lost(a.dataType, b.dataType, f"{value}.{identifier(a.name)}", depth)
                for a, b in pairs
            )
        )
    kept = None if given == wanted else _is_kept(given, wanted, value)
    return None if kept is None else f"coalesce(NOT ({kept}), FALSE)"


def _any(values: str, depth: int, condition: Callable[[str], str | None]) -> str | None:
    """The condition that one of the values of an array is bad; `None` if none can be."""
    item = f"v{depth}"
    is_bad = condition(item)
    return None if is_bad is None else f"coalesce(exists({values}, {item} -> {is_bad}), FALSE)"


def _is_kept(given: T.DataType, wanted: T.DataType, value: str) -> str | None:
    """The condition for numbers that a cast keeps unchanged; `None` if it keeps all."""
    if isinstance(wanted, T.IntegralType):
        return _is_whole(given, *range_of(_kinds(T.StructType().add("n", wanted))["n"]), value)
    if isinstance(wanted, (T.FloatType, T.DoubleType)):
        bits = 32 if isinstance(wanted, T.FloatType) else 64
        if isinstance(given, T.IntegralType):
            return _is_whole(given, -WHOLE_MAX[bits], WHOLE_MAX[bits], value)
        endless = "CAST('Infinity' AS DOUBLE)"
        stored = f"CAST(CAST({value} AS FLOAT) AS DOUBLE)"
        return None if bits == 64 else f"abs({stored}) != {endless} OR abs({value}) = {endless}"
    if isinstance(wanted, T.DecimalType):
        there = f"try_cast({value} AS {wanted.simpleString()})"
        return f"try_cast({there} AS {given.simpleString()}) <=> {value}"
    return None


def _is_whole(given: T.DataType, least: int, most: int, value: str) -> str:
    """The condition for numbers that are integers within bounds."""
    if isinstance(given, T.IntegralType):
        return f"CAST({value} AS BIGINT) BETWEEN {least} AND {most}"
    if isinstance(given, T.DecimalType):
        return f"{value} BETWEEN {least}BD AND {most}BD AND floor({value}) = {value}"
    # Spark itself casts 2^63 to the greatest BIGINT.
    number = f"CAST({value} AS DOUBLE)"
    return f"{number} >= {least}D AND {number} < {most + 1}D AND rint({number}) = {number}"


# -- values that cannot be handed out ---------------------------------------------------------


def is_no_text(value: str) -> str:
    """The condition for a text that is not UTF-8."""
    # Spark's strings may have any bytes, such as CAST(X'FF' AS STRING).
    return f"coalesce(NOT is_valid_utf8({value}), FALSE)"


def _is_unreadable(kind: T.DataType, value: str, depth: int = 0) -> str | None:
    """The condition for values that Python cannot represent; `None` if it can represent all."""
    if isinstance(kind, T.ArrayType):
        of = kind.elementType
        return _any(value, depth, lambda item: _is_unreadable(of, item, depth + 1))
    if isinstance(kind, T.MapType):
        # Two different numbers may become the same FLOAT.
        single = isinstance(kind.keyType, T.FloatType)
        keys = f"map_keys({value})"
        keys = f"CAST({keys} AS ARRAY<FLOAT>)" if single else keys
        return _either(
            f"coalesce(size(array_distinct({keys})) < size({keys}), FALSE)",
            _is_unreadable(T.ArrayType(kind.keyType), keys, depth),
            _is_unreadable(T.ArrayType(kind.valueType), f"map_values({value})", depth),
        )
    if isinstance(kind, T.StructType):
        fields = [(field.dataType, f"{value}.{identifier(field.name)}") for field in kind.fields]
        return _either(*(_is_unreadable(of, field, depth) for of, field in fields))
    return _is_no_python_value(kind, value)


def _lacks_one(field: T.StructField, value: str, depth: int = 0) -> str | None:
    """The condition for a missing value in a NOT NULL column or field; `None` if there is no such column."""
    within = _lacks_within(field.dataType, value, depth)
    return within if field.nullable else _either(f"{value} IS NULL", within)


def _lacks_within(kind: T.DataType, value: str, depth: int) -> str | None:
    if isinstance(kind, T.StructType):
        parts = [_lacks_one(f, f"{value}.{identifier(f.name)}", depth) for f in kind.fields]
        lacks = _either(*parts)
        return None if lacks is None else f"({value} IS NOT NULL AND {lacks})"
    if isinstance(kind, T.MapType):
        return _lacks_within(T.ArrayType(kind.valueType), f"map_values({value})", depth)
    if isinstance(kind, T.ArrayType):
        of = kind.elementType
        return _any(value, depth, lambda item: _lacks_within(of, item, depth + 1))
    return None


def _is_no_python_value(kind: T.DataType, value: str) -> str | None:
    if isinstance(kind, T.StringType):
        return is_no_text(value)
    if isinstance(kind, T.TimestampType):
        span = f"{bigint(FIRST_US)} AND {bigint(LAST_US)}"
        return f"coalesce(unix_micros({value}) NOT BETWEEN {span}, FALSE)"
    if isinstance(kind, (T.DateType, T.TimestampNTZType)):
        return f"coalesce(year({value}) NOT BETWEEN 1 AND 9999, FALSE)"
    return None


# -- sizes ------------------------------------------------------------------------------------


def payload_size(df: DataFrame, payload: Iterable[str]) -> str:
    """The bytes of a row's payload, as `payloads.sizes` counts them."""
    return " + ".join(_size(df.schema[name].dataType, identifier(name)) for name in payload)


def _size(kind: T.DataType, value: str, depth: int = 0) -> str:
    if isinstance(kind, (T.StringType, T.BinaryType)):
        return f"coalesce(octet_length({value}), 0L)"
    if isinstance(kind, T.VariantType):
        return f"coalesce(octet_length(to_json({value})), 0L)"
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


def _either(*conditions: str | None) -> str | None:
    found = [condition for condition in conditions if condition is not None]
    return f"({' OR '.join(found)})" if found else None


def payload_ddl(ddl: str) -> str:
    """The DDL of a payload's columns with Spark's types.

    Raises:
        InvalidOptionError: It is no DDL, or has columns that no Delta table can have.
    """
    return payload_struct(ddl).toDDL()


def payload_fields(ddl: str) -> list[dict[str, Any]]:
    """A payload's columns in Delta's schema, from the DDL of a tube."""
    return cast("list[dict[str, Any]]", payload_struct(ddl).jsonValue()["fields"])


def payload_struct(ddl: str) -> T.StructType:
    """The type of a payload's columns.

    Raises:
        InvalidOptionError: It is no DDL, or has columns that no Delta table can have.
    """
    try:
        struct = T.StructType.fromDDL(ddl)
    except PySparkException as error:
        msg = f"schema={ddl!r}: must be the DDL of the payload's columns, such as 'url STRING'"
        raise InvalidOptionError(msg) from error
    if not isinstance(struct, T.StructType) or not struct.fields:
        refuse("schema", ddl, "the DDL of at least one column")
    bad = _not_storable(struct)
    if bad is not None:
        refuse("schema", ddl, f"columns that a Delta table can have, not {bad}")
    return struct


def _not_storable(kind: T.DataType) -> str | None:
    """The part of a type that a Delta table cannot have; `None` if none is known."""
    # Spark 3 lacks one of these types. It is refused elsewhere, so this module must be importable with it.
    if isinstance(
        kind,
        (T.NullType, T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType),
    ):
        return kind.simpleString()
    names = [field.name for field in kind.fields] if isinstance(kind, T.StructType) else []
    for name in names:
        if [other.lower() for other in names].count(name.lower()) > 1:
            return f"two of the name {name!r}"
        if NOT_IN_NAMES.intersection(name):
            return f"one of the name {name!r}"
    return next((bad for part in _parts(kind) if (bad := _not_storable(part))), None)


def _parts(kind: T.DataType) -> list[T.DataType]:
    if isinstance(kind, T.ArrayType):
        return [kind.elementType]
    if isinstance(kind, T.MapType):
        return [kind.keyType, kind.valueType]
    return [field.dataType for field in kind.fields] if isinstance(kind, T.StructType) else []
