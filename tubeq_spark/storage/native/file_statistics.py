"""Finds the files that may have rows for a condition, by the bounds of their columns."""

from __future__ import annotations

import operator
from bisect import bisect_left
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tubeq_spark.clock import to_us
from tubeq_spark.storage.expression import Call, Column, In, Literal, Type
from tubeq_spark.storage.rows import ToldFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.arrow.fold import Bound
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.log.actions import DataFile

    #: Whether a file may have rows for a condition.
    MayHold: TypeAlias = Callable[[DataFile], bool]

_LEAST, _GREATEST = "minValues", "maxValues"
#: The places of the least and the greatest value in the bounds of a column.
_LOW, _HIGH = 0, 1
#: The columns of a tube that `told_file` looks at: those with one value, and moments.
_OWNER, _VALUES = "owner", ("segment", "tube", "state", "owner", "pri")
_MOMENTS = ("next_event", "expires_at", "created", "since")
#: A bound that is shorter than this is a whole text, in files of all writers.
_WHOLE_TEXT = 32
#: The checks of the least and the greatest value of a column that each comparison needs.
_ASKS: dict[str, Sequence[tuple[int, Callable[[Any, Any], bool]]]] = {
    "<": [(_LOW, operator.lt)],
    "<=": [(_LOW, operator.le)],
    ">": [(_HIGH, operator.gt)],
    ">=": [(_HIGH, operator.ge)],
    "=": [(_LOW, operator.le), (_HIGH, operator.ge)],
}


def files_of(condition: Expression, schema: pa.Schema) -> MayHold:
    """A check whether a file may have rows for a condition.

    It looks up comparisons of columns with literals and NULL, and their combinations by AND and OR. For any other
    condition, and for a file without statistics, it answers yes.

    Args:
        condition: The condition.
        schema: The columns of the table.
    """
    match condition:
        case Call("AND", parts):
            return _combined([files_of(part, schema) for part in parts], all)
        case Call("OR", parts):
            return _combined([files_of(part, schema) for part in parts], any)
        case In(Column(name), values):
            return _one_of(name, values, schema)
        case Call(sign, (Column(name), Literal() as value)) if sign in _ASKS:
            return _between(name, sign, value, schema)
        case Call("IS NULL", (Column(name),)):
            return lambda file: not file.has_no_null(name)
        case _:
            return _any


def _any(_file: DataFile) -> bool:
    return True


def _combined(asked: Sequence[MayHold], combined: Callable[[Any], bool]) -> MayHold:
    asked = [may_hold for may_hold in asked if may_hold is not _any or combined is any]
    return lambda file: combined(may_hold(file) for may_hold in asked)


def _one_of(column: str, values: Sequence[Literal], schema: pa.Schema) -> MayHold:
    """A check whether the bounds of a column allow one of some values."""
    kinds = {(value.type is Type.TIMESTAMP, type(value.value)) for value in values}
    is_plain = kinds in ({(False, int)}, {(False, str)})
    if not is_plain or _between(column, "=", values[0], schema) is _any:
        return _any
    # A statement may name thousands of segments, and look at as many files.
    found: list[Any] = [value.value for value in values]
    wanted, kind = sorted(found), type(found[0])

    def may_hold(file: DataFile) -> bool:
        bounds = _bounds(file, column)
        if bounds is None:
            return False
        low, high = bounds
        if not isinstance(low, kind) or not isinstance(high, kind):
            return True
        place = bisect_left(wanted, low)
        return place < len(wanted) and wanted[place] <= high

    return may_hold


def _between(column: str, sign: str, wanted: Literal, schema: pa.Schema) -> MayHold:
    """A check whether the bounds of a column allow a comparison."""
    place = schema.get_field_index(column)
    value = wanted.value
    if place < 0 or value is None:
        return _any
    asked = _ASKS[sign]
    is_moment = wanted.type is Type.TIMESTAMP
    if is_moment != pa.types.is_timestamp(schema.field(place).type):
        return _any
    if is_moment:
        # Some writers cut the greatest moment off after its milliseconds, so only the least one is used.
        asked = [(place, compared) for place, compared in asked if place == _LOW]

    read = _microseconds if is_moment else None

    def may_hold(file: DataFile) -> bool:
        # This code is short, because it runs for each file.
        bounds = _bounds(file, column)
        if bounds is None:
            return False
        for place, compared in asked:
            bound = bounds[place]
            if not _may(bound if read is None else read(bound), compared, value):
                return False
        return True

    return may_hold


def _bounds(file: DataFile, column: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column, each `None` if unknown; `None` if all its values are NULL."""
    if column in file.partition:
        value = file.partition[column]
        return value, value
    if file.is_null(column):
        return None
    return file.bound(_LEAST, column), file.bound(_GREATEST, column)


def _microseconds(moment: Any) -> int | None:
    """A timestamp of statistics as a number; `None` if there is none."""
    try:
        return to_us(datetime.fromisoformat(moment))
    except (TypeError, ValueError):
        return None


def _may(bound: Any, compared: Callable[[Any, Any], bool], wanted: Any) -> bool:
    """Whether a bound, if there is one, allows a comparison."""
    try:
        return bound is None or compared(bound, wanted)
    except TypeError:
        # The bound has another type than the literal.
        return True


def constants(file: DataFile, schema: pa.Schema) -> dict[str, int | str | None]:
    """The columns that have one value in all rows of a file, with this value, as far as that is known."""
    found: dict[str, int | str | None] = {}
    for column in schema:
        name = column.name
        if name in file.partition:
            found[name] = file.partition[name]
        elif file.is_null(name):
            found[name] = None
        elif pa.types.is_integer(column.type) or pa.types.is_string(column.type):
            value = file.bound(_LEAST, name)
            if value is None or not file.has_no_null(name) or value != file.bound(_GREATEST, name):
                continue
            if isinstance(value, int) or len(value) < _WHOLE_TEXT:
                found[name] = value
    return found


def told_file(file: DataFile, schema: pa.Schema, bound: Bound) -> ToldFile:
    """The facts that the log tells about the rows of a tube's file, whose lower bound is known."""
    least_us: dict[str, int | None] = {}
    for name in _MOMENTS:
        if file.is_null(name):
            least_us[name] = None
        elif (moment := _microseconds(file.bound(_LEAST, name))) is not None:
            least_us[name] = moment
    fields = [schema.field(name) for name in _VALUES if name in schema.names]
    values = constants(file, pa.schema(fields))
    owner = file.bound(_LEAST, _OWNER)
    if owner == file.bound(_GREATEST, _OWNER) and file.has_no_null(_OWNER) and "/" in (owner or ""):
        # A longer bound may be cut off, but this one is whole: it ends with the epoch of the session.
        values[_OWNER] = owner
    return ToldFile(file.rows, values, least_us, bound)


def least(file: DataFile, columns: Sequence[str]) -> Bound:
    """A lower bound of some columns over all rows of a file; the columns are compared one after the other.

    Returns:
        A whole number for each column; `None` if one is unknown.
    """
    found = []
    for name in columns:
        value = file.partition.get(name)
        if value is None and file.has_no_null(name):
            value = file.bound(_LEAST, name)
        if not isinstance(value, int):
            return None
        found.append(value)
    return tuple(found)
