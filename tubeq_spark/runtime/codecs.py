"""How a tube's payload is stored: JSON text, or the columns of its schema."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import types as T

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.rules import json_payload
from tubeq_spark.rules.validation import refuse

__all__ = ["JsonCodec", "PayloadCodec", "TypedCodec", "payload_struct"]

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")


class PayloadCodec(Protocol):
    """Turns what a program puts into what is stored."""

    #: Arrow type of a typed payload; `None` is JSON text.
    arrow_type: pa.DataType | None

    def encode(self, data: Any) -> Any:
        """The stored form of a payload; refuses what cannot be stored as it is."""
        ...


class JsonCodec:
    """Any JSON value, as text."""

    arrow_type: pa.DataType | None = None

    def encode(self, data: Any) -> str:
        """The JSON text of a payload."""
        return json_payload.encode(data)


class TypedCodec:
    """A dict or Row of the tube's schema."""

    def __init__(self, arrow_type: pa.StructType) -> None:
        """Store payloads as this struct."""
        self.arrow_type: pa.DataType | None = arrow_type
        self._type = arrow_type
        self._names = [arrow_type.field(i).name for i in range(arrow_type.num_fields)]

    def encode(self, data: Any) -> dict[str, Any]:
        """The payload as a dict of the schema's columns; missing ones are NULL."""
        allowed = f"a dict or Row of the columns {', '.join(self._names)}: {self._type}"
        if isinstance(data, Row):
            data = data.asDict(recursive=True)
        if not isinstance(data, dict) or not set(data) <= set(self._names):
            refuse("data", data, allowed)
        try:
            # What Arrow reads back is what Spark will store.
            stored: dict[str, Any] = pa.scalar(data, type=self._type).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            refuse("data", data, allowed)
        if not _is_kept(data, stored):
            refuse("data", data, allowed)
        return stored


def _is_kept(given: Any, stored: Any) -> bool:
    """Whether nothing of a value was dropped, cut off or taken for something else."""
    if isinstance(given, dict) and isinstance(stored, list):
        stored = dict(stored)  # how Arrow gives a map back
    if isinstance(given, dict):
        return isinstance(stored, dict) and all(
            key in stored and _is_kept(value, stored[key]) for key, value in given.items()
        )
    if isinstance(given, list | tuple):
        return (
            isinstance(stored, list)
            and len(given) == len(stored)
            and all(map(_is_kept, given, stored))
        )
    kinds = (bool, str, bytes | bytearray)
    if any(isinstance(given, kind) != isinstance(stored, kind) for kind in kinds):
        return False
    return not isinstance(stored, int) or given == stored


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
    """What of a type a Delta table cannot have; `None` when it can, as far as we know."""
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
        if _NOT_IN_NAMES.intersection(name):
            return f"one of the name {name!r}"
    return next((bad for part in _parts(kind) if (bad := _not_storable(part))), None)


def _parts(kind: T.DataType) -> list[T.DataType]:
    if isinstance(kind, T.ArrayType):
        return [kind.elementType]
    if isinstance(kind, T.MapType):
        return [kind.keyType, kind.valueType]
    return [field.dataType for field in kind.fields] if isinstance(kind, T.StructType) else []
