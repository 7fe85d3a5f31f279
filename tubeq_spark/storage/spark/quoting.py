"""Quotes identifiers and values for SQL text; no other module does that.

Session settings do not change the meaning of the quoted values: text with other than plain
characters is written as UTF-8 bytes in hex (so `escapedStringLiterals` has no effect), and timestamps
with their time zone.
"""

from __future__ import annotations

import re

from tubeq_spark.clock import of_us

#: Printable ASCII without quotes, backslashes, and braces, which enclose the names of a statement's sources.
_PLAIN = re.compile(r"[ !#-&(-\[\]-_a-z|~]*")


def string(value: str | None) -> str:
    """A STRING literal."""
    if value is None:
        return "CAST(NULL AS STRING)"
    if _PLAIN.fullmatch(value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def bigint(value: int | None) -> str:
    """A BIGINT literal."""
    return "CAST(NULL AS BIGINT)" if value is None else f"{int(value)}L"


def limited(count: int) -> str:
    """A LIMIT clause; at most the greatest INT, as Spark requires."""
    return f"LIMIT {min(int(count), 2**31 - 1)}"


def moment(value_us: int) -> str:
    """A TIMESTAMP literal of microseconds since 1970."""
    try:
        at = of_us(value_us)
    except OverflowError:
        # The moment is outside of Python's years.
        return f"timestamp_micros({bigint(value_us)})"
    return f"TIMESTAMP'{at.year:04}-{at:%m-%d %H:%M:%S.%f}+00:00'"
