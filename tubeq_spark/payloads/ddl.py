"""Parses columns in DDL into Delta's schema, and checks those of a typed payload."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import InvalidOptionError, StoreError
from tubeq_spark.model.validation import refuse
from tubeq_spark.payloads.put_columns import NOT_IN_NAMES
from tubeq_spark.payloads.types import QUOTED

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(rf"\s+|{QUOTED}|\w+|.", re.DOTALL)
_NAME = re.compile(r"\w*[^\W\d]\w*|`(?:[^`]|``)+`")
#: Delta's names of types, by their names in SQL.
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
#: Types with a length, which only Spark stores.
_TEXTS = {"char", "character", "varchar"}
_MOST_DIGITS = 38
#: Types that only Spark can create: they need table features, or metadata of Spark.
_OF_SPARK = frozenset({"char", "character", "timestamp_ntz", "varchar", "variant"})


class DdlError(ValueError):
    """A text is not DDL of columns."""


def columns_of(text: str) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Columns in Delta's schema, and the lower-case names of their types.

    Raises:
        DdlError: The text is no DDL of columns, or has unknown types.
    """
    ddl = _Ddl(text)
    return ddl.columns(), frozenset(ddl.types)


class _Ddl:
    """A parser of columns, from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self._place = 0
        #: The types that it has found.
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


def payload_ddl(ddl: str) -> str:
    """The DDL of a payload's columns, if a tube can be created with them.

    Raises:
        InvalidOptionError: It is no DDL, or has columns that no Delta table can have.
        StoreError: It has types that only Spark knows.
    """
    try:
        columns, types = columns_of(ddl)
        names_of = [*_names(columns)]
    except (DdlError, RecursionError) as error:
        msg = f"schema={ddl!r}: must be the DDL of the payload's columns, such as 'url STRING': {error}"
        raise InvalidOptionError(msg) from error
    for names in names_of:
        for name in names:
            if [other.lower() for other in names].count(name.lower()) > 1:
                _refuse(ddl, f"two of the name {name!r}")
            if NOT_IN_NAMES.intersection(name):
                _refuse(ddl, f"one of the name {name!r}")
    of_spark = sorted(types & _OF_SPARK)
    if of_spark:
        msg = (
            f"schema={ddl!r}: {of_spark[0].upper()} needs a Spark session: create the tube with one; "
            f"it works without"
        )
        raise StoreError(msg)
    return ddl


def payload_fields(ddl: str) -> list[dict[str, Any]]:
    """A payload's columns in Delta's schema, from the DDL of a tube."""
    return columns_of(ddl)[0]


def _refuse(ddl: str, what: str) -> None:
    refuse("schema", ddl, f"columns that a Delta table can have, not {what}")


def _names(columns: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The names of columns, and of their nested columns."""
    yield [column["name"] for column in columns]
    for column in columns:
        yield from _names_within(column["type"])


def _names_within(kind: Any) -> Iterator[list[str]]:
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            yield from _names(kind["fields"])
        for part in ("elementType", "keyType", "valueType"):
            yield from _names_within(kind.get(part))
