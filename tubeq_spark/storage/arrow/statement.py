"""Applies a statement to the rows of its table: which of them it changes, and what they are afterwards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.by_row import (
    FewRows,
    NotByRowError,
    are_few,
    array_of,
    first_clause,
    value_of,
)
from tubeq_spark.storage.arrow.columns import (
    are_in,
    array,
    distinct,
    empty,
    flat,
    held,
    kept,
    numbers_from_0,
    repeated,
    taken,
)
from tubeq_spark.storage.arrow.evaluate import column, holds, of_table
from tubeq_spark.storage.arrow.select import numbered
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.expression import STALE, Column, Fail
from tubeq_spark.storage.statement import MOST_NAMED, Affected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.arrow.by_row import Read
    from tubeq_spark.storage.arrow.columns import Partition
    from tubeq_spark.storage.arrow.evaluate import Lookup, Values
    from tubeq_spark.storage.expression import Compared, Expression
    from tubeq_spark.storage.statement import Clause, Statement

#: The column of a change feed that says how a row was changed.
KIND = "_change_type"
#: A mask of no rows.
_NO_MASK = array([], pa.bool_())
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
        places, changed = self._changed(rows)
        inserted = empty(rows.schema)
        if are_last and self._statement.inserts:
            others = self._source if self._others is None else taken(self._source, self._others)
            if others.num_rows:
                inserted = _inserted(self._statement.inserts, others, rows.schema)
        return Applied(rows, self._by, places, changed, inserted)

    def _changed(self, rows: pa.Table) -> tuple[pa.Array, _Changed | None]:
        """The indexes of the rows that match, and what becomes of them, if there are some."""
        if not rows.num_rows:
            return array([], pa.int64()), None
        if self._others is None and are_few(rows.num_rows, self._source.num_rows):
            with suppress(NotByRowError):
                return self._changed_by_row(rows)
        places, of_source = self._matched(rows)
        if not len(places):
            return places, None
        before, source = kept(rows, places), taken(self._source, of_source)
        return places, _apply(self._statement.changes, _pairs(before, source), before)

    def _changed_by_row(self, rows: pa.Table) -> tuple[pa.Array, _Changed | None]:
        """As `_changed`, for a few rows. Raises NotByRowError."""
        statement, few, source = self._statement, FewRows(rows), FewRows(self._source)
        places = range(len(few)) if statement.where is None else few.where(statement.where)
        keys: list[tuple[Any, ...]] = [()]
        if statement.on:
            keys = list(
                zip(*(source.column(_source_column(one)) for one in statement.on), strict=True)
            )
        pairs = []
        for place in places:
            key = tuple(value_of(one.left, few.row(place)) for one in statement.on)
            if key in keys:
                pairs.append((place, keys.index(key)))
        matched = {keys[of_source] for _, of_source in pairs}
        others = [n for n, key in enumerate(keys) if key not in matched]
        self._others = array(others, pa.int64())
        found = array([place for place, _ in pairs], pa.int64())
        if not pairs:
            return found, None
        reads = [few.row(place, source, of_source) for place, of_source in pairs]
        return found, _apply_by_row(statement.changes, reads, kept(rows, found))

    def _matched(self, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """The indexes of the rows that match, and the index of the source row of each."""
        on, where, source = self._statement.on, self._statement.where, self._source
        nothing = array([], pa.int64())
        places, near = numbers_from_0(rows.num_rows), numbers_from_0(source.num_rows)
        if where is not None:
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


def _source_of(statement: Statement) -> pa.Table:
    """The source rows of a statement. Raises as `Matching`."""
    named, new = statement.named, statement.new
    if new is None:
        return _ONE_ROW if named is None else named
    rows = held(new)
    return rows if named is None else pa.concat_tables([rows, named], promote_options="default")


def _source_column(compared: Compared) -> str:
    """The column of the source that a comparison names. Raises NotByRowError."""
    if not isinstance(compared.right, Column):
        raise NotByRowError("a computed value of the source")
    return compared.right.name


def _keys(on: Sequence[Compared], rows: pa.Table, source: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The values by which rows match: of the table, and of the source.

    NULLs are equal, because a column of the table that is compared by `=` has none.
    """
    pairs = []
    for compared in on:
        right = flat(column(compared.right, of_table(source), None, source.num_rows))
        left = flat(column(compared.left, of_table(rows), right.type, rows.num_rows))
        pairs.append(pa.concat_arrays([left, right]))
    keys = pairs[0] if len(pairs) == 1 else numbered(pairs)
    return keys[: rows.num_rows], keys[rows.num_rows :]


def _pairs(rows: pa.Table, source: pa.Table) -> Lookup:
    """The columns of rows of the table, and of the source row of each."""
    of_rows, of_source = of_table(rows), of_table(source)
    return lambda alias, name: (of_source if alias == "s" else of_rows)(alias, name)


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
        changed: _Changed | None,
        inserted: pa.Table,
    ) -> None:
        """Hold the result for some rows, and for those of them that match, if any, which are at some places."""
        self._rows, self._by, self.inserted = rows, by, inserted
        self.affected = Affected(inserted.num_rows)
        #: The rows that change, by their indexes and as they are before, and these rows afterwards.
        none = empty(rows.schema)
        self._places, self._before, self._after, self._is_removed = places[:0], none, none, _NO_MASK
        if changed is not None and (changed.updated or changed.removed):
            self.affected = Affected(inserted.num_rows, changed.updated, changed.removed)
            touched = pc.or_(changed.is_set, changed.is_removed)
            self._places = _where(places, touched)
            self._before = kept(rows, self._places)
            self._is_removed = _where(changed.is_removed, touched)
            self._after = _where(changed.rows, changed.is_set)

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
        parts = {
            "insert": self.inserted,
            "update_preimage": _where(self._before, pc.invert(self._is_removed)),
            "update_postimage": self._after,
            "delete": _where(self._before, self._is_removed),
        }
        return pa.concat_tables([of_kind(part, kind) for kind, part in parts.items()])


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    """Rows for the change feed that were changed in one way, as Delta names it."""
    return rows.append_column(KIND, repeated(kind, pa.string(), rows.num_rows))


@dataclass(frozen=True, slots=True)
class _Changed:
    """Rows after the first clause that applies to each.

    Attributes:
        rows: All rows, also removed ones and those to which no clause applies, as they were.
        is_set: Whether a clause has set columns of a row.
        is_removed: Whether a clause has removed it.
        updated: The number of the former, without rows of ended tasks that stay for the change feed.
        removed: The number of the latter, with these rows.
    """

    rows: pa.Table
    is_set: Values
    is_removed: Values
    updated: int
    removed: int


def _apply(clauses: Sequence[Clause], lookup: Lookup, rows: pa.Table) -> _Changed:
    count, columns = rows.num_rows, rows.columns
    left = repeated(True, pa.bool_(), count)  # noqa: FBT003  (the value is the point)
    is_removed = is_set = pc.invert(left)
    updated = removed = 0
    for clause in clauses:
        applies = left
        if clause.when is not None:
            applies = pc.and_(left, holds(clause.when, lookup, count))
        hits = pc.sum(applies).as_py() or 0
        if not hits:
            continue
        left = pc.and_not(left, applies)
        if clause.removes:
            removed += hits
        else:
            updated += hits
        if clause.sets is None:
            is_removed = pc.or_(is_removed, applies)
            continue
        is_set = pc.or_(is_set, applies)
        _refuse_failing(clause.sets)
        for name, value in clause.sets.items():
            place = rows.schema.get_field_index(name)
            after = column(value, lookup, rows.schema.field(place).type, count)
            columns[place] = after if hits == count else pc.if_else(applies, after, columns[place])
    after = pa.Table.from_arrays(columns, schema=rows.schema)
    return _Changed(after, is_set, is_removed, updated, removed)


def _apply_by_row(clauses: Sequence[Clause], reads: Sequence[Read], rows: pa.Table) -> _Changed:
    """As `_apply`, for a few rows. Raises NotByRowError."""
    set_values: list[dict[str, Any]] = []
    is_removed, removed = [], 0
    for read in reads:
        clause = first_clause(clauses, read)
        is_removed.append(clause is not None and clause.sets is None)
        removed += clause is not None and clause.removes
        sets = (None if clause is None else clause.sets) or {}
        _refuse_failing(sets)
        set_values.append({name: value_of(value, read) for name, value in sets.items()})
    columns, before = rows.columns, FewRows(rows)
    for name in dict.fromkeys(name for values in set_values for name in values):
        place, kind = rows.schema.get_field_index(name), rows.schema.field(name).type
        if all(name in values for values in set_values):
            after = [values[name] for values in set_values]
        else:
            pairs = zip(set_values, before.column(name), strict=True)
            after = [values.get(name, stored) for values, stored in pairs]
        columns[place] = array_of(after, kind)
    is_set = [bool(values) for values in set_values]
    return _Changed(
        pa.Table.from_arrays(columns, schema=rows.schema),
        array(is_set, pa.bool_()),
        array(is_removed, pa.bool_()),
        sum(is_set) + sum(is_removed) - removed,
        removed,
    )


def _refuse_failing(sets: Mapping[str, Expression]) -> None:
    """Raise RefusedError if a column would get `FAIL`."""
    if any(isinstance(value, Fail) for value in sets.values()):
        raise RefusedError


def _inserted(clauses: Sequence[Clause], source: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows that the first clause that applies makes of each source row."""
    lookup, count, first = of_table(source), source.num_rows, clauses[0]
    if first.when is not None:
        columns = [pa.nulls(count, f.type) for f in schema]
        new = _apply(clauses, lookup, pa.Table.from_arrays(columns, schema=schema))
        return _where(new.rows, new.is_set)
    # A put of one task has one such clause, and should cost little.
    sets = first.sets or {}
    _refuse_failing(sets)
    columns = [
        column(sets[field.name], lookup, field.type, count)
        if field.name in sets
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _where(rows: pa.Table | pa.Array, mask: Values) -> pa.Table | pa.Array:
    """The rows for which a mask is true. Mostly it is true for all, and nothing is copied."""
    return kept(rows, pc.indices_nonzero(mask))
