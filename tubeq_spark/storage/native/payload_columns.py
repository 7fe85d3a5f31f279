"""The columns of a typed payload without Spark, from the DDL of the tube."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import InvalidOptionError, StoreError
from tubeq_spark.rules.put_columns import NOT_IN_NAMES
from tubeq_spark.rules.validation import refuse
from tubeq_spark.storage.native.ddl import DdlError, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["payload_ddl", "payload_fields"]

#: Types that only Spark makes as it reads them: by features of the table, or by what it notes itself.
_OF_SPARK = frozenset({"char", "character", "timestamp_ntz", "varchar", "variant"})


def payload_ddl(ddl: str) -> str:
    """The DDL of a payload's columns, if a tube can be created with them.

    Raises:
        InvalidOptionError: It is no DDL, or of columns that no Delta table has.
        StoreError: It has types that only Spark knows.
    """
    try:
        columns, types = columns_of(ddl)
    except DdlError as error:
        msg = f"schema={ddl!r}: must be the DDL of the payload's columns, such as 'url STRING': {error}"
        raise InvalidOptionError(msg) from error
    for names in _names(columns):
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
