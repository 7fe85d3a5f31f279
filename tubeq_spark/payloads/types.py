"""The types of a typed payload's columns: their names in Delta and in SQL, and the values that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Microseconds of the first and the last moment that Python knows, in UTC.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
#: By the bits of a floating-point type, the number up to which it represents each integer exactly.
WHOLE_MAX = {32: 2**24, 64: 2**53}
#: Arrow's types by Delta's names.
ARROW = {
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
}
#: The same with names that Spark's schemas may also have.
_OF_SPARK = ARROW | {"char": pa.string(), "varchar": pa.string(), "void": pa.null()}
_DELTA = {kind: name for name, kind in ARROW.items()}
#: Names in SQL that are not Delta's.
_SQL = {"byte": "TINYINT", "integer": "INT", "long": "BIGINT", "short": "SMALLINT"}


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts."""
    known: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return known or bool(pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether a type is one of bytes."""
    known = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(of(kind) for of in (*known, pa.types.is_binary_view))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists."""
    known = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(of(kind) for of in known)


#: Families of types whose values are alike, with their allowed values.
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], str, str], ...] = (
    (pa.types.is_boolean, "boolean", "True or False"),
    (pa.types.is_integer, "integer", "a whole number in its range"),
    (
        pa.types.is_floating,
        "float",
        "a floating point number{finite}, or a whole number up to {whole}",
    ),
    (pa.types.is_decimal, "decimal", "a Decimal or a whole number, of which no digit is lost"),
    (is_text, "text", "a text in UTF-8"),
    (is_binary, "binary", "bytes"),
    (pa.types.is_date, "date", "a date without a time, in years 1 to 9999"),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
        "moment",
        "a moment with a time zone, in years 1 to 9999, without parts of a microsecond",
    ),
    (
        pa.types.is_timestamp,
        "local moment",
        "a moment without a time zone, in years 1 to 9999, without parts of a microsecond",
    ),
    (pa.types.is_map, "map", "a dict, no key NULL or twice"),
    (is_list, "list", "a list"),
    (pa.types.is_struct, "struct", "a dict or Row of the columns {names}"),
)


def family(kind: pa.DataType) -> str:
    """The family of a type; its own name if it has no family."""
    return next((name for is_of, name, _ in _FAMILIES if is_of(kind)), str(kind))


def described(part: pa.Field) -> str:
    """The type of a column and its allowed values, for messages."""
    kind = part.type
    values = next((values for is_of, _, values in _FAMILIES if is_of(kind)), "NULL")
    names = ", ".join(field.name for field in kind) if pa.types.is_struct(kind) else ""
    whole = WHOLE_MAX.get(kind.bit_width) if pa.types.is_floating(kind) else None
    finite = " that is not infinite" if pa.types.is_float32(kind) else ""
    return f"{sql_name(part)} ({values.format(names=names, whole=whole, finite=finite)})"


def sql_name(part: pa.Field) -> str:
    """The type of a column in DDL; the Arrow name if DDL has none."""
    kind = part.type
    if pa.types.is_struct(kind):
        name = f"STRUCT<{', '.join(f'{field.name}: {sql_name(field)}' for field in kind)}>"
    elif pa.types.is_map(kind):
        name = f"MAP<{sql_name(pa.field('', kind.key_type))}, {sql_name(kind.item_field)}>"
    elif pa.types.is_list(kind):
        name = f"ARRAY<{sql_name(kind.value_field)}>"
    elif pa.types.is_decimal(kind):
        name = f"DECIMAL({kind.precision},{kind.scale})"
    else:
        delta = _DELTA.get(kind, str(kind))
        name = _SQL.get(delta, delta.upper())
    return name if part.nullable else f"{name} NOT NULL"


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type of values in a table, which are nullable there, as are those within them."""
    return with_leaves(kind, lambda leaf: leaf)


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type in which `leaf` replaces each primitive type, and all values are nullable."""

    def field(part: pa.Field) -> pa.Field:
        return part.with_type(with_leaves(part.type, leaf)).with_nullable(True)  # noqa: FBT003

    if pa.types.is_struct(kind):
        return pa.struct([field(part) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, leaf), field(kind.item_field))
    return pa.list_(field(kind.value_field)) if pa.types.is_list(kind) else leaf(kind)


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
        # A type that Arrow lacks equals only itself.
        return _OF_SPARK.get(name) or pa.opaque(pa.null(), kind, "spark")
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
