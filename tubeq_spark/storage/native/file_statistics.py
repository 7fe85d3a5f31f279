"""Which files may have rows of a condition, by the least and the greatest values of their columns."""

from __future__ import annotations

import operator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tubeq_spark.rules.microseconds import to_us
from tubeq_spark.storage.native.expressions import UnknownTextError, literal
from tubeq_spark.storage.native.tokens import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.tokens import Piece

    #: Tells of a file whether it may have rows.
    MayHold: TypeAlias = Callable[[DataFile], bool]

__all__ = ["files_of"]

_LEAST, _GREATEST = "minValues", "maxValues"
#: What a comparison asks of the least or the greatest value of a column.
_ASKS: dict[str, Sequence[tuple[str, Callable[[Any, Any], bool]]]] = {
    "<": [(_LEAST, operator.lt)],
    "<=": [(_LEAST, operator.le)],
    ">": [(_GREATEST, operator.gt)],
    ">=": [(_GREATEST, operator.ge)],
    "=": [(_LEAST, operator.le), (_GREATEST, operator.ge)],
}
#: Words by which what stands beside an AND is no condition of its own.
_OTHERWISE = frozenset({"BETWEEN", "CASE", "NOT"})


def files_of(condition: Sequence[Piece], schema: pa.Schema) -> MayHold:
    """What tells of a file whether it may have rows of a condition.

    Comparisons of columns with literals, and these by AND and OR, are looked up; of anything else any
    file may have some, and any file without statistics.

    Args:
        condition: The condition's pieces, without blanks.
        schema: The columns of the table.
    """
    words = [piece.upper() if isinstance(piece, str) else "" for piece in condition]
    if not _OTHERWISE.isdisjoint(words):
        return _any
    for word, combined in (("OR", any), ("AND", all)):
        if word in words:
            ends = [n for n, other in enumerate(words) if other == word]
            beside = zip([-1, *ends], [*ends, len(words)], strict=True)
            asked = [files_of(condition[a + 1 : b], schema) for a, b in beside]
            return _combined(asked, combined)
    if len(condition) == 1 and isinstance(condition[0], list):
        return files_of(condition[0], schema)
    return _compared(condition, schema)


def _any(_file: DataFile) -> bool:
    return True


def _combined(asked: Sequence[MayHold], combined: Callable[[Any], bool]) -> MayHold:
    return lambda file: combined(may_hold(file) for may_hold in asked)


def _compared(condition: Sequence[Piece], schema: pa.Schema) -> MayHold:
    """What tells it of a comparison; of another condition any file may have rows."""
    match condition:
        case [str(column), str(word), [*wanted]] if word.upper() == "IN":
            found = [_between(column, "=", part, schema) for part in parts(wanted)]
            return _combined(found, any) if found else _any
        case [str(column), str(sign), *value] if sign in _ASKS:
            return _between(column, sign, value, schema)
    return _any


def _between(column: str, sign: str, value: Sequence[Piece], schema: pa.Schema) -> MayHold:
    """What tells whether the least and the greatest value of a column allow a comparison."""
    place = schema.get_field_index(column)
    try:
        found = literal(value)
        is_moment = pa.types.is_timestamp(found.type)
        # As numbers: for a moment Arrow asks pandas, wherever that is installed.
        wanted = (found.cast(pa.int64()) if is_moment else found).as_py()
    except (UnknownTextError, pa.ArrowException, ValueError, OverflowError):
        return _any
    if place < 0 or wanted is None:
        return _any
    asked = _ASKS[sign]
    if is_moment != pa.types.is_timestamp(schema.field(place).type):
        return _any
    if is_moment:
        # Of a greatest moment what is beyond a millisecond is cut off.
        asked = [(which, compared) for which, compared in asked if which == _LEAST]

    read = _microseconds if is_moment else None

    def may_hold(file: DataFile) -> bool:
        # Short, as each file is asked.
        if column in file.partition:
            value = file.partition[column]
            return all(_may(value, compared, wanted) for _, compared in asked)
        if file.is_null(column):
            return False
        for which, compared in asked:
            bound = file.bound(which, column)
            if not _may(bound if read is None else read(bound), compared, wanted):
                return False
        return True

    return may_hold


def _microseconds(moment: Any) -> int | None:
    """A moment of statistics as a number; `None`: there is none."""
    try:
        return to_us(datetime.fromisoformat(moment))
    except (TypeError, ValueError):
        return None


def _may(bound: Any, compared: Callable[[Any, Any], bool], wanted: Any) -> bool:
    """Whether a bound, if there is one, allows a comparison."""
    try:
        return bound is None or compared(bound, wanted)
    except TypeError:
        # It is of another type than the literal.
        return True
