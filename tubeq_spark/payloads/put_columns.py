"""The columns of a put of rows (a DataFrame or an Arrow table), and their allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.json_payload import DEPTH_MAX
from tubeq_spark.model.validation import KEY_BYTES, PRI_MAX, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The allowed values of an option, for the message.
ALLOWED = {
    "pri": f"a whole number from 0 to {PRI_MAX}, or NULL",
    "ttl": "a finite number of seconds, >= 0, or NULL",
    "ttr": "a finite number of seconds, >= 0.000001, or NULL",
    "delay": "a finite number of seconds, >= 0, or NULL",
    "utube": "text in UTF-8 or NULL",
    "unique": f"text in UTF-8 of at most {KEY_BYTES:,} bytes, or NULL",
}
#: The least allowed values of options, and the greatest ones.
LEAST = {"pri": 0.0, "ttl": 0.0, "ttr": 1e-6, "delay": 0.0}
MOST = {"pri": float(PRI_MAX), "ttl": 1.7e308, "ttr": 1.7e308, "delay": 1.7e308}
JSON_ALLOWED = f"JSON text that is not NULL, at most {DEPTH_MAX} deep"
NOT_NULL_VALUES = "values: the schema says NOT NULL"
PYTHON_VALUES = "values that Python can hold: years 1 to 9999 (in UTC), texts in UTF-8, maps without a key twice"
#: Microseconds of the first and the last moment that Python knows, in UTC.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
#: The columns of a batch and of a put besides the payload. A schema must not have columns with these names.
_OWN = frozenset(
    {"task_id", "pri", "utube", "unique", "ttl", "ttr", "delay", "attempts", "created"}
)
#: The prefix of temporary columns that a put of a DataFrame adds.
_OWN_PREFIX = "tubeq_"
#: The most levels of nested types. Arrow passes on at most 64 levels, of which a map needs two, and Delta's library
#: reads 128 levels of a schema in JSON, of which a struct needs three.
_LEVELS = 30
#: Characters that no column of a Delta table may have in its name.
NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")


def refuse_schema(ddl: str, fields: Iterable[Mapping[str, Any]]) -> None:
    """Refuse payload columns that new tubes must not have, although a table could.

    Existing tubes with such columns can still be opened.

    Args:
        ddl: The DDL of the program.
        fields: The columns in Delta's schema.

    Raises:
        InvalidOptionError: A column has the name of a column of a batch or of a put, or has maps that cannot be
            dicts, or is nested too deep.
    """
    for field in fields:
        name = field["name"].lower()
        if name in _OWN or name.startswith(_OWN_PREFIX):
            refuse("schema", ddl, f"columns of other names than a batch has, not {field['name']!r}")
        if _levels(field["type"]) > _LEVELS:
            refuse("schema", ddl, f"columns at most {_LEVELS} types deep, not {field['name']!r}")
        if _has_keys_with_parts(field["type"]):
            refuse(
                "schema", ddl, f"columns whose maps have keys without parts, not {field['name']!r}"
            )


def _has_keys_with_parts(kind: Any) -> bool:
    """Whether a type has maps whose keys cannot be keys of a dict."""
    if not isinstance(kind, Mapping):
        return False
    if isinstance(kind.get("keyType"), Mapping):
        return True
    return any(map(_has_keys_with_parts, _parts(kind)))


def _levels(kind: Any) -> int:
    """The number of nested levels of a type; 0 for a simple type."""
    if not isinstance(kind, Mapping):
        return 0
    return 1 + max(map(_levels, [kind.get("keyType"), *_parts(kind)]))


def _parts(kind: Mapping[str, Any]) -> list[Any]:
    """The types within a type, without those of keys."""
    parts = [field["type"] for field in kind.get("fields", ())]
    return [*parts, *(kind.get(name) for name in ("elementType", "valueType"))]


def require_columns(what: str, columns: Sequence[str], payload: Iterable[str]) -> None:
    """Refuse rows that lack a column of the payload.

    Args:
        what: The name of the argument with the rows: `df` or `table`.
        columns: The names of its columns.
        payload: The names of the payload's columns.

    Raises:
        InvalidOptionError: A column is missing.
    """
    for name in payload:
        if name not in columns:
            msg = f"{what} lacks the column {name!r}; it has: {', '.join(columns)}"
            raise InvalidOptionError(msg)


def require_known(what: str, column: str, allowed: Iterable[str], type_name: str) -> None:
    """Refuse a column that a put to a tube of this type does not have.

    Raises:
        InvalidOptionError: The column is not allowed.
    """
    names = sorted(allowed)
    if column not in names:
        refuse(f"{what} column", column, f"one of the columns of a {type_name}: {', '.join(names)}")


def refuse_bad(what: str, column: str, count: int, allowed: str) -> None:
    """Refuse rows if some of them have a bad value in a column.

    Raises:
        InvalidOptionError: `count` is not 0.
    """
    if count:
        refuse(f"{what} column {column}", f"{count} bad rows", allowed)
