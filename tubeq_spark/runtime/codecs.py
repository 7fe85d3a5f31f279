"""How a tube's payload is stored: JSON text, or the columns of its schema."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from tubeq_spark.rules import json_payload
from tubeq_spark.rules.validation import refuse

__all__ = ["JsonCodec", "PayloadCodec", "TypedCodec"]


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
        if hasattr(data, "asDict"):  # a Row of Spark's
            data = data.asDict(recursive=True)
        if not isinstance(data, dict) or not set(data) <= set(self._names):
            refuse("data", data, allowed)
        try:
            # What Arrow reads back is what Spark will store.
            stored: dict[str, Any] = pa.scalar(data, type=self._type).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            refuse("data", data, allowed)
        if not _is_kept(data, stored) or _lacks(self._type, stored):
            refuse("data", data, allowed)
        return stored


def _lacks(kind: pa.DataType, stored: Any) -> bool:
    """Whether a value has no part where its type must have one."""
    if stored is None:
        return False
    if pa.types.is_struct(kind):
        return any(
            not part.nullable if stored[part.name] is None else _lacks(part.type, stored[part.name])
            for part in kind
        )
    if pa.types.is_map(kind):
        return any(_lacks(kind.item_type, value) for _, value in stored)
    return pa.types.is_list(kind) and any(_lacks(kind.value_type, value) for value in stored)


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
