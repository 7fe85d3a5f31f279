"""Which files may have rows of a condition, by the least and the greatest values of their columns."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import repeated, scalar
from tubeq_spark.storage.native.expressions import UnknownTextError, literal
from tubeq_spark.storage.native.tokens import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.native.tokens import Piece

    #: For each file whether it may have such a row.
    Mask: TypeAlias = pa.Array | pa.ChunkedArray

__all__ = ["may_hold"]

#: What a comparison asks of the least or the greatest value of a column.
_ASKS: dict[str, Sequence[tuple[str, Callable[..., Mask]]]] = {
    "<": [("min", pc.less)],
    "<=": [("min", pc.less_equal)],
    ">": [("max", pc.greater)],
    ">=": [("max", pc.greater_equal)],
    "=": [("min", pc.less_equal), ("max", pc.greater_equal)],
}
_TRUE = scalar(True, pa.bool_())  # noqa: FBT003  (the value is the point)
#: Words by which what stands beside an AND is no condition of its own.
_OTHERWISE = frozenset({"BETWEEN", "CASE", "NOT"})


def may_hold(condition: Sequence[Piece], files: pa.Table) -> Mask:
    """For each file whether it may have rows of a condition.

    Comparisons of columns with literals, and these by AND and OR, are looked up; of anything else any
    file may have some, and any file without statistics.

    Args:
        condition: The condition's pieces, without blanks.
        files: The files, as the library lists them, flat.
    """
    words = [piece.upper() if isinstance(piece, str) else "" for piece in condition]
    if not _OTHERWISE.isdisjoint(words):
        return _any(files)
    for word, combined in (("OR", pc.or_), ("AND", pc.and_)):
        if word in words:
            ends = [n for n, other in enumerate(words) if other == word]
            beside = zip([-1, *ends], [*ends, len(words)], strict=True)
            return reduce(combined, (may_hold(condition[a + 1 : b], files) for a, b in beside))
    if len(condition) == 1 and isinstance(condition[0], list):
        return may_hold(condition[0], files)
    return _compared(condition, files)


def _any(files: pa.Table) -> Mask:
    return repeated(True, pa.bool_(), files.num_rows)  # noqa: FBT003  (the value is the point)


def _compared(condition: Sequence[Piece], files: pa.Table) -> Mask:
    """The files that may have rows of a comparison; of another condition all of them."""
    match condition:
        case [str(column), str(word), [*wanted]] if word.upper() == "IN":
            found = [_between(column, "=", part, files) for part in parts(wanted)]
            return reduce(pc.or_, found) if found else _any(files)
        case [str(column), str(sign), *value] if sign in _ASKS:
            return _between(column, sign, value, files)
    return _any(files)


def _between(column: str, sign: str, value: Sequence[Piece], files: pa.Table) -> Mask:
    """The files whose least and greatest values allow a comparison with a literal."""
    found = _any(files)
    try:
        wanted = literal(value)
        for which, compared in _ASKS[sign]:
            bound = files.column(f"{which}.{column}")
            if which == "max" and pa.types.is_timestamp(bound.type):
                # What is beyond a millisecond is cut off.
                return _any(files)
            holds = compared(bound, wanted)
            found = pc.and_(found, pc.fill_null(holds, _TRUE))
    except (UnknownTextError, KeyError, pa.ArrowException):
        return _any(files)
    return found
