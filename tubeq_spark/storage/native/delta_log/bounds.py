"""The bounds of a column in the statistics of a file: no value is below or above them.

If a column has values but no bounds, Arrow's dataset takes the bounds for NULL and finds no row of
the file, whether or not the NULLs are counted. So a long text gets shortened bounds, as Spark and
the library write them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tubeq_spark.rules.microseconds import from_us
from tubeq_spark.rules.put_columns import FIRST_US, LAST_US
from tubeq_spark.storage.arrow.sources import ARROW_TYPES
from tubeq_spark.storage.expression import Type

__all__ = ["bounds", "is_ordered"]

_MOMENT = ARROW_TYPES[Type.TIMESTAMP]
#: Of a longer text only so many characters are told.
_TEXT = 64
#: The last character, which has no next one, and those that texts do not have.
_LAST, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether all readers compare values of a type in the same way."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or kind == _MOMENT)


def bounds(least: pa.Scalar, greatest: pa.Scalar) -> tuple[Any, Any]:
    """Lower and upper bound of a column as JSON, or None.

    Args:
        least: The least value.
        greatest: The greatest value.

    Returns:
        Both; `None`: it cannot be told.
    """
    if least.type == _MOMENT:
        # As numbers: for a moment Arrow asks pandas, wherever that is installed.
        return _milliseconds(least, 0), _milliseconds(greatest, 1)
    low, high = least.as_py(), greatest.as_py()
    if isinstance(low, str):
        # The beginning of a text is no greater than the text.
        return low[:_TEXT], _no_less(high)
    return low, high


def _no_less(text: str) -> str:
    """A text that is not less than another one, shortened if possible."""
    if len(text) <= _TEXT:
        return text
    for end in range(_TEXT, 0, -1):
        point = ord(text[end - 1])
        if point < _LAST:
            return text[: end - 1] + chr(_after(point))
    # Nothing shorter is greater.
    return text


def _after(point: int) -> int:
    """The next character; all readers compare texts by code points."""
    return _SURROGATES.stop if point + 1 in _SURROGATES else point + 1


def _milliseconds(moment: pa.Scalar, more: int) -> str | None:
    """A timestamp for statistics, which have milliseconds.

    Args:
        moment: The moment.
        more: So many milliseconds later.

    Returns:
        `None`: it is not in the years 1 to 9999, and neither Python nor Arrow reads such a bound.
    """
    at_us = moment.cast(pa.int64()).as_py()
    bound = min((at_us // 1_000 + more) * 1_000, LAST_US)
    at = from_us(bound) if FIRST_US <= at_us <= LAST_US else None
    told = "microseconds" if bound == LAST_US else "milliseconds"
    return None if at is None else at.isoformat(timespec=told).replace("+00:00", "Z")
