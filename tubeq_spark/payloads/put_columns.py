"""The columns of a put of rows (a DataFrame or an Arrow table), and their allowed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
