"""Expressions as columns, conditions and literals, by Arrow: a query's planning would cost more.

DataFusion is asked for what is not known here. A test compares the two over a grid of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import scalar
from tubeq_spark.storage.native.evaluation import value
from tubeq_spark.storage.native.literals import UnknownTextError
from tubeq_spark.storage.native.tokens import grouped, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.native.evaluation import Lookup, Values
    from tubeq_spark.storage.native.tokens import Piece

__all__ = ["UnknownTextError", "column", "holds", "literal", "no_columns", "of_table", "read"]

_FALSE = scalar(False, pa.bool_())  # noqa: FBT003  (the value is the point)


def read(text: str) -> list[Piece]:
    """The pieces of an expression."""
    return words(grouped(text))


def of_table(rows: pa.Table) -> Lookup:
    """The columns of a table, whatever it is called."""
    columns = dict(zip(rows.column_names, rows.columns, strict=True))

    def lookup(_alias: str, name: str) -> pa.ChunkedArray:
        if name not in columns:
            raise UnknownTextError(name)
        return columns[name]

    return lookup


def no_columns(_alias: str, name: str) -> Values:
    """The columns of what has none."""
    raise UnknownTextError(name)


def column(
    expression: Sequence[Piece], lookup: Lookup, kind: pa.DataType | None, count: int
) -> pa.ChunkedArray | pa.Array:
    """The values of an expression as a column.

    Args:
        expression: Its pieces, without blanks.
        lookup: The column of an alias ("": it has none) and a name.
        kind: The column's type; `None`: that of the values.
        count: How many rows there are.

    Raises:
        UnknownTextError: It has something that is not known here.
        pa.ArrowException: A value cannot be computed.
    """
    found = value(expression, lookup)
    if kind is not None and found.type != kind:
        found = found.cast(kind)
    return pa.repeat(found, count) if isinstance(found, pa.Scalar) else found


def literal(expression: Sequence[Piece]) -> pa.Scalar:
    """The value of an expression without columns. Raises as `column`."""
    found = value(expression, no_columns)
    if not isinstance(found, pa.Scalar):
        raise UnknownTextError(str(expression))
    return found


def holds(condition: Sequence[Piece], lookup: Lookup, count: int) -> pa.ChunkedArray | pa.Array:
    """For each of so many rows whether a condition is true, and not NULL. Raises as `column`."""
    return pc.fill_null(column(condition, lookup, pa.bool_(), count), fill_value=_FALSE)
