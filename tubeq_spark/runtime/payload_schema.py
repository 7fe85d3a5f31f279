"""The columns of a typed payload as Spark types, from the DDL of the tube."""

from __future__ import annotations

from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.rules.put_columns import NOT_IN_NAMES
from tubeq_spark.rules.validation import refuse

__all__ = ["payload_ddl", "payload_fields", "payload_struct"]


def payload_ddl(ddl: str) -> str:
    """The DDL of a payload's columns with Spark's types.

    Raises:
        InvalidOptionError: It is no DDL, or of columns that no Delta table has.
    """
    return payload_struct(ddl).toDDL()


def payload_fields(ddl: str) -> list[dict[str, Any]]:
    """A payload's columns in Delta's schema, from the DDL of a tube."""
    return cast("list[dict[str, Any]]", payload_struct(ddl).jsonValue()["fields"])


def payload_struct(ddl: str) -> T.StructType:
    """The type of a payload's columns.

    Raises:
        InvalidOptionError: It is no DDL, or of columns that no Delta table has.
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
    # Named here and not above: Spark 3, which is refused, must get as far as that and lacks one.
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
