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
from tubeq_spark.storage.expression import Type
from tubeq_spark.storage.query import Among

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause

    #: Returns the value of a column in a row, by its alias ("" for none) and its name. Moments are microseconds.
    Read: TypeAlias = Callable[[str, str], Any]

#: At most this many rows are evaluated row by row.
_FEW = 8
_INT64 = range(-(1 << 63), 1 << 63)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
#: The types of literals and columns whose values Python compares as Arrow does.
_LITERALS = {Type.BIGINT, Type.INT, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP}
_COLUMNS = {ARROW_TYPES[kind] for kind in _LITERALS}


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


def first_clause(clauses: Sequence[Clause], read: Read) -> Clause | None:
    """The first clause that applies to a row; `None` if none does. Raises as `value_of`."""
    for clause in clauses:
        if clause.when is None or value_of(clause.when, read) is True:
            return clause
    return None


def value_of(expression: Expression, read: Read) -> Any:
    """The value of an expression in a row; moments are microseconds.

    Raises:
        NotByRowError: Arrow must compute it.
    """
    computed = _COMPUTED.get(type(expression))
    if computed is None:
        raise NotByRowError(type(expression).__name__)
    return computed(expression, read)


def _column(of: nodes.Column, read: Read) -> Any:
    return read(of.of, of.name)


def _literal(of: nodes.Literal, _read: Read) -> Any:
    if of.type not in _LITERALS:
        raise NotByRowError(of.type)
    return of.value


def _compared(of: nodes.Compared, read: Read) -> bool | None:
    left, right = value_of(of.left, read), value_of(of.right, read)
    if of.sign == "<=>":
        return bool(left == right)
    if left is None or right is None:
        return None
    return _COMPARISONS[of.sign](left, right)


def _and(of: nodes.And, read: Read) -> bool | None:
    return _decided(of.parts, read, by=False)


def _or(of: nodes.Or, read: Read) -> bool | None:
    return _decided(of.parts, read, by=True)


def _decided(parts: Sequence[Expression], read: Read, *, by: bool) -> bool | None:
    """`by` if one of some conditions has this value, else NULL if one is NULL, else the opposite."""
    found: bool | None = not by
    for part in parts:
        holds: bool | None = value_of(part, read)
        if holds is by:
            return by
        found = None if holds is None else found
    return found


def _not(of: nodes.Not, read: Read) -> bool | None:
    holds = value_of(of.part, read)
    return None if holds is None else not holds


def _is_null(of: nodes.IsNull, read: Read) -> bool:
    return (value_of(of.part, read) is None) is not of.negated


def _in(of: nodes.In, read: Read) -> bool | None:
    left = value_of(of.part, read)
    if left is None:
        return None
    values = [_literal(value, read) for value in of.values]
    if left in values:
        return not of.negated
    return None if None in values else of.negated


def _among(of: Among, read: Read) -> bool | None:
    left = value_of(of.part, read)
    if of.type is Type.STRING:
        # Texts are compared as by `<=>`.
        return left in of.values
    if None in of.values:
        raise NotByRowError("NULL among numbers")
    return None if left is None else left in of.values


def _case(of: nodes.Case, read: Read) -> Any:
    for when, value in of.branches:
        if value_of(when, read) is True:
            return value_of(value, read)
    return None if of.other is None else value_of(of.other, read)


def _combined(of: nodes.Combined, read: Read) -> int | None:
    left, right = value_of(of.left, read), value_of(of.right, read)
    if left is None or right is None:
        return None
    return _number(_ARITHMETIC[of.sign](left, right))


def _number(value: int) -> int:
    """A number, if it is no larger than Arrow's."""
    if value not in _INT64:
        raise NotByRowError("a number that is too large")
    return value


def _quotient(of: nodes.Quotient, read: Read) -> int | None:
    value = value_of(of.part, read)
    if value is None:
        return None
    # Python rounds down, SQL towards 0.
    whole = abs(value) // abs(of.by)
    return _number(whole if (value < 0) == (of.by < 0) else -whole)


def _greatest(of: nodes.Greatest, read: Read) -> Any:
    values = [value_of(part, read) for part in of.parts]
    return max((value for value in values if value is not None), default=None)


def _same(of: nodes.Micros | nodes.Moment, read: Read) -> Any:
    return value_of(of.part, read)


_COMPUTED: dict[type, Callable[[Any, Read], Any]] = {
    nodes.Column: _column,
    nodes.Literal: _literal,
    nodes.Compared: _compared,
    nodes.And: _and,
    nodes.Or: _or,
    nodes.Not: _not,
    nodes.IsNull: _is_null,
    nodes.In: _in,
    Among: _among,
    nodes.Case: _case,
    nodes.Combined: _combined,
    nodes.Quotient: _quotient,
    nodes.Greatest: _greatest,
    nodes.Micros: _same,
    nodes.Moment: _same,
}
