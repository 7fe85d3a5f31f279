"""NOT NULL columns of a payload: each put checks them, the table does not.

A table with NOT NULL columns would refuse rows that are not tasks: tombstones, fences, the sequence
of a capacity. So the table is created without NOT NULL, and each put checks its rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["QUOTED", "asks_for_values", "with_required", "without_not_null"]

#: A comment or a name in quotes, in DDL.
QUOTED = r"'(?:[^']|'')*'|`(?:[^`]|``)*`"
#: Either of them, or what is looked for.
_NOT_NULL = re.compile(rf"({QUOTED})|\s*\bNOT\s+NULL\b", re.IGNORECASE)


def without_not_null(ddl: str) -> str:
    """Columns in DDL, all of which may be NULL."""
    return _NOT_NULL.sub(lambda found: found[1] or "", ddl)


def asks_for_values(ddl: str) -> bool:
    """Whether any of these columns is NOT NULL."""
    return without_not_null(ddl) != ddl


def with_required(payload: pa.StructType, fields: Sequence[Mapping[str, Any]]) -> pa.StructType:
    """A payload's type with the columns not nullable that are NOT NULL in its DDL.

    Args:
        payload: The type, all nullable.
        fields: The DDL's columns as Delta keeps them.
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
