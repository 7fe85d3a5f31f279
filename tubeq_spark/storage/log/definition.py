"""The columns and properties of new and of changed tables, in the words of Delta's log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.types import delta_type
from tubeq_spark.storage.log.snapshot import Shape
from tubeq_spark.storage.tables.schema import CHANGE_FEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tubeq_spark.storage.tables.schema import NewTable


def shape_of(new: NewTable, table_id: str, now_ms: int) -> Shape:
    """The shape of a new table.

    Args:
        new: Its definition.
        table_id: An id that no other table has.
        now_ms: The moment, in milliseconds since 1970.
    """
    keeps_feed = new.properties.get(CHANGE_FEED) == "true"
    metadata = {
        "id": table_id,
        "name": None,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _schema_string(_fields(new.columns)),
        "partitionColumns": list(new.partitions),
        "createdTime": now_ms,
        "configuration": dict(new.properties),
    }
    return Shape.parse(
        metadata, {"minReaderVersion": 1, "minWriterVersion": 4 if keeps_feed else 2}
    )


def with_property(shape: Shape, name: str, value: str) -> Shape:
    """A shape with another value of a property."""
    return _changed(shape, configuration={**shape.properties, name: value})


def with_types(shape: Shape, schema: pa.Schema) -> Shape:
    """A shape with the types of a schema that has the same columns."""
    fields = shape.schema_json["fields"]
    for field in fields:
        kind = schema.field(field["name"]).type
        if kind != shape.schema.field(field["name"]).type:
            field["type"] = delta_type(kind)
    return _changed(shape, schemaString=_schema_string(fields))


def _changed(shape: Shape, **changes: Any) -> Shape:
    return Shape.parse({**shape.metadata, **changes}, shape.protocol)


def _schema_string(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def _fields(columns: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Columns with their types in DDL and comments."""
    fields, _ = columns_of(", ".join(f"{name} {kind}" for name, (kind, _) in columns.items()))
    for field, (_, comment) in zip(fields, columns.values(), strict=True):
        field["metadata"] = {"comment": comment}
    return fields
