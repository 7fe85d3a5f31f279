"""The columns of rows that are put (a DataFrame or an Arrow table), and their allowed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.json_payload import DEPTH_MAX
from tubeq_spark.model.validation import KEY_BYTES, PRI_MAX, refuse
from tubeq_spark.payloads.types import is_text, sql_name
from tubeq_spark.payloads.values import misfit

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The columns of a JSON payload.
JSON = pa.struct([pa.field("data", pa.string())])
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
#: Options that are texts, or numbers that become texts.
NAMES = ("utube", "unique")


def check_columns(
    what: str,
    columns: Iterable[pa.Field],
    payload: pa.StructType,
    options: frozenset[str],
    type_name: str,
) -> None:
    """Refuse rows that lack a column of the payload, or have columns that a put to this tube does not accept.

    Args:
        what: The name of the argument with the rows: `df` or `table`.
        columns: Its columns.
        payload: The payload's columns.
        options: The options that the tube's type has.
        type_name: The type, for the message.

    Raises:
        InvalidOptionError: A column is missing, unknown, there twice, or of a wrong type.
    """
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        refuse(f"{what} columns", names, "names without repetition")
    own = {part.name: part for part in payload}
    for name in own:
        if name not in names:
            msg = f"{what} lacks the column {name!r}; it has: {', '.join(names)}"
            raise InvalidOptionError(msg)
    for column in columns:
        name, kind = f"{what} column {column.name}", str(column.type)
        part = own.get(column.name)
        if part is not None:
            reason = misfit(column.type, part.type, column.name)
            if reason is not None:
                refuse(name, kind, f"{sql_name(part)}; {reason}")
        elif column.name not in options:
            has = ", ".join(sorted({*own, *options}))
            refuse(f"{what} column", column.name, f"one of the columns of a {type_name}: {has}")
        elif not _is_option(column.name, column.type):
            refuse(name, kind, "a column of such options")


def _is_option(name: str, kind: pa.DataType) -> bool:
    """Whether a column of a type may have values of an option."""
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return True
    if name in NAMES:
        return is_text(kind)
    return name != "pri" and bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))
