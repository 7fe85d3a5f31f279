"""Evaluates expressions over Arrow columns, with the NULLs of SQL."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import US
from tubeq_spark.storage import expression as nodes
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array, nested, scalar
from tubeq_spark.storage.expression import Type
from tubeq_spark.storage.query import Aggregate, Among, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.query import Node

    #: The values of an expression, or one value for all rows.
    Values: TypeAlias = "pa.ChunkedArray | pa.Array | pa.Scalar"
    #: Returns the column of an alias ("" for none) and a name.
    Lookup: TypeAlias = Callable[[str, str], Values]

_FALSE = scalar(False, pa.bool_())  # noqa: FBT003  (the value is the point)
_MOMENT = ARROW_TYPES[Type.TIMESTAMP]
#: Longer texts are not cached.
_SHORT = 64


class NotByArrowError(Exception):
    """Arrow cannot compute a query or statement, or a file has another form than it should have."""


def of_table(rows: pa.Table) -> Lookup:
    """A lookup of the columns of a table, for any alias."""
    schema = rows.schema

    def lookup(_alias: str, name: str) -> Values:
        place = schema.get_field_index(name)
        if place < 0:
            raise NotByArrowError(name)
        return rows.column(place)

    return lookup


def column(
    expression: Expression, lookup: Lookup, kind: pa.DataType | None, count: int
) -> pa.ChunkedArray | pa.Array:
    """The values of an expression as a column.

    Args:
        expression: The expression.
        lookup: The columns.
        kind: The column's type; `None` is the type of the values.
        count: The number of rows.

    Raises:
        NotByArrowError: A column is missing.
        pa.ArrowException: A value cannot be computed.
    """
    found = evaluate(expression, lookup)
    if kind is not None and found.type != kind:
        found = found.cast(kind)
    if isinstance(found, pa.Scalar):
        # Arrow cannot repeat a map zero times.
        return pa.repeat(found, count) if count else pa.nulls(0, found.type)
    return found


def holds(condition: Expression, lookup: Lookup, count: int) -> pa.ChunkedArray | pa.Array:
    """For each of `count` rows, whether a condition is true, and not NULL. Raises as `column` does."""
    return pc.fill_null(column(condition, lookup, pa.bool_(), count), fill_value=_FALSE)


def evaluate(expression: Expression, lookup: Lookup) -> Values:
    """The values of an expression. Raises as `column` does."""
    each: Node = expression  # type: ignore[assignment]
    match each:
        case nodes.Column(name, of):
            return lookup(of, name)
        case nodes.Literal() as literal:
            return _literal(literal)
        case nodes.Call(function, parts):
            return _FUNCTIONS[function](*(evaluate(part, lookup) for part in parts))
        case nodes.In(part, values):
            return _is_one_of(evaluate(part, lookup), values)
        case Among(part, wanted, kind):
            named = array(list(wanted), ARROW_TYPES[kind])
            return pc.is_in(evaluate(part, lookup), value_set=named)
        case nodes.Case(branches, other):
            return _case(branches, other, lookup)
        case nodes.Fail() | Struct() | Aggregate():
            raise NotByArrowError(f"{type(expression).__name__} is no value of a row")


def _literal(literal: nodes.Literal) -> pa.Scalar:
    value = literal.value
    if literal.type is Type.COUNTS:
        return nested([value], ARROW_TYPES[Type.COUNTS])[0]
    if isinstance(value, str) and len(value) > _SHORT:
        return scalar(value, pa.string())
    try:
        return _cached(value, literal.type)
    except OverflowError as error:
        raise NotByArrowError(str(error)) from error


@lru_cache(maxsize=256)
def _cached(value: Any, kind: Type) -> pa.Scalar:
    """A value, cached because a verb names the same states, owners and moments again and again."""
    return scalar(value, ARROW_TYPES[kind])


def _is_one_of(left: Values, values: Sequence[nodes.Literal]) -> Values:
    """Whether each value is one of some literals, as by SQL's IN, which is NULL for a NULL value.

    If one of the literals is NULL, the result for a value that is none of them is NULL, too.
    """
    if len(values) == 1:
        return pc.equal(left, _literal(values[0]))
    wanted = array([value.value for value in values], ARROW_TYPES[values[0].type]).cast(left.type)
    found, known = pc.is_in(left, value_set=wanted), pc.is_valid(left)
    if wanted.null_count:
        known = pc.and_(known, found)
    return pc.if_else(known, found, pa.nulls(1, pa.bool_())[0])


def _case(
    branches: Sequence[tuple[Expression, Expression]], other: Expression | None, lookup: Lookup
) -> Values:
    found = [(evaluate(when, lookup), evaluate(value, lookup)) for when, value in branches]
    default = pa.nulls(1, found[0][1].type)[0] if other is None else evaluate(other, lookup)
    for condition, value in reversed(found):
        default = pc.if_else(pc.fill_null(condition, fill_value=_FALSE), value, default)
    return default


def _same(left: Values, right: Values) -> Values:
    """Whether two values are equal, or both NULL."""
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both, pc.fill_null(pc.equal(left, right), fill_value=_FALSE))


def _seconds(microseconds: Values) -> Values:
    return pc.divide(pc.cast(microseconds, pa.float64(), safe=False), _SECOND)


_SECOND = scalar(float(US), pa.float64())
_FUNCTIONS: dict[str, Callable[..., Values]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<=>": _same,
    "AND": lambda *parts: reduce(pc.and_kleene, parts),
    "OR": lambda *parts: reduce(pc.or_kleene, parts),
    "NOT": pc.invert,
    "IS NULL": pc.is_null,
    "IS NOT NULL": pc.is_valid,
    "LIKE": lambda text, pattern: pc.match_like(text, pattern.as_py()),
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "DIV": pc.divide_checked,
    "greatest": pc.max_element_wise,
    "lower": pc.utf8_lower,
    "length": pc.utf8_length,
    "before": lambda text: pc.replace_substring_regex(text, "(?s)/.*", ""),
    "seconds": _seconds,
    "micros": lambda moment: pc.cast(moment, pa.int64()),
    "moment": lambda number: pc.cast(number, _MOMENT),
}
