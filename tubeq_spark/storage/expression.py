"""Expressions over the columns of a table, as data with operators: conditions and new values.

Each engine has a renderer for them: Spark's renderer writes SQL, the native engine evaluates them over
Arrow columns. The set of nodes is closed, and each renderer handles all of them.

    t = row("t")
    (t.state == "~") & (t.next_event <= at(now_us))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: The error of a statement whose rows have changed since its decision.
STALE = "tubeq:stale"


class Type(StrEnum):
    """The type of a literal, by its name in SQL."""

    BIGINT = "BIGINT"
    INT = "INT"
    STRING = "STRING"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    #: In microseconds since 1970.
    TIMESTAMP = "TIMESTAMP"
    #: Numbers by names.
    COUNTS = "MAP<STRING, BIGINT>"


class Expression:
    """An expression with a value for each row. Comparisons make conditions, so it has no truth."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false; combine conditions by &, | and ~")

    def __eq__(self, other: Value) -> Call:  # type: ignore[override]
        return Call("=", self, literal(other))

    def __ne__(self, other: Value) -> Call:  # type: ignore[override]
        return Call("<>", self, literal(other))

    def __lt__(self, other: Value) -> Call:
        return Call("<", self, literal(other))

    def __le__(self, other: Value) -> Call:
        return Call("<=", self, literal(other))

    def __gt__(self, other: Value) -> Call:
        return Call(">", self, literal(other))

    def __ge__(self, other: Value) -> Call:
        return Call(">=", self, literal(other))

    def __mul__(self, other: Value) -> Call:
        return Call("*", self, literal(other))

    def same_as(self, other: Value) -> Call:
        """Whether the two are equal, or both NULL; never NULL itself."""
        return Call("<=>", self, literal(other))

    def __and__(self, other: Expression) -> Expression:
        return all_of(self, other)

    def __or__(self, other: Expression) -> Expression:
        return any_of(self, other)

    def __invert__(self) -> Call:
        return Call("NOT", self)

    def __add__(self, other: Value) -> Call:
        return Call("+", self, literal(other))

    def __sub__(self, other: Value) -> Call:
        return Call("-", self, literal(other))

    def is_null(self) -> Call:
        """Whether the value is NULL."""
        return Call("IS NULL", self)

    def is_not_null(self) -> Call:
        """Whether the value is not NULL."""
        return Call("IS NOT NULL", self)

    def is_in(self, values: Iterable[Value]) -> In:
        """Whether the value is one of at least one literal."""
        return In(self, tuple(map(_literal, values)))


#: An expression, or a Python value that stands for a literal.
Value: TypeAlias = Expression | int | str | bool


@dataclass(frozen=True, slots=True, eq=False)
class Column(Expression):
    """A column of the table (`t`), of a statement's source (`s`), or, in a query, of the only table ("")."""

    name: str
    of: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """A literal with its type; `None` is NULL.

    Attributes:
        value: The value; moments are microseconds since 1970.
        type: Its type.
    """

    value: int | float | str | bool | Mapping[str, int] | None
    type: Type


class Call(Expression):
    """A function or an operator of SQL over some values.

    Each renderer has a table of them. A number that is too large for its type makes an engine fail.

    Attributes:
        function: An operator by its sign in SQL: a comparison, AND, OR, NOT, IS NULL, IS NOT NULL, LIKE, `+`, `-`, `*` or
            DIV; or the name of a function below.
        parts: The values.
    """

    __slots__ = __match_args__ = ("function", "parts")

    def __init__(self, function: str, *parts: Expression) -> None:
        self.function, self.parts = function, parts


#: The greatest of some values, ignoring NULLs; NULL if all are NULL.
greatest_of = partial(Call, "greatest")
#: A timestamp as microseconds since 1970, and the opposite.
micros, moment = partial(Call, "micros"), partial(Call, "moment")
#: A text in lower case; engines differ in characters that are not ASCII.
lower = partial(Call, "lower")
#: The number of characters of a text.
length = partial(Call, "length")
#: The part of a text before its first slash; all of it if it has none.
before = partial(Call, "before")
#: A duration in microseconds as a DOUBLE of seconds.
seconds = partial(Call, "seconds")


def quotient(part: Expression, by: int) -> Call:
    """The integer part of a quotient by a number."""
    return Call("DIV", part, literal(by))


def like(part: Expression, pattern: str) -> Call:
    """Whether a text matches a pattern of LIKE. A backslash before `%` or `_` makes it a plain character."""
    return Call("LIKE", part, literal(pattern))


@dataclass(frozen=True, slots=True, eq=False)
class In(Expression):
    """Whether a value is one of some literals."""

    part: Expression
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Case(Expression):
    """A CASE: the value of the first branch whose condition holds; else NULL."""

    branches: tuple[tuple[Expression, Expression], ...]
    other: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fail(Expression):
    """Stands for a column's value, and makes the whole statement fail with `STALE`."""


FAIL: Final = Fail()
TRUE: Final = Literal(True, Type.BOOLEAN)  # noqa: FBT003  (the value is the point)
FALSE: Final = Literal(False, Type.BOOLEAN)  # noqa: FBT003


class Row:
    """The columns of a row as attributes."""

    __slots__ = ("_of",)

    def __init__(self, of: str) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Column:
        return Column(name, self._of)

    def __getitem__(self, name: str) -> Column:
        return Column(name, self._of)


def row(of: str = "") -> Row:
    """The columns of a table's row (`t`), of a source's row (`s`), or, in a query, of the only table ("")."""
    return Row(of)


def literal(value: Value) -> Expression:
    """Convert a value to an expression. Integers become BIGINT; expressions stay."""
    return value if isinstance(value, Expression) else _literal(value)


def _literal(value: Value) -> Literal:
    if isinstance(value, Literal):
        return value
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return Literal(value, Type.BIGINT)
    if isinstance(value, str):
        return Literal(value, Type.STRING)
    raise TypeError(f"{value!r} is no literal")


def null(kind: Type) -> Literal:
    """NULL of a type."""
    return Literal(None, kind)


def integer(value: int | None) -> Literal:
    """An INT literal, for a column of that type."""
    return Literal(value, Type.INT)


def real(value: float) -> Literal:
    """A DOUBLE literal, which is finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no literal")
    return Literal(value, Type.DOUBLE)


def at(moment_us: int | None) -> Literal:
    """A timestamp literal of microseconds since 1970; `None` is NULL."""
    return Literal(moment_us, Type.TIMESTAMP)


def case(*branches: tuple[Expression, Value], other: Value | None = None) -> Expression:
    """A CASE with `other` as its ELSE; only `other` if it has no branches."""
    if not branches and other is not None:
        return literal(other)
    return Case(
        tuple((when, literal(value)) for when, value in branches),
        None if other is None else literal(other),
    )


def all_of(*parts: Expression) -> Expression:
    """All of some conditions hold. Only these are named that do not always hold."""
    return _joined("AND", [part for part in parts if part is not TRUE] or [TRUE])


def any_of(*parts: Expression) -> Expression:
    """One of at least one condition holds."""
    return _joined("OR", parts)


def _joined(sign: str, parts: Sequence[Expression]) -> Expression:
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, Call) and part.function == sign else (part,)
    return flat[0] if len(flat) == 1 else Call(sign, *flat)
