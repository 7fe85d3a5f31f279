"""Reads columns in DDL into Delta's schema JSON."""

from __future__ import annotations

import re
from typing import Any

from tubeq_spark.rules.required_columns import QUOTED

__all__ = ["DdlError", "columns_of"]

_TOKEN = re.compile(rf"\s+|{QUOTED}|\w+|.", re.DOTALL)
_NAME = re.compile(r"\w*[^\W\d]\w*|`(?:[^`]|``)+`")
#: Delta's names of types by those that SQL has for them.
_TYPES = {
    "bigint": "long",
    "binary": "binary",
    "bool": "boolean",
    "boolean": "boolean",
    "byte": "byte",
    "date": "date",
    "double": "double",
    "float": "float",
    "int": "integer",
    "integer": "integer",
    "long": "long",
    "real": "float",
    "short": "short",
    "smallint": "short",
    "string": "string",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "tinyint": "byte",
    "variant": "variant",
}
_DECIMALS = {"dec", "decimal", "numeric"}
#: Their lengths are kept by Spark alone.
_TEXTS = {"char", "character", "varchar"}
_MOST_DIGITS = 38


class DdlError(ValueError):
    """A text is not DDL of columns."""


def columns_of(text: str) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Columns in Delta's schema, and the lower-case names of their types.

    Raises:
        DdlError: It is no DDL of columns, or of types that are not known.
    """
    ddl = _Ddl(text)
    return ddl.columns(), frozenset(ddl.types)


class _Ddl:
    """Reads columns from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self._place = 0
        #: The types that it has come upon.
        self.types: set[str] = set()

    def columns(self) -> list[dict[str, Any]]:
        """All columns."""
        found = self._fields()
        if self._next():
            raise self._unexpected()
        return found

    def _fields(self) -> list[dict[str, Any]]:
        found = [self._field()]
        while self._next() == ",":
            self._taken()
            found.append(self._field())
        return found

    def _field(self) -> dict[str, Any]:
        if _NAME.fullmatch(self._next()) is None:
            raise self._unexpected()
        name = self._taken()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self._next() == ":":
            self._taken()
        kind, nullable, metadata = self._type(), True, {}
        while self._next().upper() in {"NOT", "COMMENT"}:
            if self._taken().upper() == "NOT":
                self._expected("NULL")
                nullable = False
            else:
                metadata = {"comment": self._comment()}
        return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}

    def _comment(self) -> str:
        if not self._next().startswith("'") or len(self._next()) == 1:
            raise self._unexpected()
        return self._taken()[1:-1].replace("''", "'")

    def _type(self) -> Any:
        name = self._next().lower()
        self.types.add(name)
        match name:
            case "struct":
                self._taken()
                self._expected("<")
                fields = self._fields()
                self._expected(">")
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
        if name in _DECIMALS:
            self._taken()
            return self._decimal()
        if name in _TEXTS:
            self._taken()
            self._numbers(1)
            return "string"
        if name not in _TYPES:
            raise self._unexpected()
        self._taken()
        return _TYPES[name]

    def _decimal(self) -> str:
        digits, scale, *_ = [*(self._numbers(2) if self._next() == "(" else [10]), 0]
        if not 1 <= digits <= _MOST_DIGITS or scale > digits:
            msg = f"DECIMAL({digits},{scale}) has too many digits"
            raise DdlError(msg)
        return f"decimal({digits},{scale})"

    def _inner(self, count: int) -> list[Any]:
        self._taken()
        found = []
        for place in range(count):
            self._expected("," if place else "<")
            found.append(self._type())
        self._expected(">")
        return found

    def _numbers(self, most: int) -> list[int]:
        """Numbers in parentheses, at least one."""
        found: list[int] = []
        while not found or (self._next() == "," and len(found) < most):
            self._expected("," if found else "(")
            if not self._next().isdecimal():
                raise self._unexpected()
            found.append(int(self._taken()))
        self._expected(")")
        return found

    def _expected(self, token: str) -> None:
        if self._next().upper() != token:
            raise self._unexpected()
        self._taken()

    def _unexpected(self) -> DdlError:
        return DdlError(f"unexpected {self._next()!r}" if self._next() else "unexpected end")

    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _taken(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1]
