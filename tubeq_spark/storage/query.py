"""Queries over one table, as data, which each engine runs in its own way; and the parts of expressions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypedDict

from tubeq_spark.storage import expression as nodes
from tubeq_spark.storage.expression import Column, Expression, Type, all_of, any_of, row
from tubeq_spark.storage.statement import MOST_NAMED


@dataclass(frozen=True, slots=True, eq=False)
class Among(Expression):
    """Whether a value is one of many, which may include NULL for texts.

    They are too many for the text of a query, so Spark gets them as a table. For a few values there is `In`, which
    is NULL for a NULL value; this is false.
    """

    part: Expression
    values: Collection[int | str | None]
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Struct(Expression):
    """Some values as a struct. Structs are compared by the first value that differs."""

    fields: Mapping[str, Expression]


class Function(StrEnum):
    """An aggregate over the rows of a group."""

    #: The number of rows for which a condition holds.
    COUNT = "count_if"
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    #: The value of the row whose `by` is the greatest.
    MAX_BY = "max_by"


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Expression):
    """A value for each group of rows."""

    function: Function
    part: Expression
    by: Expression | None = None


def count() -> Aggregate:
    """The number of rows."""
    return Aggregate(Function.COUNT, nodes.TRUE)


def count_if(condition: Expression) -> Aggregate:
    """The number of rows for which a condition holds."""
    return Aggregate(Function.COUNT, condition)


def least(part: Expression) -> Aggregate:
    """The least value; NULL if there are no rows."""
    return Aggregate(Function.MIN, part)


def greatest(part: Expression) -> Aggregate:
    """The greatest value; NULL if there are no rows."""
    return Aggregate(Function.MAX, part)


def last_by(part: Expression, by: Expression) -> Aggregate:
    """The value of the row with the greatest `by`."""
    return Aggregate(Function.MAX_BY, part, by)


def total(part: Expression) -> Aggregate:
    """The sum; NULL if there are no rows."""
    return Aggregate(Function.SUM, part)


@dataclass(frozen=True, slots=True)
class Select:
    """Rows of a table, or one row for each group of them.

    Attributes:
        table: The table's SQL name.
        columns: The selected expressions by name, over the table's columns (without an alias).
        where: The condition for rows.
        by: The columns to group by, selected ones or the table's. `None`: all rows are one group if an aggregate is
            selected; otherwise rows are not grouped.
        having: The condition for groups, over selected columns.
        order: The columns to sort by: selected ones, or the table's if rows are not grouped.
        limit: The most rows; `None` is all.
        descending: Whether the order descends.
        skips: If a data file of a tube is missing or damaged, the query leaves out its segment, and all rows whose
            value in one of these columns may also be in the file. `None`: it leaves out nothing, and fails if the
            file may have rows that match its condition.
        quotas: The most rows of each sub-queue, the first ones in the order; other sub-queues give none. `None` is all
            rows. With quotas the columns include `utube` and those of the order, and rows are not grouped.
    """

    table: str
    columns: Mapping[str, Expression]
    where: Expression = nodes.TRUE
    by: Sequence[str] | None = None
    having: Expression = nodes.TRUE
    order: Sequence[str] = ()
    limit: int | None = None
    descending: bool = False
    skips: Sequence[str] | None = None
    quotas: Mapping[str | None, int] | None = None


class Parts(TypedDict, total=False):
    """The optional parts of a `Select`."""

    by: Sequence[str] | None
    having: Expression
    order: Sequence[str]
    limit: int | None
    descending: bool
    skips: Sequence[str] | None
    quotas: Mapping[str | None, int] | None


@dataclass(frozen=True, slots=True)
class Union:
    """A union of queries with the same columns."""

    selects: Sequence[Select]


Query: TypeAlias = Select | Union


def named(*columns: str) -> dict[str, Expression]:
    """Columns of a table with their own names."""
    return {name: nodes.Column(name) for name in columns}


def has_aggregates(select: Select) -> bool:
    """Whether a query selects an aggregate."""
    return select.by is not None or any(
        isinstance(value, Aggregate) for value in select.columns.values()
    )


#: All nodes. A function that takes an expression for this, and forgets one, does not pass the type checker.
Node: TypeAlias = (
    Aggregate
    | Among
    | nodes.Call
    | nodes.Case
    | nodes.Column
    | nodes.Fail
    | nodes.In
    | nodes.Literal
    | Struct
)


def column_names_in(part: object) -> set[str]:
    """The names of all columns in an expression, or in the value of a field of one."""
    match part:
        case nodes.Column(name):
            return {name}
        case nodes.Literal():
            # Literals are the most frequent nodes, and have no parts.
            return set()
        case Expression():
            fields: Sequence[str] = part.__slots__
            return column_names_in(tuple(getattr(part, name) for name in fields))
        case Mapping():
            return column_names_in(tuple(part.values()))
        case tuple():
            return set[str]().union(*map(column_names_in, part))
        case _:
            return set()


def one_of(column: Column, values: Collection[int] | Collection[str], kind: Type) -> Expression:
    """Rows with one of some values of a column, at least one."""
    if len(values) <= MOST_NAMED:
        return column.is_in(values)
    # With a range, file statistics skip files that a join alone would read.
    return all_of(column >= min(values), column <= max(values), Among(column, values, kind))


def of_utubes(utubes: Collection[str | None]) -> Expression:
    """Rows of these sub-queues; NULL may be one of them."""
    utube = row().utube
    if len(utubes) > MOST_NAMED:
        return Among(utube, utubes, Type.STRING)
    texts = [name for name in utubes if name is not None]
    named_ones: list[Expression] = [utube.is_in(texts)] if texts else []
    return any_of(*named_ones, utube.is_null()) if None in utubes else any_of(*named_ones)
