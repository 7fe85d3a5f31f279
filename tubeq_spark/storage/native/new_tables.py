"""Creates tables as Spark's CREATE TABLE makes them: same columns, properties and protocol."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.sql.schema import NewTable

__all__ = ["create", "schema_of_ddl"]

_TOKEN = re.compile(r"\s+|X'[0-9a-fA-F]*'|'(?:[^']|'')*'|`(?:[^`]|``)*`|\w+|.", re.DOTALL)
#: Delta's names of types that SQL calls otherwise.
_TYPES = {
    "bigint": "long",
    "bool": "boolean",
    "dec": "decimal",
    "int": "integer",
    "numeric": "decimal",
    "real": "float",
    "smallint": "short",
    "timestamp_ltz": "timestamp",
    "tinyint": "byte",
}
_DECIMAL = "(10,0)"


def create(path: str, new: NewTable, options: Mapping[str, str]) -> None:
    """Write a table's first commit, unless somebody else does at the same moment."""
    try:
        DeltaTable.create(
            path,
            schema=schema_of_ddl(new.columns),
            mode="error",
            partition_by=list(new.partitions),
            configuration=dict(new.properties),
            storage_options=dict(options) or None,
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        if not DeltaTable.is_deltatable(path, dict(options) or None):
            raise


def schema_of_ddl(columns: str) -> Schema:
    """The schema of columns in DDL."""
    fields = _Ddl(columns).fields(":")
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


class _Ddl:
    """Reads columns from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self._place = 0

    def fields(self, between: str, end: str = "") -> list[dict[str, Any]]:
        """Columns up to an end; in a struct something stands between a name and its type."""
        found = []
        while self._next() != end:
            found.append(self._field(between))
            if self._next() == ",":
                self._taken()
        return found

    def _field(self, between: str) -> dict[str, Any]:
        name = self._taken()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self._next() == between:
            self._taken()
        kind, nullable, metadata = self._type(), True, {}
        while self._next().upper() in {"NOT", "COMMENT"}:
            if self._taken().upper() == "NOT":
                self._taken()
                nullable = False
            else:
                metadata = {"comment": self._comment()}
        return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}

    def _comment(self) -> str:
        return self._taken()[1:-1].replace("''", "'")

    def _type(self) -> Any:
        name = self._taken().lower()
        match name:
            case "struct":
                self._taken()
                fields = self.fields(":", ">")
                self._taken()
                return {"type": "struct", "fields": fields}
            case "array":
                (element,) = self._inner(1)
                return {"type": "array", "elementType": element, "containsNull": True}
            case "map":
                key, value = self._inner(2)
                return {
                    "type": "map",
                    "keyType": key,
                    "valueType": value,
                    "valueContainsNull": True,
                }
            case _:
                return self._simple(name)

    def _simple(self, name: str) -> str:
        kind = _TYPES.get(name, name)
        if self._next() == "(":
            digits = self._upto(")")
            # The lengths of CHAR and VARCHAR are kept by Spark alone.
            return f"{kind}({digits})" if kind == "decimal" else "string"
        return kind + _DECIMAL if kind == "decimal" else kind

    def _inner(self, count: int) -> list[Any]:
        self._taken()
        found = []
        for _ in range(count):
            found.append(self._type())
            self._taken()
        return found

    def _upto(self, end: str) -> str:
        self._taken()
        inside = ""
        while self._next() != end:
            inside += self._taken()
        self._taken()
        return inside

    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _taken(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1]
