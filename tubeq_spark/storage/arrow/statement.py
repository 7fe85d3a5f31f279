"""Applies a statement to the rows of its table: finds the clause for each row, and the row after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.columns import (
    array,
    flat,
    numbers_from_0,
    repeated,
    scalar,
    source_table,
    taken,
)
from tubeq_spark.storage.arrow.evaluate import NotByArrowError, column, holds, of_table
from tubeq_spark.storage.arrow.select import numbered
from tubeq_spark.storage.expression import TRUE, Compared, Fail
from tubeq_spark.storage.query import aliases_of, conditions_of
from tubeq_spark.storage.statement import MOST_NAMED, ONE_ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.arrow.evaluate import Lookup, Values
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause, Statement

#: The column with the number of the clause that applies to a row, from 1 on.
CLAUSE = "tubeq_clause"
#: The column that numbers the rows of the table.
ROW = "tubeq_row"
#: The columns with the partition of a row before the statement.
FROM = "tubeq_from_{}"
#: Stand for the number of a clause: a row of the table that stays, and a source row that is not inserted.
STAYS, NOWHERE = 0, -1
#: The most pairs of rows with equal keys, or in a statement without keys, that are compared.
_PAIRS = 4_000_000


def _has_source(statement: Statement) -> bool:
    """Whether a statement reads a source besides its table."""
    return statement.inserts or statement.using not in (None, ONE_ROW)


def inserted_alone(statement: Statement, schema: pa.Schema) -> pa.Table | None:
    """The rows that a statement inserts if its table has no rows.

    Args:
        statement: The statement.
        schema: The columns of the table.

    Returns:
        The rows; `None` if not all source rows are inserted in the same way, so that `changed` must find the clause of
        each.

    Raises:
        NotByArrowError: Arrow cannot compute it.
        pa.ArrowException: A value cannot be computed.
    """
    inserting = [clause for clause in statement.clauses if clause.inserts]
    sets = (inserting[0].sets or {}) if len(inserting) == 1 and inserting[0].when is None else None
    if sets is None or any(isinstance(value, Fail) for value in sets.values()):
        return None
    source = source_table(statement.using or ONE_ROW)
    lookup, count = of_table(source), source.num_rows
    columns = [
        column(sets[f.name], lookup, f.type, count) if f.name in sets else pa.nulls(count, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _rows_after(
    rows: pa.Table,
    lookup: Lookup,
    places: pa.Array,
    by: Sequence[str],
    clauses: Sequence[Clause] = (),
    where: pa.ChunkedArray | pa.Array | None = None,
) -> pa.Table:
    """Rows of a table after the first clause that applies to each.

    Args:
        rows: The rows.
        lookup: Their columns, and those of their source rows, if they have some.
        places: Their indexes in the table.
        by: The table's partition columns.
        clauses: The clauses.
        where: The rows to which a clause may apply; `None` is all.
    """
    left = _all(rows.num_rows) if where is None else where
    before = {name: rows.column(name) for name in rows.column_names}
    matching = [(n, c) for n, c in enumerate(clauses, 1) if not c.inserts]
    number, columns = _after(matching, lookup, before, left, STAYS)
    columns |= {CLAUSE: number, ROW: places}
    columns |= {FROM.format(name): rows.column(name) for name in by}
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows of the table or of the source, with the selection of those that may match."""

    rows: pa.Table
    places: pa.Array

    def where(self, conditions: Iterable[Expression]) -> _Side:
        """Select the rows that match some conditions."""
        side = self
        for condition in conditions:
            if not len(side.places):
                break
            kept = holds(condition, side._lookup(), len(side.places))
            side = _Side(side.rows, taken(side.places, pc.indices_nonzero(kept)))
        return side

    def values(self, expressions: Sequence[Expression]) -> list[pa.Array]:
        """The values of some expressions for the selected rows."""
        lookup, count = self._lookup(), len(self.places)
        return [flat(column(each, lookup, None, count)) for each in expressions]

    def _lookup(self) -> Lookup:
        """The columns of the selected rows."""
        columns = of_table(self.rows)
        if len(self.places) == self.rows.num_rows:
            return columns
        return lambda alias, name: taken(columns(alias, name), self.places)


class Matching:
    """The matching of the rows of a table, in one part or more, with those of a statement's source."""

    def __init__(self, statement: Statement, by: Sequence[str]) -> None:
        """Begin with the rows of the first part.

        Args:
            statement: The statement.
            by: The table's partition columns.
        """
        self._statement = statement
        self._by = by
        self._source = source_table(statement.using or ONE_ROW)
        #: The indexes of the source rows that have matched no row so far.
        self._new = numbers_from_0(self._source.num_rows)

    def changed(self, rows: pa.Table, *, are_last: bool = True) -> pa.Table:
        """The next rows of the table after the statement; with the last ones also the rows that it inserts.

        Args:
            rows: The rows, of the partitions that the statement names.
            are_last: Whether no others follow.

        Returns:
            The columns of the table, with `CLAUSE`, `ROW`, and `FROM` of each partition column.

        Raises:
            NotByArrowError: Arrow cannot compute it.
            pa.ArrowException: A value cannot be computed.
        """
        self._rows, self._schema = rows, rows.schema
        if not _has_source(self._statement):
            lookup, count = of_table(rows), rows.num_rows
            where = holds(self._statement.where, lookup, count)
            clauses = self._statement.clauses
            return _rows_after(rows, lookup, numbers_from_0(count), self._by, clauses, where)
        parts: list[pa.Table] = []
        if rows.num_rows:
            targets, sources = self._pairs()
            self._new = _without(self._new, sources)
            parts += self._of_table(targets, sources)
        if are_last and self._statement.inserts and len(self._new):
            parts.append(self._inserted(taken(self._source, self._new)))
        return pa.concat_tables(parts) if parts else self._inserted(self._source.slice(0, 0))

    def _of_table(self, targets: pa.Array, sources: pa.Array) -> Iterator[pa.Table]:
        """The rows of the table, first those that match source rows."""
        if len(targets):
            rows = taken(self._rows, targets)
            lookup = self._beside(targets, sources)
            yield once(_rows_after(rows, lookup, targets, self._by, self._statement.clauses))
        places = _without(numbers_from_0(self._rows.num_rows), targets)
        if len(targets) and not len(places):
            return
        others = taken(self._rows, places) if len(targets) else self._rows
        yield _rows_after(others, of_table(others), places, self._by)

    def _pairs(self) -> tuple[pa.Array, pa.Array]:
        """The indexes of matching rows, in the table and in the source."""
        alone: dict[str, list[Expression]] = {"t": [], "s": []}
        keys: list[_Key] = []
        rest: list[Expression] = []
        for condition in conditions_of(self._statement.where):
            key = _key(condition)
            if key is not None:
                keys.append(key)
                continue
            aliases = aliases_of(condition)
            if len(aliases) == 1:
                alone[next(iter(aliases))].append(condition)
            elif condition is not TRUE:
                rest.append(condition)
        table = _Side(self._rows, numbers_from_0(self._rows.num_rows))
        source = _Side(self._source, numbers_from_0(self._source.num_rows))
        table, source = table.where(alone["t"]), source.where(alone["s"])
        targets, sources = _joined(table, source, keys)
        for condition in rest:
            if not len(targets):
                break
            lookup = self._beside(targets, sources)
            kept = pc.indices_nonzero(holds(condition, lookup, len(targets)))
            targets, sources = taken(targets, kept), taken(sources, kept)
        return targets, sources

    def _beside(self, targets: pa.Array, sources: pa.Array) -> Lookup:
        """The columns of matched pairs of rows, which are only made when they are read."""
        table, source = of_table(self._rows), of_table(self._source)

        def lookup(alias: str, name: str) -> Values:
            if alias == "s":
                return taken(source(alias, name), sources)
            return taken(table(alias, name), targets)

        return lookup

    def _inserted(self, rows: pa.Table) -> pa.Table:
        """The source rows as the first clause that applies inserts them."""
        schema = self._schema
        count = rows.num_rows
        before: dict[str, Values] = {f.name: pa.nulls(count, f.type) for f in schema}
        inserting = [(n, c) for n, c in enumerate(self._statement.clauses, 1) if c.inserts]
        # With one clause, the rows that it does not insert are dropped later, so their values do not matter.
        number, columns = _after(
            inserting,
            of_table(rows),
            before,
            _all(count),
            NOWHERE,
            keeps_others=len(inserting) > 1,
        )
        columns |= {CLAUSE: number, ROW: pa.nulls(count, pa.int64())}
        for name in self._by:
            columns[FROM.format(name)] = pa.nulls(count, schema.field(name).type)
        return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _without(places: pa.Array, others: pa.Array) -> pa.Array:
    """Some indexes without others."""
    if not len(others):
        return places
    return places.filter(pc.invert(pc.is_in(places, value_set=others)))


@dataclass(frozen=True, slots=True)
class _Key:
    """A value of a table row and a value of a source row that must be equal, or both NULL."""

    table: Expression
    source: Expression
    matches_nulls: bool


def _key(condition: Expression) -> _Key | None:
    """The key that a condition compares; `None` if it is another condition."""
    if not isinstance(condition, Compared) or condition.sign not in {"=", "<=>"}:
        return None
    aliases = aliases_of(condition.left), aliases_of(condition.right)
    nulls = condition.sign == "<=>"
    if aliases == ({"t"}, {"s"}):
        return _Key(condition.left, condition.right, nulls)
    return _Key(condition.right, condition.left, nulls) if aliases == ({"s"}, {"t"}) else None


def _joined(table: _Side, source: _Side, keys: Sequence[_Key]) -> tuple[pa.Array, pa.Array]:
    """The indexes of the rows whose keys match, as pairs."""
    for key in keys if len(source.places) > len(table.places) + MOST_NAMED else ():
        # A part of a large table has few of the values that a large source names.
        theirs, named = _of_one_type(*table.values([key.table]), *source.values([key.source]))
        near = pc.indices_nonzero(pc.is_in(named, value_set=theirs))
        source = _Side(source.rows, taken(source.places, near))
    left, right = _numbers(table, source, keys)
    kept = pc.indices_nonzero(right.is_valid())
    places, right = taken(source.places, kept), taken(right, kept)
    if not (len(left) and len(right)):
        return table.places[:0], places[:0]
    # The indexes of the source rows, in one list for each number.
    order = pc.sort_indices(right)
    each = pc.value_counts(right.take(order))
    ends = pc.cumulative_sum(each.field("counts"))
    offsets = pa.concat_arrays([repeated(0, pa.int32(), 1), ends.cast(pa.int32())])
    lists = pa.ListArray.from_arrays(offsets, places.take(order))
    at = pc.index_in(left, value_set=each.field("values"))
    pairs = pc.sum(each.field("counts").take(at)).as_py() or 0
    if pairs > max(_PAIRS, len(left), len(right)):
        msg = "each row with each"
        raise NotByArrowError(msg)
    found = lists.take(at)
    return table.places.take(pc.list_parent_indices(found)), pc.list_flatten(found)


def _numbers(table: _Side, source: _Side, keys: Sequence[_Key]) -> tuple[pa.Array, pa.Array]:
    """A number for the keys of each row; NULL if a key is NULL that does not match NULLs."""
    count = len(table.places)
    numbers = repeated(0, pa.int32(), count + len(source.places))
    if keys and len(numbers):
        values = [
            pa.concat_arrays(_of_one_type(*both))
            for both in zip(
                table.values([key.table for key in keys]),
                source.values([key.source for key in keys]),
                strict=True,
            )
        ]
        numbers = numbered(values)
        for key, each in zip(keys, values, strict=True):
            if each.null_count and not key.matches_nulls:
                numbers = pc.if_else(each.is_valid(), numbers, pa.nulls(1, numbers.type)[0])
    return numbers[:count], numbers[count:]


def _of_one_type(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    if left.type == right.type:
        return left, right
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        return left.cast(pa.int64()), right.cast(pa.int64())
    msg = f"{left.type} beside {right.type}"
    raise NotByArrowError(msg)


def _after(
    clauses: Iterable[tuple[int, Clause]],
    lookup: Lookup,
    before: Mapping[str, Values],
    left: pa.ChunkedArray | pa.Array,
    other: int,
    *,
    keeps_others: bool = True,
) -> tuple[Values, dict[str, Values]]:
    """Apply to each row the first of some clauses whose condition holds.

    Args:
        clauses: The clauses, with their numbers.
        lookup: The columns that their expressions read.
        before: The columns of the table before the statement.
        left: The rows to which the clauses may apply.
        other: The number for rows to which no clause applies.
        keeps_others: Whether these rows keep their values.

    Returns:
        The number of the clause for each row, and the columns after it.
    """
    count, columns = len(left), dict(before)
    number: Values = repeated(other, pa.int32(), count)
    for n, clause in clauses:
        applies = left
        if clause.when is not None:
            applies = pc.and_(left, holds(clause.when, lookup, count))
        left = pc.and_not(left, applies)
        number = pc.if_else(applies, scalar(n, pa.int32()), number)
        for name, value in (clause.sets or {}).items():
            if isinstance(value, Fail):
                continue
            after = column(value, lookup, columns[name].type, count)
            columns[name] = pc.if_else(applies, after, columns[name]) if keeps_others else after
    return number, columns


def _all(count: int) -> pa.Array:
    """An array of `count` times True."""
    return repeated(True, pa.bool_(), count)  # noqa: FBT003  (the value is the point)


def once(rows: pa.Table) -> pa.Table:
    """Rows of the table without duplicates: a row that several source rows match occurs once, as changed if it is."""
    if len(rows.column(ROW).unique()) == rows.num_rows:
        return rows
    numbers = rows.column(ROW).to_pylist()
    clauses = rows.column(CLAUSE).to_pylist()
    done = {n for n, clause in zip(numbers, clauses, strict=True) if clause != STAYS}
    chosen = []
    for place, (number, clause) in enumerate(zip(numbers, clauses, strict=True)):
        if clause != STAYS or number not in done:
            done.add(number)
            chosen.append(place)
    return rows.take(array(chosen, pa.int64()))
