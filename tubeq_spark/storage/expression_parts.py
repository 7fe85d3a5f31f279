"""The parts of an expression: the expressions below one, and the columns in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.expression import And, Column, Expression, Literal, Or, all_of, any_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The direct parts of an expression: all expressions in its fields."""
    fields: Sequence[str] = expression.__slots__
    return tuple(part for name in fields for part in _held(getattr(expression, name)))


def _held(value: object) -> Iterator[Expression]:
    """The expressions in the value of a field."""
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, (tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _held(part)


def replaced(expression: Expression, by: Callable[[Expression], Expression | None]) -> Expression:
    """An expression with some of its parts replaced.

    Args:
        expression: The expression.
        by: Returns the replacement of a part; `None` keeps the part, and replaces among its own parts.
    """
    found = by(expression)
    if found is not None or not parts_of(expression):
        return expression if found is None else found
    fields: Sequence[str] = expression.__slots__
    return type(expression)(*(_replaced(getattr(expression, name), by) for name in fields))


def _replaced(value: Any, by: Callable[[Expression], Expression | None]) -> Any:
    """The value of a field with replaced expressions in it."""
    if isinstance(value, Expression):
        return replaced(value, by)
    if isinstance(value, tuple):
        return tuple(_replaced(each, by) for each in value)
    if isinstance(value, Mapping):
        return {name: _replaced(each, by) for name, each in value.items()}
    return value


def columns_of(expression: Expression) -> set[str]:
    """The names of all columns in an expression."""
    return {column.name for column in _columns(expression)}


def aliases_of(expression: Expression) -> set[str]:
    """The aliases of all columns in an expression."""
    return {column.of for column in _columns(expression)}


def conditions_of(condition: Expression) -> tuple[Expression, ...]:
    """The conditions that a condition joins by AND; the condition itself if it joins none."""
    return condition.parts if isinstance(condition, And) else (condition,)


def implied(condition: Expression, *aliases: str) -> Expression | None:
    """A condition on the columns of some aliases only that holds wherever `condition` does; `None` if there is none."""
    match condition:
        case And(parts):
            found = [said for part in parts if (said := implied(part, *aliases)) is not None]
            return all_of(*found) if found else None
        case Or(parts):
            found = [said for part in parts if (said := implied(part, *aliases)) is not None]
            return any_of(*found) if len(found) == len(parts) else None
        case _:
            return condition if aliases_of(condition).issubset(aliases) else None


def _columns(expression: Expression) -> Iterator[Column]:
    if isinstance(expression, Column):
        yield expression
    # Literals are the most frequent nodes, and have no parts.
    elif not isinstance(expression, Literal):
        for part in parts_of(expression):
            yield from _columns(part)
