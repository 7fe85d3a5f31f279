"""What a statement that has no source makes of the rows of its partitions, by Arrow.

A take is such a statement, and most statements are takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import repeated, scalar
from tubeq_spark.storage.native import expressions
from tubeq_spark.storage.native.statement_query import CLAUSE, FROM, ONE_ROW, STAYS, condition
from tubeq_spark.storage.statement import FAIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.statement import Statement

__all__ = ["has_source", "rewritten"]


def has_source(statement: Statement) -> bool:
    """Whether a statement reads anything but its table."""
    inserts = any(clause.inserts for clause in statement.clauses)
    return inserts or statement.using not in {"", ONE_ROW}


def rewritten(statement: Statement, rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows as a statement leaves them, the clause that applied to each, and where each was before.

    Args:
        statement: The statement, which has no source.
        rows: The rows of the partitions that it names.
        by: The table's partition columns.
    """
    lookup = expressions.of_table(rows)
    count = rows.num_rows
    left = expressions.holds(expressions.read(condition(statement)), lookup, count)
    number: pa.ChunkedArray | pa.Array = repeated(STAYS, pa.int32(), count)
    columns = {name: rows.column(name) for name in rows.column_names}
    for n, clause in enumerate(statement.clauses, 1):
        applies = (
            pc.and_(left, expressions.holds(expressions.read(clause.when), lookup, count))
            if clause.when
            else left
        )
        left = pc.and_not(left, applies)
        number = pc.if_else(applies, scalar(n, pa.int32()), number)
        for name, text in (clause.sets or {}).items():
            if text != FAIL:
                before = columns[name]
                value = expressions.column(expressions.read(text), lookup, before.type, count)
                columns[name] = pc.if_else(applies, value, before)
    found = pa.table(columns, schema=rows.schema).append_column(CLAUSE, number)
    for name in by:
        found = found.append_column(FROM.format(name), rows.column(name))
    return found
