"""Computes rows after a statement in Python, from its clauses and the rows before it.

A verb hands these rows out and does not read them again. Each expression of a clause is compiled once to a function
of a row.
"""

from __future__ import annotations

import operator
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tubeq_spark.model.states import TIMERS
from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.storage.expression import (
    TRUE,
    And,
    Case,
    Column,
    Combined,
    Compared,
    Concat,
    Contains,
    Fail,
    Greatest,
    In,
    IsNull,
    Length,
    Like,
    Literal,
    Lower,
    Mapped,
    Micros,
    Moment,
    Not,
    Or,
    Product,
    Quotient,
    Seconds,
)
from tubeq_spark.storage.query import Aggregate, Among, Struct, node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause

    #: A value for a row; moments are microseconds.
    Value: TypeAlias = Callable[[StoredTask], Any]

_STATES = {state.value: state for state in TIMERS}
#: Functions for the attributes of a StoredTask, in their order, by the names of their columns.
_COLUMNS: dict[str, Value] = {
    "claim" if field.name == "take_id" else field.name: attrgetter(field.name)
    for field in fields(StoredTask)
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SUMS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub}
_STATE = list(_COLUMNS).index("state")


def rows_after(
    clauses: Iterable[Clause],
    rows: Sequence[StoredTask],
    source: Mapping[str, Value] | None = None,
) -> list[StoredTask]:
    """The rows after a statement, without removed ones. The first clause that applies to a row changes it.

    Args:
        clauses: The clauses of a statement.
        rows: The rows before it.
        source: The columns of the source row of each row, if the clauses read them.
    """
    after: list[StoredTask | None] = list(rows)
    left: Sequence[int] = range(len(rows))
    for clause in clauses:
        if clause.inserts:
            continue
        hits = left
        if clause.when is not None and clause.when is not TRUE:
            applies = row_value(clause.when, source or {})
            hits = [place for place in left if applies(rows[place])]
        if hits:
            change = _change(clause, source or {})
            for place in hits:
                after[place] = change(rows[place])
        if len(hits) == len(left):
            break
        changed = set(hits)
        left = [place for place in left if place not in changed]
    return [row for row in after if row is not None]


def _change(
    clause: Clause, source: Mapping[str, Value]
) -> Callable[[StoredTask], StoredTask | None]:
    """A function that changes a row by a clause; it returns `None` for a removed row."""
    sets = clause.sets
    # With a change feed a removed row stays for the feed, with the negated id of the tube.
    if sets is None or "tube" in sets:
        return lambda _: None
    values = [
        row_value(sets[name], source) if name in sets else before
        for name, before in _COLUMNS.items()
    ]
    if "state" in sets:
        letter = values[_STATE]
        values[_STATE] = lambda row: _STATES[letter(row)]
    return lambda row: StoredTask(*[value(row) for value in values])


def row_value(expression: Expression, source: Mapping[str, Value]) -> Value:  # noqa: C901, PLR0911, PLR0912  (one of each)
    """The value of an expression for a row, with the NULLs of SQL.

    Raises:
        TypeError: The expression has a node that changes of rows do not use.
    """
    match node(expression):
        case Column(name, of):
            return source[name] if of == "s" else _COLUMNS[name]
        case Literal(value):
            return lambda _: value
        case Combined(sign, left, right):
            return _both(_SUMS[sign], row_value(left, source), row_value(right, source))
        case Product(left, right):
            return _both(operator.mul, row_value(left, source), row_value(right, source))
        case Micros(part) | Moment(part):
            return row_value(part, source)
        case Compared("<=>", left, right):
            a, b = row_value(left, source), row_value(right, source)
            return lambda row: a(row) == b(row)
        case Compared(sign, left, right):
            return _both(_COMPARISONS[sign], row_value(left, source), row_value(right, source))
        case Case(branches, other):
            return _case(
                [(row_value(when, source), row_value(then, source)) for when, then in branches],
                None if other is None else row_value(other, source),
            )
        case And(parts):
            return _kleene([row_value(part, source) for part in parts], decides=False)
        case Or(parts):
            return _kleene([row_value(part, source) for part in parts], decides=True)
        case Not(part):
            found = row_value(part, source)
            return lambda row: None if (value := found(row)) is None else not value
        case IsNull(part, negated):
            found = row_value(part, source)
            return lambda row: (found(row) is None) is not negated
        case In(part, values, negated):
            return _is_in(row_value(part, source), {each.value for each in values}, negated)
        case Mapped(part, pairs):
            found, known = row_value(part, source), dict(pairs)
            return lambda row: known.get(found(row))
        case Greatest(parts):
            each = [row_value(part, source) for part in parts]
            return lambda row: max(
                (v for value in each if (v := value(row)) is not None), default=None
            )
        case Quotient(part, by):
            return _quotient(row_value(part, source), by)
        case (
            Aggregate()
            | Among()
            | Concat()
            | Contains()
            | Fail()
            | Length()
            | Like()
            | Lower()
            | Seconds()
            | Struct()
        ):
            msg = f"no row is changed by {type(expression).__name__}"
            raise TypeError(msg)


def _both(combine: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Combine two values; NULL if one of them is NULL."""

    def value(row: StoredTask) -> Any:
        a, b = left(row), right(row)
        return None if a is None or b is None else combine(a, b)

    return value


def _case(branches: Sequence[tuple[Value, Value]], other: Value | None) -> Value:
    def value(row: StoredTask) -> Any:
        for when, then in branches:
            if when(row):
                return then(row)
        return None if other is None else other(row)

    return value


def _kleene(parts: Sequence[Value], *, decides: bool) -> Value:
    """AND or OR with NULLs: `decides` if a part has this value, else NULL if a part is NULL, else the opposite."""

    def value(row: StoredTask) -> bool | None:
        found: bool | None = not decides
        for part in parts:
            one: bool | None = part(row)
            if one is decides:
                return decides
            if one is None:
                found = None
        return found

    return value


def _is_in(part: Value, wanted: Collection[Any], negated: bool) -> Value:  # noqa: FBT001  (of the node)
    missing = None if None in wanted else negated

    def value(row: StoredTask) -> Any:
        found = part(row)
        return None if found is None else not negated if found in wanted else missing

    return value


def _quotient(part: Value, by: int) -> Value:
    """The integer part of a quotient, rounded towards zero."""

    def value(row: StoredTask) -> Any:
        found = part(row)
        if found is None:
            return None
        size = abs(found) // abs(by)
        return size if (found < 0) is (by < 0) else -size

    return value
