"""Evaluates expressions row by row over Python values, with the NULLs of SQL.

For a few rows this costs a tenth of Arrow's kernels, which have a fixed price for each node of an expression.
`evaluate` computes the same for many rows. What this module does not know, it leaves to `evaluate`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tubeq_spark.storage import expression as nodes
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array
from tubeq_spark.storage.expression import Call, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.expression import Expression

    #: Returns the value of a column in a row, by its alias ("" for none) and its name. Moments are microseconds.
    Read: TypeAlias = Callable[[str, str], Any]
    #: The value of a call from its parts.
    Computed: TypeAlias = Callable[[Sequence[Expression], Read], Any]

#: At most this many rows are evaluated row by row.
_FEW = 8
_INT64 = range(-(1 << 63), 1 << 63)
#: The types of columns whose values Python compares as Arrow does.
_COLUMNS = {
    *map(ARROW_TYPES.get, (Type.BIGINT, Type.INT, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP))
}


class NotByRowError(Exception):
    """Arrow must compute it."""


def are_few(*counts: int) -> bool:
    """Whether such numbers of rows are evaluated row by row."""
    return max(counts) <= _FEW


class FewRows:
    """The columns of a few rows as Python values. Each is converted when it is read first."""

    def __init__(self, rows: pa.Table) -> None:
        """Read rows of a table."""
        self._rows = rows
        self._columns: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._rows.num_rows)

    def column(self, name: str) -> list[Any]:
        """The values of a column.

        Raises:
            NotByRowError: There is no such column, or it has another type.
        """
        found = self._columns.get(name)
        if found is None:
            place = self._rows.schema.get_field_index(name)
            if place < 0 or self._rows.schema.field(place).type not in _COLUMNS:
                raise NotByRowError(name)
            column = self._rows.column(place)
            column = (
                column.cast(pa.int64()) if column.type == ARROW_TYPES[Type.TIMESTAMP] else column
            )
            found = self._columns[name] = column.to_pylist()
        return found

    def row(self, place: int, source: FewRows | None = None, of_source: int = 0) -> Read:
        """Reads one of the rows; `source` has the columns of the alias `s`, in the row `of_source`."""

        def read(alias: str, name: str) -> Any:
            if alias == "s" and source is not None:
                return source.column(name)[of_source]
            return self.column(name)[place]

        return read

    def where(self, condition: Expression) -> list[int]:
        """The indexes of the rows for which a condition is true, and not NULL. Raises as `value_of`."""
        return [n for n in range(len(self)) if value_of(condition, self.row(n)) is True]


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values that were computed by row as an array of their column's type.

    Raises:
        NotByRowError: The column has another type than these, or a value is too large for it.
    """
    if kind not in _COLUMNS:
        raise NotByRowError(str(kind))
    try:
        return array(values, kind)
    except OverflowError as error:
        raise NotByRowError(str(error)) from error


def value_of(expression: Expression, read: Read) -> Any:
    """The value of an expression in a row; moments are microseconds.

    Raises:
        NotByRowError: Arrow must compute it.
    """
    if isinstance(expression, Call):
        called = _CALLS.get(expression.function)
        if called is not None:
            return called(expression.parts, read)
    computed = _COMPUTED.get(type(expression))
    if computed is None:
        raise NotByRowError(type(expression).__name__)
    return computed(expression, read)


def _column(of: nodes.Column, read: Read) -> Any:
    return read(of.of, of.name)


def _literal(of: nodes.Literal, _read: Read) -> Any:
    return of.value


def _decided(*, by: bool) -> Computed:
    """`by` if one of some conditions has this value, else NULL if one is NULL, else the opposite."""

    def computed(parts: Sequence[Expression], read: Read) -> bool | None:
        found: bool | None = not by
        for part in parts:
            holds: bool | None = value_of(part, read)
            if holds is by:
                return by
            found = None if holds is None else found
        return found

    return computed


def _of_one(function: Callable[[Any], Any]) -> Computed:
    """A function of one value, which knows NULL."""
    return lambda parts, read: function(value_of(parts[0], read))


def _of_two(function: Callable[[Any, Any], Any]) -> Computed:
    """A function of two values. It is NULL if one of them is."""

    def computed(parts: Sequence[Expression], read: Read) -> Any:
        left, right = parts
        first, second = value_of(left, read), value_of(right, read)
        return None if first is None or second is None else function(first, second)

    return computed


def _number(function: Callable[[int, int], int]) -> Computed:
    """The same for a number, if it is no larger than Arrow's."""

    def checked(left: int, right: int) -> int:
        value = function(left, right)
        if value not in _INT64:
            raise NotByRowError("a number that is too large")
        return value

    return _of_two(checked)


def _in(of: nodes.In, read: Read) -> bool | None:
    left = value_of(of.part, read)
    if left is None:
        return None
    values = [value.value for value in of.values]
    return left in values or (None if None in values else False)


def _case(of: nodes.Case, read: Read) -> Any:
    for when, value in of.branches:
        if value_of(when, read) is True:
            return value_of(value, read)
    return None if of.other is None else value_of(of.other, read)


def _quotient(value: int, by: int) -> int:
    # Python rounds down, SQL towards 0.
    whole = abs(value) // abs(by)
    return whole if (value < 0) == (by < 0) else -whole


def _same(parts: Sequence[Expression], read: Read) -> bool:
    left, right = parts
    return bool(value_of(left, read) == value_of(right, read))


def _greatest(parts: Sequence[Expression], read: Read) -> Any:
    values = [value_of(part, read) for part in parts]
    return max((value for value in values if value is not None), default=None)


_COMPUTED: dict[type, Callable[[Any, Read], Any]] = {
    nodes.Column: _column,
    nodes.Literal: _literal,
    nodes.In: _in,
    nodes.Case: _case,
}
_CALLS: dict[str, Computed] = {
    "AND": _decided(by=False),
    "OR": _decided(by=True),
    "NOT": _of_one(lambda part: None if part is None else not part),
    "=": _of_two(operator.eq),
    "<>": _of_two(operator.ne),
    "<": _of_two(operator.lt),
    "<=": _of_two(operator.le),
    ">": _of_two(operator.gt),
    ">=": _of_two(operator.ge),
    "<=>": _same,
    "IS NULL": _of_one(lambda part: part is None),
    "IS NOT NULL": _of_one(lambda part: part is not None),
    "+": _number(operator.add),
    "-": _number(operator.sub),
    "*": _number(operator.mul),
    "DIV": _number(_quotient),
    "greatest": _greatest,
    "micros": _of_one(lambda moment: moment),
    "moment": _of_one(lambda number: number),
}
