"""Applies a statement to the rows of its table: which of them it changes, and what they are afterwards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.by_row import FewRows, NotByRowError, are_few, array_of, value_of
from tubeq_spark.storage.arrow.columns import (
    are_in,
    array,
    counted,
    distinct,
    empty,
    flat,
    held,
    kept,
    numbers_from_0,
    repeated,
    taken,
    whole,
)
from tubeq_spark.storage.arrow.evaluate import column, holds, of_table
from tubeq_spark.storage.arrow.select import combined
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.expression import STALE, TRUE, Call, Case, Fail, Type, case, null, row
from tubeq_spark.storage.statement import MOST_NAMED, Affected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.arrow.columns import Partition
    from tubeq_spark.storage.arrow.evaluate import Values
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause, Statement

#: The column of a change feed that says how a row was changed.
KIND = "_change_type"
#: The column with the number of the clause that applies to a row.
_CLAUSE = "tubeq_clause"
_T = row("t")
#: The source of a statement that has no source rows of its own.
_ONE_ROW = pa.table({"one": array([1], pa.int64())})


class RefusedError(EngineError):
    """A row that a statement would change has changed since the decision; nothing was written."""

    def __init__(self) -> None:
        super().__init__(STALE, Outcome.STALE)


class Matching:
    """The matching of the rows of a table, in one part or more, with the source of a statement."""

    def __init__(self, statement: Statement, by: Sequence[str]) -> None:
        """Begin with the rows of the first part.

        Args:
            statement: The statement.
            by: The partition columns of the table.

        Raises:
            StoreError: The source is a DataFrame of Spark.
        """
        self._statement, self._by = statement, by
        self._source = _source_of(statement)
        #: The indexes of the source rows that have matched no row so far; `None` is all.
        self._others: pa.Array | None = None

    def applied(self, rows: pa.Table, *, are_last: bool = True) -> Applied:
        """Apply the statement to the next rows; with the last ones it also inserts rows.

        Args:
            rows: The rows, of the partitions that the statement reads.
            are_last: Whether no others follow.

        Raises:
            RefusedError: A row would get `FAIL`.
            NotByArrowError: Arrow cannot compute it.
            pa.ArrowException: A value cannot be computed.
        """
        places, of_source = self._matched(rows)
        source = taken(self._source, of_source)
        changed = _apply(self._statement.changes, kept(rows, places), source)
        inserted = self._inserted(rows.schema) if are_last else empty(rows.schema)
        return Applied(rows, self._by, places, changed, inserted)

    def _inserted(self, schema: pa.Schema) -> pa.Table:
        """The rows that are made of the source rows that match none."""
        clauses = self._statement.inserts
        new = self._source if self._others is None else taken(self._source, self._others)
        if self._statement.is_append and not clauses:
            return whole(new, schema)
        if not clauses or not new.num_rows:
            return empty(schema)
        nulls = [pa.nulls(new.num_rows, field.type) for field in schema]
        return _apply(clauses, pa.Table.from_arrays(nulls, schema=schema), new).after

    def _matched(self, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """The indexes of the rows that match, and the index of the source row of each."""
        nothing = array([], pa.int64())
        if not rows.num_rows:
            return nothing, nothing
        if self._others is None and are_few(rows.num_rows, self._source.num_rows):
            with suppress(NotByRowError):
                return self._matched_by_row(FewRows(rows), FewRows(self._source))
        on, where, source = self._statement.on, self._statement.where, self._source
        places, near = numbers_from_0(rows.num_rows), numbers_from_0(source.num_rows)
        if where is not TRUE:
            places = _where(places, holds(where, of_table(rows), len(places)))
        if not len(places):
            return nothing, nothing
        if not on:
            self._others = near[:0]
            return places, repeated(0, pa.int64(), len(places))
        rows = kept(rows, places)
        if source.num_rows > rows.num_rows + MOST_NAMED:
            # A part of a large table has few of the values that a large source names.
            for compared in on:
                theirs, ours = _keys([compared], rows, source)
                is_near = pc.is_in(ours, value_set=theirs)
                near, source = _where(near, is_near), source.filter(is_near)
        theirs, ours = _keys(on, rows, source)
        matched = _where(near, pc.is_in(ours, value_set=theirs))
        others = numbers_from_0(self._source.num_rows) if self._others is None else self._others
        self._others = _where(others, pc.invert(pc.is_in(others, value_set=matched)))
        of_source = pc.index_in(theirs, value_set=ours)
        return _where(places, of_source.is_valid()), taken(near, of_source.drop_null())

    def _matched_by_row(self, rows: FewRows, source: FewRows) -> tuple[pa.Array, pa.Array]:
        """As `_matched`, for a few rows. Raises NotByRowError."""
        on, where = self._statement.on, self._statement.where
        keys = [source.row(n) for n in range(len(source))]
        places = rows.where(where)
        wanted = [tuple(value_of(one.parts[1], key) for one in on) for key in keys]
        found = {}
        for place in places:
            key = tuple(value_of(one.parts[0], rows.row(place)) for one in on)
            if key in wanted:
                found[place] = wanted.index(key)
        matched = {wanted[of_source] for of_source in found.values()}
        others = [n for n, key in enumerate(wanted) if key not in matched]
        self._others = array(others, pa.int64())
        return array([*found], pa.int64()), array([*found.values()], pa.int64())


def _source_of(statement: Statement) -> pa.Table:
    """The source rows of a statement. Raises as `Matching`."""
    named, new = statement.named, statement.new
    if new is None:
        return _ONE_ROW if named is None else named
    rows = held(new)
    return rows if named is None else pa.concat_tables([rows, named], promote_options="default")


def _keys(on: Sequence[Call], rows: pa.Table, source: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The values by which rows match: of the table, and of the source.

    NULLs are equal, because a column of the table that is compared by `=` has none.
    """
    pairs = []
    for compared in on:
        of_rows, of_source = compared.parts
        right = flat(column(of_source, of_table(source), None, source.num_rows))
        left = flat(column(of_rows, of_table(rows), right.type, rows.num_rows))
        pairs.append(pa.concat_arrays([left, right]))
    keys = combined(pairs)
    return keys[: rows.num_rows], keys[rows.num_rows :]


# -- what becomes of them ----------------------------------------------------------------------------


class Applied:
    """A statement, applied to some rows of its table.

    Attributes:
        affected: The numbers of changed rows.
        inserted: The inserted rows.
    """

    def __init__(
        self,
        rows: pa.Table,
        by: Sequence[str],
        places: pa.Array,
        changed: _Changed,
        inserted: pa.Table,
    ) -> None:
        """Keep the outcome of a statement. `places` are the indexes of the rows that match."""
        self._rows, self._by, self.inserted = rows, by, inserted
        self.affected = Affected(inserted.num_rows, changed.updated, changed.removed)
        #: The rows that change, by their indexes and as they are before, and these rows afterwards.
        self._places = kept(places, changed.touched)
        self._before, self._after = kept(rows, self._places), changed.after
        self._changed = changed

    def partitions(self) -> set[Partition]:
        """The partitions of the changed rows, before and afterwards."""
        afterwards = distinct(self._after, self._by) | distinct(self.inserted, self._by)
        return distinct(self._before, self._by) | afterwards

    def rows(self, partitions: set[Partition]) -> pa.Table:
        """All rows of the changed partitions afterwards."""
        if len(self._places) == self._rows.num_rows:
            # Each row is changed, as by a take of the only task of a file.
            return pa.concat_tables([self._after, self.inserted])
        stays = are_in(self._rows, self._by, partitions)
        if len(self._places):
            numbers = numbers_from_0(self._rows.num_rows)
            stays = pc.and_not(stays, pc.is_in(numbers, value_set=self._places))
        return pa.concat_tables([self._after, _where(self._rows, stays), self.inserted])

    def feed(self) -> pa.Table:
        """The changed rows for Delta's change feed; an updated one twice, as it was and as it is."""
        goes = self._changed.goes()
        parts = {
            "insert": self.inserted,
            "update_preimage": _where(self._before, pc.invert(goes)),
            "update_postimage": self._after,
            "delete": _where(self._before, goes),
        }
        return pa.concat_tables([of_kind(part, kind) for kind, part in parts.items()])


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    """Rows for the change feed that were changed in one way, as Delta names it."""
    return rows.append_column(KIND, repeated(kind, pa.string(), rows.num_rows))


@dataclass(frozen=True, slots=True)
class _Changed:
    """Rows after the first clause that applies to each.

    Attributes:
        after: The rows of which a clause has set columns.
        touched: The indexes of the rows to which a clause applies.
        clause_of: The number of this clause, for each of them.
        removing: The numbers of the clauses that set no columns.
        updated: The number of changed rows, without rows of ended tasks that stay for the change feed.
        removed: The number of removed ones, with these rows.
    """

    after: pa.Table
    touched: pa.Array
    clause_of: pa.Array
    removing: Sequence[int]
    updated: int
    removed: int

    def goes(self) -> pa.Array:
        """For each touched row, whether it is not among those of which columns are set."""
        return pc.is_in(self.clause_of, value_set=array(self.removing, pa.int64()))


def _apply(clauses: Sequence[Clause], rows: pa.Table, source: pa.Table) -> _Changed:
    """Apply clauses to rows, each of which has a source row.

    Raises:
        RefusedError: A row would get `FAIL`.
    """
    if not rows.num_rows:
        nothing = array([], pa.int64())
        return _Changed(rows, nothing, nothing, (), 0, 0)
    clause_of = _clause_of(clauses, _Pairs(rows, source))
    counts = counted(clause_of)
    applied = {n: clauses[n] for n in counts if n is not None}
    sets = {n: clause.sets for n, clause in applied.items() if clause.sets is not None}
    if any(isinstance(value, Fail) for values in sets.values() for value in values.values()):
        raise RefusedError
    of_set = clause_of
    if len(sets) < len(counts):
        are_set = pc.is_in(clause_of, value_set=array([*sets], pa.int64()))
        rows, source, of_set = (_where(some, are_set) for some in (rows, source, clause_of))
    schema, columns = rows.schema, rows.columns
    if len(sets) > 1:
        rows = rows.append_column(_CLAUSE, of_set)
    pairs = _Pairs(rows, source)
    for name, value in _values(sets).items():
        place = schema.get_field_index(name)
        columns[place] = pairs.column(value, schema.field(place).type)
    after = pa.Table.from_arrays(columns, schema=schema)
    removed = sum(counts[n] for n, clause in applied.items() if clause.removes)
    touched = numbers_from_0(len(clause_of))
    if None in counts:
        touched = _where(touched, clause_of.is_valid())
    removing = [n for n in applied if n not in sets]
    return _Changed(
        after, touched, kept(clause_of, touched), removing, len(touched) - removed, removed
    )


def _clause_of(clauses: Sequence[Clause], pairs: _Pairs) -> pa.Array:
    """The number of the first clause that applies to each pair; NULL if none does."""
    if clauses and clauses[0].when is TRUE:
        return repeated(0, pa.int64(), pairs.count)
    whens = [(clause.when, n) for n, clause in enumerate(clauses)]
    return flat(pairs.column(case(*whens, other=null(Type.BIGINT)), pa.int64()))


def _values(sets: Mapping[int, Mapping[str, Expression]]) -> Mapping[str, Expression]:
    """The values of the set columns, of rows that have the numbers of their clauses if there are several clauses."""
    if len(sets) == 1:
        return next(iter(sets.values()))
    names = dict.fromkeys(name for values in sets.values() for name in values)
    return {
        name: case(*((_T[_CLAUSE] == n, values.get(name, _T[name])) for n, values in sets.items()))
        for name in names
    }


class _Pairs:
    """Rows of the table, each with its source row."""

    def __init__(self, rows: pa.Table, source: pa.Table) -> None:
        self.count = rows.num_rows
        self._few, self._few_source = FewRows(rows), FewRows(source)
        of_rows, of_source = of_table(rows), of_table(source)
        self._lookup = lambda of, name: (of_source if of == "s" else of_rows)(of, name)

    def column(self, value: Expression, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        """The value of each pair; those of a few pairs that need more than one kernel are computed row by row."""
        is_deep = isinstance(value, Case) or (isinstance(value, Call) and len(value.parts) > 1)
        if is_deep and are_few(self.count):
            with suppress(NotByRowError):
                few, source = self._few, self._few_source
                pairs = [few.row(place, source, place) for place in range(self.count)]
                return array_of([value_of(value, pair) for pair in pairs], kind)
        return column(value, self._lookup, kind, self.count)


def _where(rows: pa.Table | pa.Array, mask: Values) -> pa.Table | pa.Array:
    """The rows for which a mask is true. Mostly it is true for all, and nothing is copied."""
    return kept(rows, pc.indices_nonzero(mask))
