"""Reads a condition that a program writes in SQL, such as `attempts > 3 AND error LIKE '%timeout%'`.

The library sqlglot parses it. It becomes an expression, which each engine evaluates like those of the queue itself.
So all engines give the same answer. The language leaves out everything that engines answer differently: unlike
Spark, it compares only values of one type, and it has no functions that depend on a session or a locale.
Arrow judges which types fit: it evaluates each part without rows.
"""

from __future__ import annotations

import datetime as dt
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tubeq_spark.clock import to_us
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation
from tubeq_spark.model.error_text import missing
from tubeq_spark.storage import expression as ours
from tubeq_spark.storage.arrow.columns import ARROW_TYPES
from tubeq_spark.storage.arrow.evaluate import NotByArrowError, evaluate
from tubeq_spark.task import TaskState

try:
    from sqlglot import ParseError, TokenError, exp, parse_one
    from sqlglot.dialects.spark import Spark
except ModuleNotFoundError as error:
    raise missing(error, "where") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: Columns that programs know by names in lower case: their values for a stored row, and the types in which the
    #: table stores them.
    ShownColumns: TypeAlias = Mapping[str, tuple[ours.Expression, pa.DataType]]

_HELP = (
    "possible are AND, OR, NOT, = <> < <= > >=, IN, BETWEEN, LIKE, IS NULL, texts in single quotes, numbers, "
    "TIMESTAMP '2026-11-21 08:30:00', coalesce, contains, endswith, length, startswith and the columns"
)
_ROW, _NO_TEXT = ours.row(), ours.null(ours.Type.STRING)
_MOMENT = ARROW_TYPES[ours.Type.TIMESTAMP]


class _Dialect(Spark):
    """Spark's SQL with the texts of standard SQL: in single quotes, which are doubled within a text."""

    class Tokenizer(Spark.Tokenizer):
        QUOTES = ["'"]  # noqa: RUF012  (as in the library)
        STRING_ESCAPES = ["'"]  # noqa: RUF012


def shown(state: TaskState, *, typed: bool) -> ShownColumns:
    """The columns of `Tube.df`, for a row in an effective state, by the names that programs use in conditions."""
    is_taken, is_stored = state is TaskState.TAKEN, _ROW.state == state.value
    next_event = ours.case((is_stored, _ROW.next_event), other=_ROW.expires_at)
    return {
        "task_id": (_ROW.task_id, pa.int64()),
        "state": (ours.literal(state.value), pa.string()),
        "pri": (_ROW.pri, pa.int64()),
        "utube": (_ROW.utube, pa.string()),
        "data": (_ROW.data, pa.struct([]) if typed else pa.string()),
        "created": (_ROW.created, _MOMENT),
        "ttl": (ours.seconds(_ROW.ttl), pa.int64()),
        "ttr": (ours.seconds(_ROW.ttr), pa.int64()),
        "next_event": (next_event, _MOMENT),
        "attempts": (_ROW.attempts, pa.int64()),
        "owner": (ours.before(_ROW.owner) if is_taken else _NO_TEXT, pa.string()),
        "taken_at": (_ROW.since if is_taken else ours.at(None), _MOMENT),
        "error": (_ROW.error, pa.string()),
    }


def condition_of(text: str, columns: ShownColumns) -> ours.Expression:
    """Read a condition, which is never NULL.

    Args:
        text: The condition.
        columns: The columns that it may name, in upper or lower case.

    Raises:
        InvalidOptionError: It is no text or no condition, or has something that engines answer differently.
    """
    validation.utf8("where", validation.text("where", text))
    try:
        node = parse_one(text, dialect=_Dialect)
        # The comparison refuses what is no condition.
        found = _value(node, columns).same_as(ours.TRUE)
        _kind(found, node, columns)
    except (ParseError, TokenError, RecursionError, ValueError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        if why.startswith("Required keyword"):
            why = f"a value is missing. {why.rpartition('. ')[2]}"
        raise InvalidOptionError(f"where={text!r}: {why}; {_HELP} {', '.join(columns)}") from None
    return found


def _value(node: exp.Expr, columns: ShownColumns) -> ours.Expression:
    """The value of a node. A ValueError names the part that is not possible."""
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in columns:
        return columns[node.name.lower()][0]
    if isinstance(node, (exp.Literal, exp.Neg, exp.Boolean)):
        return _literal(node.to_py())
    if type(node) is exp.Cast and str(node.to) == "TIMESTAMPTZ":
        moment = dt.datetime.fromisoformat(str(node.this.to_py()))
        return ours.at(to_us(moment.replace(tzinfo=moment.tzinfo or dt.UTC)))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return _value(node.this, columns).is_null()
    unread = [name for name in node.args.keys() - _READ if node.args[name]]
    is_text = not isinstance(node, _SEARCHES) or node.expression.is_string
    if type(node) not in _MADE or unread or not is_text or node.args.get("expressions") == []:
        raise ValueError(f"{node} is not possible")
    parts = node.flatten() if isinstance(node, exp.Connector) else node.iter_expressions()
    values = [_value(part, columns) for part in parts]
    kinds = [_kind(value, node, columns) for value in values]
    if pa.float64() in kinds:
        values = [_real(*pair) for pair in zip(values, kinds, strict=True)]
    found = _MADE[type(node)](*values)
    _kind(found, node, columns)
    return ~found if node.args.get("negate") else found


def _kind(value: ours.Expression, node: exp.Expr, columns: ShownColumns) -> pa.DataType:
    """The type of a node's value. Arrow refuses parts whose types do not fit."""
    # A stored column without a shown one of its name is a moment.
    kinds = {name: kind for name, (_, kind) in columns.items()}
    try:
        return evaluate(value, lambda _, name: pa.nulls(0, kinds.get(name, _MOMENT))).type
    except (pa.ArrowException, NotByArrowError) as error:
        raise ValueError(f"{node} is not possible: {error}") from None


def _literal(value: Any) -> ours.Expression:
    if "\\" in str(value):
        raise ValueError("engines differ in the meaning of a backslash")
    return ours.literal(value) if isinstance(value, (int, str)) else ours.real(float(value))


def _real(value: ours.Expression, kind: pa.DataType) -> ours.Expression:
    """A value beside a DOUBLE: a whole literal becomes one. Ids have 63 bits, more than a DOUBLE."""
    if kind != pa.int64():
        return value
    if isinstance(value, ours.Literal):
        return ours.real(float(str(value.value)))
    raise ValueError("whole numbers of a column cannot be compared with fractions")


def _coalesce(*values: ours.Expression) -> ours.Expression:
    return ours.case(*((value.is_not_null(), value) for value in values[:-1]), other=values[-1])


def _plain(text: str) -> str:
    """A pattern of LIKE for a text."""
    return text.replace("%", r"\%").replace("_", r"\_")


#: The arguments of sqlglot's nodes that are read here. A node with any other one means something else.
_READ = {"this", "expression", "expressions", "low", "high", "negate"}
#: They search for a literal text.
_SEARCHES = (exp.Like, exp.Contains, exp.StartsWith, exp.EndsWith)
#: Makes the value of a node from the values of its parts.
_MADE: dict[type[exp.Expr], Callable[..., ours.Expression]] = {
    exp.Paren: ours.literal,
    exp.And: ours.all_of,
    exp.Or: ours.any_of,
    exp.Not: operator.inv,
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.In: lambda value, *wanted: ours.any_of(*(value == other for other in wanted)),
    exp.Between: lambda value, low, high: (value >= low) & (value <= high),
    exp.Coalesce: _coalesce,
    exp.Length: ours.length,
    exp.Like: lambda value, wanted: ours.like(value, wanted.value),
    exp.Contains: lambda value, wanted: ours.like(value, f"%{_plain(wanted.value)}%"),
    exp.StartsWith: lambda value, wanted: ours.like(value, f"{_plain(wanted.value)}%"),
    exp.EndsWith: lambda value, wanted: ours.like(value, f"%{_plain(wanted.value)}"),
}
