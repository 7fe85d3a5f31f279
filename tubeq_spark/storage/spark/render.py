"""Writes queries, statements and expressions as Spark SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.clock import US
from tubeq_spark.storage import expression as nodes
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array, records
from tubeq_spark.storage.expression import STALE, Expression, Type, all_of
from tubeq_spark.storage.query import Aggregate, Among, Select, Struct, Union
from tubeq_spark.storage.spark.quoting import bigint, limited, moment, string
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tubeq_spark.storage.query import Node, Query
    from tubeq_spark.storage.statement import Clause, Source, Statement
    from tubeq_spark.storage.tables.schema import NewTable

#: The operators whose parts are conditions.
_JOINS = ("AND", "OR")
#: The functions by their names in expressions. All other calls are operators.
_FUNCTIONS = {
    "greatest": "greatest({})",
    "lower": "lower({})",
    "length": "length({})",
    "before": "substring_index({}, '/', 1)",
    "micros": "unix_micros({})",
    "moment": "timestamp_micros({})",
}
#: The name of a source, in braces in the text.
_SOURCE = "rows"
#: The types of literals, by those of Arrow; and of partition columns that are no BIGINT.
_TYPES = {arrow: kind for kind, arrow in ARROW_TYPES.items()}
_KINDS = {"bucket": Type.INT}


class Renderer:
    """Renders one query or statement; `sources` are the names in braces in its text.

    The note of a statement is a name in braces, too.
    """

    def __init__(self) -> None:
        """Begin without sources."""
        self.sources: dict[str, Source] = {}

    # -- queries ------------------------------------------------------------------------------

    def query(self, query: Query) -> str:
        """The text of a query."""
        if isinstance(query, Union):
            return " UNION ALL ".join(map(self.query, query.selects))
        text = f"SELECT {self.selected(query.columns)} FROM {self.table(query.table)}"
        if query.where is not nodes.TRUE:
            text += f" WHERE {self.expression(query.where)}"
        if query.by is not None:
            places = {name: str(place) for place, name in enumerate(query.columns, 1)}
            text += f" GROUP BY {', '.join(places.get(name, name) for name in query.by)}"
        if query.having is not nodes.TRUE:
            text += f" HAVING {self.expression(query.having)}"
        if query.quotas is not None:
            text = self._firsts(query, text, query.quotas)
        if query.order:
            text += f" ORDER BY {self.order(query.order, descending=query.descending)}"
        return text if query.limit is None else f"{text} {limited(query.limit)}"

    def order(self, columns: Sequence[str], *, descending: bool = False) -> str:
        """Columns to sort by; NULL is less than all values."""
        return ", ".join(f"{name}{' DESC' * descending}" for name in columns)

    def table(self, name: str) -> str:
        """The name of a table."""
        return name

    def selected(self, columns: Mapping[str, Expression]) -> str:
        """The selected expressions with their names."""
        return ", ".join(
            name
            if isinstance(value, nodes.Column) and value.name == name
            else f"{self.expression(value)} AS {name}"
            for name, value in columns.items()
        )

    def _firsts(self, query: Select, rows: str, quotas: Mapping[str | None, int]) -> str:
        """The first rows of each sub-queue among the rows of a text."""
        place = f"row_number() OVER (PARTITION BY utube ORDER BY {self.order(query.order)})"
        usual = max(quotas.values())
        others = "".join(
            f"WHEN utube <=> {string(utube)} THEN {quota} "
            for utube, quota in quotas.items()
            if quota != usual
        )
        quota = f"CASE {others}ELSE {usual} END" if others else str(usual)
        return (
            f"SELECT {', '.join(query.columns)} FROM (SELECT *, {place} AS tubeq_place "
            f"FROM ({rows})) WHERE tubeq_place <= {quota}"
        )

    # -- statements ---------------------------------------------------------------------------

    def statement(self, statement: Statement) -> str:
        """The text of a statement: a MERGE, or the DELETE of whole partitions.

        The note is part of the predicate, which the history of the table shows. Only a writer could set user metadata
        by an option. A MERGE or a DELETE takes them from a setting of the session, which all its threads
        share, also those of the program. The note is in a condition on a partition column, so it costs nothing, and a
        DELETE of whole partitions still changes only metadata. No optimiser simplifies the condition.
        """
        by = nodes.Column(statement.by, "t")
        condition = all_of(*statement.on, statement.where)
        if statement.reads:
            kind = _KINDS.get(statement.by, Type.BIGINT)
            condition = by.is_in(nodes.Literal(of, kind) for of in statement.reads) & condition
        where = f"CAST({self.expression(by)} AS STRING) <> {{note}}"
        if condition is not nodes.TRUE:
            where += f" AND {self._part(condition)}"
        if statement.removes_partitions:
            return f"DELETE FROM {statement.table} t WHERE {where}"
        clauses = [*map(self._change, statement.changes), *map(self._insert, statement.inserts)]
        using = self.using(statement)
        return f"MERGE INTO {statement.table} t USING {using} s ON {where} {' '.join(clauses)}"

    def _change(self, clause: Clause) -> str:
        when = f"WHEN MATCHED{self._when(clause)} THEN"
        if clause.sets is None:
            return f"{when} DELETE"
        sets = (f"{name} = {self.expression(value)}" for name, value in clause.sets.items())
        return f"{when} UPDATE SET {', '.join(sets)}"

    def _insert(self, clause: Clause) -> str:
        sets = clause.sets or {}
        values = ", ".join(map(self.expression, sets.values()))
        return f"WHEN NOT MATCHED{self._when(clause)} THEN INSERT ({', '.join(sets)}) VALUES ({values})"

    def _when(self, clause: Clause) -> str:
        return "" if clause.when is nodes.TRUE else f" AND {self._part(clause.when)}"

    def using(self, statement: Statement) -> str:
        """The source of a statement."""
        named, new = statement.named, statement.new
        if named is None:
            return "(SELECT 1 AS one)" if new is None else self._source(new)
        # One inline table, because Spark analyses a UNION ALL of SELECTs branch by branch: seconds for 200.
        rows = f"{self.inline(named)} AS rows({', '.join(named.column_names)})"
        if new is None:
            return self._source(named) if named.num_rows > MOST_NAMED else f"(SELECT * FROM {rows})"
        known = new.column_names if isinstance(new, pa.Table) else new.columns
        names = dict.fromkeys([*known, *named.column_names])

        def columns(there: Sequence[str]) -> str:
            return ", ".join(name if name in there else f"NULL AS {name}" for name in names)

        return (
            f"(SELECT {columns(known)} FROM {self._source(new)} "
            f"UNION ALL SELECT {columns(named.column_names)} FROM {rows})"
        )

    def inline(self, rows: pa.Table) -> str:
        """Rows as an inline table."""
        columns = [self._literals(rows, name) for name in rows.column_names]
        rows = (f"({', '.join(row)})" for row in zip(*columns, strict=True))
        return f"VALUES {', '.join(rows)}"

    def _literals(self, rows: pa.Table, name: str) -> list[str]:
        """The values of a column."""
        kind = _TYPES[rows.schema.field(name).type]
        values = (row[name] for row in records(rows.select([name])))
        return [self.literal(nodes.Literal(value, kind)) for value in values]

    def _source(self, rows: Source) -> str:
        name = _SOURCE if not self.sources else f"{_SOURCE}{len(self.sources)}"
        self.sources[name] = rows
        return self.source(name)

    def source(self, name: str) -> str:
        """The name of a source."""
        return f"{{{name}}}"

    # -- expressions --------------------------------------------------------------------------

    def _part(self, expression: Expression) -> str:
        """An expression as a part of AND or OR."""
        text = self.expression(expression)
        is_joined = isinstance(expression, nodes.Call) and expression.function in _JOINS
        return f"({text})" if is_joined else text

    def operand(self, expression: Expression) -> str:
        """An expression as an operand of any other operator."""
        text = self.expression(expression)
        is_called = isinstance(expression, nodes.Call) and expression.function in _FUNCTIONS
        is_operator = isinstance(expression, (nodes.Call, nodes.In)) and not is_called
        return f"({text})" if is_operator else text

    def expression(self, expression: Expression) -> str:  # noqa: PLR0911  (one of each)
        """The text of an expression."""
        each: Node = expression  # type: ignore[assignment]
        match each:
            case nodes.Column(name, of):
                return f"{of}.{name}" if of else name
            case nodes.Literal() as literal:
                return self.literal(literal)
            case nodes.Call(function, parts):
                return self.call(function, parts)
            case nodes.In(part, values):
                return f"{self.operand(part)} IN ({', '.join(map(self.literal, values))})"
            case Among() as among:
                return self.among(among)
            case nodes.Case(branches, other):
                return self._case(branches, other)
            case Struct(fields):
                return f"struct({self.selected(fields)})"
            case Aggregate() as aggregate:
                return self.aggregate(aggregate)
            case nodes.Fail():
                return f"raise_error('{STALE}')"

    def call(self, function: str, parts: Sequence[Expression]) -> str:
        """The text of a function or an operator."""
        if function in _FUNCTIONS:
            return _FUNCTIONS[function].format(", ".join(map(self.expression, parts)))
        if function in _JOINS:
            return f" {function} ".join(map(self._part, parts))
        texts = [self.operand(part) for part in parts]
        if len(texts) > 1:
            return f" {function} ".join(texts)
        if function == "seconds":
            return f"{texts[0]} / {US}D"
        return f"NOT {texts[0]}" if function == "NOT" else f"{texts[0]} {function}"

    def _case(
        self, branches: Sequence[tuple[Expression, Expression]], other: Expression | None
    ) -> str:
        cases = " ".join(
            f"WHEN {self.expression(when)} THEN {self.expression(value)}"
            for when, value in branches
        )
        default = "" if other is None else f" ELSE {self.expression(other)}"
        return f"CASE {cases}{default} END"

    def literal(self, literal: nodes.Literal) -> str:  # noqa: PLR0911  (one of each)
        """The text of a literal."""
        value: Any = literal.value
        if value is None:
            return f"CAST(NULL AS {literal.type})"
        match literal.type:
            case Type.BIGINT:
                return bigint(value)
            case Type.INT:
                return str(int(value))
            case Type.STRING:
                return string(value)
            case Type.DOUBLE:
                return f"{float(value)!r}D"
            case Type.BOOLEAN:
                return "TRUE" if value else "FALSE"
            case Type.TIMESTAMP:
                return moment(value)
            case Type.COUNTS:
                return self.counts(value)

    def counts(self, value: Mapping[str, int]) -> str:
        """The text of a map from names to numbers."""
        pairs = ", ".join(f"{string(name)}, {bigint(number)}" for name, number in value.items())
        return f"map({pairs})" if pairs else f"CAST(map() AS {Type.COUNTS})"

    def among(self, among: Among) -> str:
        """The text of a condition about many values."""
        wanted = pa.table({"wanted": array(list(among.values), ARROW_TYPES[among.type])})
        part = self.expression(among.part)
        return f"EXISTS (SELECT 1 FROM {self._source(wanted)} WHERE wanted <=> {part})"

    def aggregate(self, aggregate: Aggregate) -> str:
        """The text of an aggregate."""
        part = self.expression(aggregate.part)
        if aggregate.by is not None:
            part += f", {self.expression(aggregate.by)}"
        return f"{aggregate.function}({part})"


def creation_of(table: NewTable) -> str:
    """The statement that creates a table if it does not exist."""
    by = f"PARTITIONED BY ({', '.join(table.partitions)}) " if table.partitions else ""
    properties = (f"{string(key)} = {string(value)}" for key, value in table.properties.items())
    columns = (
        f"{name} {kind} COMMENT {string(text)}" for name, (kind, text) in table.columns.items()
    )
    return (
        f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(columns)}) USING delta {by}"
        f"TBLPROPERTIES ({', '.join(properties)})"
    )


def view_of_taken_utubes(table: str) -> str:
    """The statement that creates the view of a tube's taken sub-queues, unless it exists."""
    return (
        f"CREATE VIEW IF NOT EXISTS {table[:-1]}_taken_utubes` AS SELECT utube, count(*) AS taken, max(since) AS last_begun"
        f" FROM {table} WHERE state = {string(TaskState.TAKEN.value)} GROUP BY utube"
    )


def text_of(expression: Expression) -> str:
    """The text of an expression without a source."""
    return Renderer().expression(expression)
