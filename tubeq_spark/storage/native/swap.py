"""Decides what a statement makes of a snapshot's rows: what a MERGE, UPDATE or DELETE would.

The rows of the partitions that it names are joined with its source by one query, which says of each
row which clause applies and what it becomes. What changed replaces the partitions that it is in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.native import partitions
from tubeq_spark.storage.native.errors import RefusedError
from tubeq_spark.storage.native.handles import schema_of
from tubeq_spark.storage.statement import FAIL, Affected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltalake import DeltaTable

    from tubeq_spark.storage.statement import Clause, Statement

__all__ = ["Decision", "condition", "decide"]

#: The place of the note, which goes into the commit's metadata.
_NOTED = re.compile(r"CAST\([\w.]+ AS STRING\) <> \{note\}( AND )?")
_CLAUSE, _ROW = "tubeq_clause", "tubeq_row"
#: In place of a clause: a row of the table that stays, and one of the source that goes nowhere.
_STAYS, _NOWHERE = 0, -1


@dataclass(frozen=True, slots=True)
class Decision:
    """What a statement changes.

    Attributes:
        affected: How many rows.
        rows: What is in the partitions that it replaces.
        predicate: Those, and what it has read.
    """

    affected: Affected
    rows: pa.Table | None = None
    predicate: str = ""

    @property
    def replacing(self) -> pa.Table:
        """What is in the replaced partitions from now on, of a statement that changes something."""
        return pa.table({}) if self.rows is None else self.rows


class DuplicateError(Exception):
    """Two rows of a source are about one row of the table."""


def condition(statement: Statement) -> str:
    """Which rows a statement finds, in Spark's dialect, without the place of the note."""
    return _NOTED.sub("", statement.where) or "TRUE"


def decide(
    statement: Statement,
    table: DeltaTable,
    name: str,
    run: Callable[[str], pa.Table],
) -> Decision:
    """Decide on a snapshot.

    Args:
        statement: The statement.
        table: The snapshot.
        name: What the table is called in a query.
        run: Runs a query in Spark's dialect.

    Raises:
        RefusedError: A row would get `FAIL`.
        DuplicateError: It is ambiguous.
    """
    schema, by = schema_of(table), table.metadata().partition_columns
    near = partitions.named(statement.partitions)
    empty = bool(by) and bool(statement.partitions) and _is_empty(table, near)
    text = _Text(statement, schema, by, f"(SELECT * FROM {name} WHERE {near})")
    if not empty:
        return _Outcome(statement, run(text.joined()), schema, by).decision()
    if not statement.using or not any(clause.inserts for clause in statement.clauses):
        return Decision(Affected())
    return _Outcome(statement, run(text.inserted()), schema, by).decision()


def _is_empty(table: DeltaTable, near: str) -> bool:
    return not table.file_uris(file_pruning_predicate=near)


class _Text:
    """The queries of a statement."""

    def __init__(
        self, statement: Statement, schema: pa.Schema, by: Sequence[str], target: str
    ) -> None:
        self._statement = statement
        self._schema = schema
        self._by = by
        self._target = target
        self._inserts = any(clause.inserts for clause in statement.clauses)

    def joined(self) -> str:
        """Every row of the table's part, and those of the source that match none of them."""
        statement = self._statement
        where = condition(statement)
        if not statement.using:
            (clause,) = statement.clauses
            cases = [(where if not clause.when else f"({where}) AND ({clause.when})", clause)]
            return f"SELECT {self._columns(cases, 't.')} FROM {self._target} t"
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
        target = f"(SELECT *, TRUE AS tubeq_t, row_number() OVER () AS {_ROW} FROM {self._target})"
        return (
            f"SELECT {self._columns(cases, 't.')}, t.{_ROW} AS {_ROW} FROM {target} t {join} JOIN "
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
            other = str(_STAYS)
            if self._inserts:
                other = f"CASE WHEN t.tubeq_t THEN {_STAYS} ELSE {_NOWHERE} END"
        found = [f"CAST(CASE {whens} ELSE {other} END AS INT) AS {_CLAUSE}"]
        found += [f"{self._value(f.name, cases, kept)} AS `{f.name}`" for f in self._schema]
        if kept is not None:
            found += [f"{kept}{name} AS tubeq_from_{name}" for name in self._by]
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


class _Outcome:
    """What a query has found."""

    def __init__(
        self, statement: Statement, found: pa.Table, schema: pa.Schema, by: Sequence[str]
    ) -> None:
        self._clauses = statement.clauses
        self._near = statement.partitions
        self._schema = schema
        self._by = by
        self._found = found
        self._clause = found.column(_CLAUSE)

    def decision(self) -> Decision:
        counts = {
            entry["values"]: entry["counts"] for entry in pc.value_counts(self._clause).to_pylist()
        }
        applied = {number: counts[number] for number in counts if number > _STAYS}
        chosen = {number: self._clauses[number - 1] for number in applied}
        if any(FAIL in (clause.sets or {}).values() for clause in chosen.values()):
            raise RefusedError
        affected = Affected(
            sum(n for i, n in applied.items() if chosen[i].inserts),
            sum(n for i, n in applied.items() if not chosen[i].inserts and chosen[i].sets),
            sum(n for i, n in applied.items() if chosen[i].sets is None),
        )
        if not affected.total:
            return Decision(affected)
        self._check(affected)
        kept = [i for i, clause in chosen.items() if clause.sets is not None]
        left = [i for i, clause in chosen.items() if not clause.inserts]
        changed = partitions.distinct(self._those(kept), self._by)
        before = [f"tubeq_from_{name}" for name in self._by]
        if left:
            changed |= partitions.distinct(self._those(left), before)
        predicate = partitions.predicate(self._by, changed, self._near)
        return Decision(affected, self._rows(changed, kept), predicate)

    def _those(self, numbers: Sequence[int]) -> pa.Table:
        wanted = pa.array(numbers, self._clause.type)
        return self._found.filter(pc.is_in(self._clause, value_set=wanted))

    def _check(self, affected: Affected) -> None:
        """Each row of the table is changed once."""
        if _ROW not in self._found.column_names or not affected.updated + affected.deleted:
            return
        rows = self._found.column(_ROW).drop_null()
        if pc.count_distinct(rows).as_py() != len(rows):
            msg = "two rows of a source are about one row of the table"
            raise DuplicateError(msg)

    def _rows(self, changed: set[partitions.Partition], kept: Sequence[int]) -> pa.Table:
        """What is in the changed partitions from now on."""
        stays = pc.and_(
            pc.equal(self._clause, _STAYS), partitions.are_in(self._found, self._by, changed)
        )
        becomes = pc.is_in(self._clause, value_set=pa.array(kept, self._clause.type))
        rows = self._found.filter(pc.or_(stays, becomes))
        return self._once(rows).select(self._schema.names).cast(self._schema)

    def _once(self, rows: pa.Table) -> pa.Table:
        """Rows of the table that several of the source match, once."""
        if _ROW not in rows.column_names or all(not c.inserts for c in self._clauses):
            return rows
        numbers = rows.column(_ROW)
        if (
            pc.count_distinct(numbers, mode="only_valid").as_py()
            == len(numbers) - numbers.null_count
        ):
            return rows
        places = pa.array(range(rows.num_rows), pa.int64())
        table = pa.table({"row": numbers, "place": places})
        firsts = table.filter(pc.is_valid(numbers)).group_by("row").aggregate([("place", "min")])
        new = places.filter(pc.is_null(numbers).combine_chunks())
        return rows.take(pa.concat_arrays([firsts.column("place_min").combine_chunks(), new]))
