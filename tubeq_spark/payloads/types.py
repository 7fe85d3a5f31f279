"""The types of a typed payload's columns, and their NOT NULL constraints.

A table with NOT NULL columns would refuse rows that are not tasks: tombstones, gates, the sequence
of a capacity. So the table is created without NOT NULL, and each put checks its rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: By the bits of a floating-point type, the number up to which it represents each integer exactly.
WHOLE_MAX = {32: 2**24, 64: 2**53}
#: Arrow's types by Delta's names.
_ARROW = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_DELTA = {kind: name for name, kind in _ARROW.items()}
_SQL = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
}
_VALUES = {
    pa.bool_(): "True or False",
    pa.string(): "a text in UTF-8",
    pa.binary(): "bytes",
    pa.date32(): "a date without a time",
}
#: A comment or a name in quotes, in DDL.
QUOTED = r"'(?:[^']|'')*'|`(?:[^`]|``)*`"
#: A comment or a quoted name, or a constraint.
_NOT_NULL = re.compile(rf"({QUOTED})|\s*\bNOT\s+NULL\b", re.IGNORECASE)


def arrow_struct(fields: Sequence[Mapping[str, Any]]) -> pa.StructType:
    """Columns as an Arrow type, from Delta's schema, with their comments."""
    return pa.struct(
        [
            pa.field(of["name"], _arrow(of["type"]), of["nullable"], metadata=_comment(of))
            for of in fields
        ]
    )


def _comment(field: Mapping[str, Any]) -> dict[str, str] | None:
    comment = (field.get("metadata") or {}).get("comment")
    return None if comment is None else {"comment": comment}


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        name, _, digits = kind.partition("(")
        if name == "decimal":
            return pa.decimal128(*map(int, digits.rstrip(")").split(",")))
        if name in ("char", "varchar"):
            return pa.string()
        # A type that Arrow lacks equals only itself.
        return _ARROW.get(name) or pa.opaque(pa.null(), kind, "spark")
    if kind["type"] == "struct":
        return arrow_struct(kind["fields"])
    if kind["type"] == "map":
        value = pa.field("value", _arrow(kind["valueType"]), kind["valueContainsNull"])
        return pa.map_(_arrow(kind["keyType"]), value)
    return pa.list_(pa.field("element", _arrow(kind["elementType"]), kind["containsNull"]))


def delta_type(kind: pa.DataType) -> Any:
    """An Arrow type in Delta's schema.

    Raises:
        KeyError: Delta has no such type.
    """
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_delta_field(field) for field in kind]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": delta_type(kind.key_type),
            "valueType": delta_type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pa.types.is_list(kind):
        element = kind.value_field
        return {
            "type": "array",
            "elementType": delta_type(element.type),
            "containsNull": element.nullable,
        }
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _DELTA[kind]


def _delta_field(field: pa.Field) -> dict[str, Any]:
    metadata = {name.decode(): value.decode() for name, value in (field.metadata or {}).items()}
    return {
        "name": field.name,
        "type": delta_type(field.type),
        "nullable": field.nullable,
        "metadata": metadata,
    }


def range_of(kind: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    half: int = 1 << (kind.bit_width - 1)
    return -half, half - 1


def sql_name(kind: pa.DataType) -> str:
    """The DDL name of a type; the Arrow name if DDL has none."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{part.name}: {sql_name(part.type)}' for part in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    return _SQL.get(kind) or str(kind)


def described(kind: pa.DataType) -> str:
    """The name of a type and its allowed values, for messages."""
    return f"{sql_name(kind)} ({_numbers(kind) or _others(kind)})"


def _numbers(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind):
        least, most = range_of(kind)
        return f"a whole number from {least} to {most}"
    if pa.types.is_floating(kind):
        within = ", finite ones within its range" if kind.bit_width == 32 else ""
        whole = f"a whole number up to {WHOLE_MAX[kind.bit_width]}"
        return f"a floating point number{within}, or {whole}"
    if pa.types.is_decimal(kind):
        before, behind = kind.precision - kind.scale, kind.scale
        digits = f"at most {before} digits before the point and {behind} behind it"
        return f"a Decimal or a whole number, {digits}"
    return None


def _others(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        zone = "without" if kind.tz is None else "with"
        return f"a moment {zone} a time zone, in years 1 to 9999, without parts of a microsecond"
    if pa.types.is_map(kind):
        return "a dict, no key NULL or twice"
    if pa.types.is_list(kind):
        return "a list"
    if pa.types.is_struct(kind):
        return f"a dict or Row of the columns {', '.join(part.name for part in kind)}"
    return _VALUES.get(kind, "a value of this type")


def without_not_null(ddl: str) -> str:
    """Columns in DDL, without their NOT NULL constraints."""
    return _NOT_NULL.sub(lambda found: found[1] or "", ddl)


def asks_for_values(ddl: str) -> bool:
    """Whether one of these columns is NOT NULL."""
    return without_not_null(ddl) != ddl


def with_required(payload: pa.StructType, fields: Sequence[Mapping[str, Any]]) -> pa.StructType:
    """A payload's type in which the columns that are NOT NULL in its DDL are not nullable.

    Args:
        payload: The type, with nullable columns only.
        fields: The columns of the DDL in Delta's schema.
    """
    return pa.struct(
        [
            part.with_type(_required(part.type, field["type"])).with_nullable(field["nullable"])
            for part, field in zip(payload, fields, strict=True)
        ]
    )


def _required(kind: pa.DataType, of: Any) -> pa.DataType:
    if pa.types.is_struct(kind):
        return with_required(kind, of["fields"])
    if pa.types.is_map(kind):
        return pa.map_(
            _required(kind.key_type, of["keyType"]), _required(kind.item_type, of["valueType"])
        )
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(_required(item.type, of["elementType"])))
    return kind
