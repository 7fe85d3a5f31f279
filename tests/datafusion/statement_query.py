"""The DataFusion query that applies a statement: the clause for each row, and the new row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import TRUE, Column, Fail, all_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tests.datafusion.text import DataFusionRenderer
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause, Statement

#: The column with the number of the clause that applies to a row: 1 is the first change, the inserts come last.
CLAUSE = "tubeq_clause"
#: The column that numbers the rows of the table.
ROW = "tubeq_row"
#: The columns with the partition of a row before the statement.
FROM = "tubeq_from_{}"
#: Stand for the number of a clause: a row of the table that stays, and a source row that is not inserted.
STAYS, NOWHERE = 0, -1
#: Whether a joined row has a row of the table, and one of the source.
_TABLE, _SOURCE = Column("tubeq_t", "t"), Column("tubeq_s", "s")


class StatementQuery:
    """Writes the query of a statement for DataFusion."""

    def __init__(self, statement: Statement, schema: pa.Schema, by: Sequence[str]) -> None:
        """Write the query of a statement.

        Args:
            statement: The statement.
            schema: The columns of its table.
            by: Its partition columns.
        """
        self._statement = statement
        self._clauses = [*statement.changes, *statement.inserts]
        self._schema = schema
        self._by = by

    def target(self, renderer: DataFusionRenderer) -> str:
        """The table's rows in the partitions that the statement names."""
        table = renderer.table(self._statement.table)
        conditions = [
            f"{column} IN ({', '.join(map(str, values))})"
            for column, values in self._statement.partitions.items()
        ]
        return f"SELECT * FROM {table} WHERE {' AND '.join(conditions) or 'TRUE'}"

    def joined(self, renderer: DataFusionRenderer) -> str:
        """All rows of the named partitions, and the source rows that match none of them."""
        statement = self._statement
        others = TRUE if statement.where is None else statement.where
        where = renderer.expression(all_of(*statement.on, others))
        cases = [(_when(clause), clause) for clause in statement.changes]
        cases += [(_when(clause, inserts=True), clause) for clause in statement.inserts]
        columns = self._columns(renderer, cases, "t.")
        join = "FULL" if self._statement.inserts else "LEFT"
        target = (
            f"(SELECT *, TRUE AS tubeq_t, row_number() OVER () AS {ROW} "
            f"FROM ({self.target(renderer)}))"
        )
        return (
            f"SELECT {columns}, t.{ROW} AS {ROW} FROM {target} t {join} JOIN "
            f"(SELECT *, TRUE AS tubeq_s FROM {renderer.using(statement)} tubeq_using) s ON {where}"
        )

    def inserted(self, renderer: DataFusionRenderer) -> str:
        """The source rows, if the table has no matching rows."""
        cases = [(clause.when, clause) for clause in self._statement.inserts]
        columns = self._columns(renderer, cases, None)
        return f"SELECT {columns} FROM {renderer.using(self._statement)} s"

    def _columns(
        self,
        renderer: DataFusionRenderer,
        cases: Sequence[tuple[Expression | None, Clause]],
        kept: str | None,
    ) -> str:
        """The selected columns: the clause, the new values, the old partition.

        Args:
            renderer: Writes expressions.
            cases: The condition of each clause; `None` if it always applies.
            kept: The alias of the stored row; `None` if there is none.
        """
        numbers = {id(clause): n for n, clause in enumerate(self._clauses, 1)}
        texts = [
            ("TRUE" if when is None else renderer.expression(when), clause)
            for when, clause in cases
        ]
        whens = " ".join(f"WHEN {when} THEN {numbers[id(clause)]}" for when, clause in texts)
        other = str(NOWHERE)
        if kept is not None:
            other = str(STAYS)
            if self._statement.inserts:
                other = f"CASE WHEN t.tubeq_t THEN {STAYS} ELSE {NOWHERE} END"
        found = [f"CAST(CASE {whens} ELSE {other} END AS INT) AS {CLAUSE}"]
        for field in self._schema:
            before = "NULL" if kept is None else f'{kept}"{field.name}"'
            found.append(f'{_value(renderer, field.name, texts, before)} AS "{field.name}"')
        if kept is not None:
            found += [f"{kept}{name} AS {FROM.format(name)}" for name in self._by]
        return ", ".join(found)


def _when(clause: Clause, *, inserts: bool = False) -> Expression:
    """The condition for a clause to apply to a row of the join."""
    beside = (_TABLE.is_null(),) if inserts else (_TABLE, _SOURCE)
    return all_of(*beside) if clause.when is None else all_of(*beside, clause.when)


def _value(
    renderer: DataFusionRenderer, column: str, cases: Sequence[tuple[str, Clause]], before: str
) -> str:
    values = []
    for when, clause in cases:
        value = (clause.sets or {}).get(column)
        text = before if value is None or isinstance(value, Fail) else renderer.expression(value)
        values.append((when, text))
    while values and values[-1][1] == before:
        values.pop()
    if not values:
        return before
    whens = " ".join(f"WHEN {when} THEN {value}" for when, value in values)
    return f"CASE {whens} ELSE {before} END"
