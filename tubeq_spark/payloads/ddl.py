"""Reads columns in DDL as Arrow types, and checks those of a typed payload."""

from __future__ import annotations

import re

import pyarrow as pa

from tubeq_spark.errors import InvalidOptionError, StoreError
from tubeq_spark.model.validation import refuse
from tubeq_spark.payloads.types import ARROW

_QUOTED = r"'(?:[^']|'')*'|`(?:[^`]|``)*`"
_TOKEN = re.compile(rf"\s+|{_QUOTED}|\w+|.", re.DOTALL)
_NAME = re.compile(r"\w*[^\W\d]\w*|`(?:[^`]|``)+`")
#: A comment or a quoted name, or a constraint.
_NOT_NULL = re.compile(rf"({_QUOTED})|\s*\bNOT\s+NULL\b", re.IGNORECASE)
#: Delta's names of types, by their other names in SQL.
_SYNONYMS = {
    "bigint": "long",
    "bool": "boolean",
    "int": "integer",
    "real": "float",
    "smallint": "short",
    "timestamp_ltz": "timestamp",
    "tinyint": "byte",
}
_DECIMALS = {"dec", "decimal", "numeric"}
_MOST_DIGITS = 38
#: A type that only Spark can create, because it needs a table feature.
_OF_SPARK = "timestamp_ntz"
#: Characters that no column of a Delta table may have in its name.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
#: The most levels of nested types. Arrow passes on at most 64 levels, of which a map needs two, and Delta's library
#: reads 128 levels of a schema in JSON, of which a struct needs three.
_LEVELS = 30
#: The columns of a batch and of a put besides the payload. A schema must not have columns with these names.
_OWN = frozenset(
    {"task_id", "pri", "utube", "unique", "ttl", "ttr", "delay", "attempts", "created"}
)
#: The prefix of temporary columns that a put of a DataFrame adds.
_OWN_PREFIX = "tubeq_"


class DdlError(ValueError):
    """A text is not DDL of columns that a table can have."""


def columns_of(text: str) -> pa.StructType:
    """The columns of a table, with their comments and NOT NULL constraints.

    Raises:
        DdlError: The text is no DDL of columns, or has unknown types, or columns that no Delta table can have.
    """
    # The payload is itself a column.
    return _Ddl(text, _LEVELS + 1).columns()


def check_payload(ddl: str, *, has_spark: bool) -> None:
    """Refuse payload columns with which no tube can be created.

    Raises:
        InvalidOptionError: It is no DDL, or has columns that no Delta table can have, or that a batch has.
        StoreError: It has types that only Spark can create, and there is no Spark session.
    """
    parsed = _Ddl(ddl, _LEVELS)
    try:
        columns = parsed.columns()
    except DdlError as error:
        msg = f"schema={ddl!r}: must be the DDL of the payload's columns, such as 'url STRING': {error}"
        raise InvalidOptionError(msg) from error
    for column in columns:
        name = column.name.lower()
        if name in _OWN or name.startswith(_OWN_PREFIX):
            refuse("schema", ddl, f"columns of other names than a batch has, not {column.name!r}")
    if _OF_SPARK in parsed.types and not has_spark:
        raise StoreError(
            f"schema={ddl!r}: {_OF_SPARK.upper()} needs a Spark session: create the tube with one; "
            f"it works without"
        )


def are_same(one: str | None, other: str | None) -> bool:
    """Whether two texts are DDL of the same columns, or both `None`."""
    if one == other or one is None or other is None:
        return one == other
    is_same: bool = columns_of(one).equals(columns_of(other), check_metadata=True)
    return is_same


def without_not_null(ddl: str) -> str:
    """Columns in DDL, without their NOT NULL constraints.

    A table with NOT NULL columns would refuse rows that are not tasks: tombstones, gates, the sequence of a
    capacity. So the table is created without, and each put checks its rows.
    """
    return _NOT_NULL.sub(lambda found: found[1] or "", ddl)


class _Ddl:
    """A parser of columns, from the first token to the last."""

    def __init__(self, text: str, levels: int) -> None:
        self._tokens: list[str] = [token for token in _TOKEN.findall(text) if not token.isspace()]
        self._place = 0
        self._levels = levels
        #: The lower-case names of the types that it has found.
        self.types: set[str] = set()

    def columns(self) -> pa.StructType:
        """All columns."""
        found = self._fields()
        if self._next():
            raise self._unexpected()
        return found

    def _fields(self) -> pa.StructType:
        found = [self._field()]
        while self._skips(","):
            found.append(self._field())
        names = [field.name.lower() for field in found]
        for field in found:
            if names.count(field.name.lower()) > 1:
                raise DdlError(f"two columns have the name {field.name!r}")
        return pa.struct(found)

    def _field(self) -> pa.Field:
        if _NAME.fullmatch(self._next()) is None:
            raise self._unexpected()
        name = self._taken()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if _NOT_IN_NAMES.intersection(name):
            raise DdlError(f"no column can have the name {name!r}")
        self._skips(":")
        kind, nullable, metadata = self._type(), True, None
        while True:
            if self._skips("NOT"):
                self._expected("NULL")
                nullable = False
            elif self._skips("COMMENT"):
                metadata = {"comment": self._comment()}
            else:
                return pa.field(name, kind, nullable, metadata)

    def _comment(self) -> str:
        if not self._next().startswith("'") or len(self._next()) == 1:
            raise self._unexpected()
        return self._taken()[1:-1].replace("''", "'")

    def _type(self) -> pa.DataType:
        name = self._next().lower()
        if name in {"struct", "array", "map"}:
            self._taken()
            return self._nested(name)
        simple = ARROW.get(_SYNONYMS.get(name, name))
        if simple is None and name not in _DECIMALS:
            raise self._unexpected()
        self._taken()
        self.types.add(name)
        return self._decimal() if simple is None else simple

    def _nested(self, name: str) -> pa.DataType:
        if not self._levels:
            raise DdlError(f"columns can be at most {_LEVELS} types deep")
        self._levels -= 1
        self._expected("<")
        if name == "struct":
            found = self._fields()
        elif name == "array":
            found = pa.list_(pa.field("element", self._type()))
        else:
            key = self._type()
            if pa.types.is_nested(key):
                raise DdlError("keys of a MAP cannot have parts")
            self._expected(",")
            found = pa.map_(key, pa.field("value", self._type()))
        self._expected(">")
        self._levels += 1
        return found

    def _decimal(self) -> pa.DataType:
        digits, scale = 10, 0
        if self._skips("("):
            digits = self._number()
            scale = self._number() if self._skips(",") else 0
            self._expected(")")
        if not 1 <= digits <= _MOST_DIGITS or scale > digits:
            raise DdlError(f"DECIMAL({digits},{scale}) has too many digits")
        return pa.decimal128(digits, scale)

    def _number(self) -> int:
        if not self._next().isdecimal():
            raise self._unexpected()
        return int(self._taken())

    def _skips(self, token: str) -> bool:
        """Skip a token, if it is the next one; whether it was."""
        found = self._next().upper() == token
        self._place += found
        return found

    def _expected(self, token: str) -> None:
        if not self._skips(token):
            raise self._unexpected()

    def _unexpected(self) -> DdlError:
        return DdlError(f"unexpected {self._next()!r}" if self._next() else "unexpected end")

    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _taken(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1]
