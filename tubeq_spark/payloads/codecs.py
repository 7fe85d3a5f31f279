"""The stored form of a tube's payload: JSON text, or the columns of its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import json_payload
from tubeq_spark.model.validation import refuse
from tubeq_spark.payloads.values import MisfitError, converter, shown

if TYPE_CHECKING:
    import pyarrow as pa


class PayloadCodec(Protocol):
    """Converts payloads to their stored form."""

    #: Arrow type of a typed payload; `None` is JSON text.
    arrow_type: pa.DataType | None

    def encode(self, data: Any) -> Any:
        """Return the stored form of a payload; refuse a payload that would not come back equal."""
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
        self._convert = converter(arrow_type)
        names = ", ".join(part.name for part in arrow_type)
        self._allowed = f"a dict or Row of the columns {names}: {arrow_type}"

    def encode(self, data: Any) -> dict[str, Any]:
        """The payload as a dict of the schema's columns; missing ones are NULL."""
        try:
            stored: dict[str, Any] | None = self._convert(data)
        except MisfitError as error:
            msg = f"data={shown(data)}: {error}"
            raise InvalidOptionError(msg) from None
        if stored is None:
            refuse("data", data, self._allowed)
        return stored
