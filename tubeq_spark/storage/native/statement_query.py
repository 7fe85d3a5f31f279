"""The query that tells what a statement makes of each row: which clause applies, and the row after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tubeq_spark.storage.statement import FAIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tubeq_spark.storage.statement import Clause, Statement

__all__ = ["CLAUSE", "FROM", "ONE_ROW", "ROW", "STAYS", "StatementQuery", "condition"]

#: The place of the note, which goes into the commit's metadata.
_NOTED = re.compile(r"CAST\([\w.]+ AS STRING\) <> \{note\}( AND )?")
#: The column that says which clause applies to a row, counted from 1.
CLAUSE = "tubeq_clause"
#: The column that numbers the rows of the table.
ROW = "tubeq_row"
#: The columns that say in which partition a row was before.
FROM = "tubeq_from_{}"
#: A source that says nothing.
ONE_ROW = "(SELECT 1 AS one)"
#: In place of a clause: a row of the table that stays, and one of the source that goes nowhere.
STAYS, _NOWHERE = 0, -1


def condition(statement: Statement) -> str:
    """Which rows a statement finds, in Spark's dialect, without the place of the note."""
    return _NOTED.sub("", statement.where) or "TRUE"


class StatementQuery:
    """Writes it, in Spark's dialect."""

    def __init__(
        self, statement: Statement, schema: pa.Schema, by: Sequence[str], target: str
    ) -> None:
        """Write it of a statement.

        Args:
            statement: The statement.
            schema: The columns of its table.
            by: Its partition columns.
            target: A query for the rows of the partitions that it names.
        """
        self._statement = statement
        self._schema = schema
        self._by = by
        self._target = target
        self._inserts = any(clause.inserts for clause in statement.clauses)

    def joined(self) -> str:
        """Every row of the table's part, and those of the source that match none of them."""
        statement = self._statement
        where = condition(statement)
        cases = [
            (
                "t.tubeq_t IS NULL" + (f" AND ({clause.when})" if clause.when else "")
                if clause.inserts
                else "t.tubeq_t AND s.tubeq_s" + (f" AND ({clause.when})" if clause.when else ""),
                clause,
            )
            for clause in statement.clauses
        ]
        join = "FULL" if self._inserts else "LEFT"
        target = f"(SELECT *, TRUE AS tubeq_t, row_number() OVER () AS {ROW} FROM {self._target})"
        return (
            f"SELECT {self._columns(cases, 't.')}, t.{ROW} AS {ROW} FROM {target} t {join} JOIN "
            f"(SELECT *, TRUE AS tubeq_s FROM {statement.using} tubeq_using) s ON {where}"
        )

    def inserted(self) -> str:
        """The rows of the source, where there are none of the table's."""
        cases = [
            (clause.when or "TRUE", clause) for clause in self._statement.clauses if clause.inserts
        ]
        return f"SELECT {self._columns(cases, None)} FROM {self._statement.using} s"

    def _columns(self, cases: Sequence[tuple[str, Clause]], kept: str | None) -> str:
        """What is selected: which clause applies, the columns after it, the partition before it.

        Args:
            cases: When each clause applies.
            kept: The alias of the row before; `None`: there is none.
        """
        numbers = {id(c): n for n, c in enumerate(self._statement.clauses, 1)}
        whens = " ".join(f"WHEN {when} THEN {numbers[id(c)]}" for when, c in cases)
        other = str(_NOWHERE)
        if kept is not None:
            other = str(STAYS)
            if self._inserts:
                other = f"CASE WHEN t.tubeq_t THEN {STAYS} ELSE {_NOWHERE} END"
        found = [f"CAST(CASE {whens} ELSE {other} END AS INT) AS {CLAUSE}"]
        found += [f"{self._value(f.name, cases, kept)} AS `{f.name}`" for f in self._schema]
        if kept is not None:
            found += [f"{kept}{name} AS {FROM.format(name)}" for name in self._by]
        return ", ".join(found)

    def _value(self, column: str, cases: Sequence[tuple[str, Clause]], kept: str | None) -> str:
        before = "NULL" if kept is None else f"{kept}`{column}`"
        values = [(when, _set(clause, column, before)) for when, clause in cases]
        while values and values[-1][1] == before:
            values.pop()
        if not values:
            return before
        if kept is None and len(values) == 1 and len(cases) == 1:
            # Rows that it is not about are dropped anyhow.
            return values[0][1]
        whens = " ".join(f"WHEN {when} THEN {value}" for when, value in values)
        return f"CASE {whens} ELSE {before} END"


def _set(clause: Clause, column: str, before: str) -> str:
    value = (clause.sets or {}).get(column, before)
    return before if value == FAIL else value
