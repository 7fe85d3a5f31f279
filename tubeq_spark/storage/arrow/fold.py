"""Answers a query over many rows part by part. It holds one part at a time, and the result so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from tubeq_spark.storage.arrow.columns import empty
from tubeq_spark.storage.arrow.select import answer
from tubeq_spark.storage.expression import TRUE, Column
from tubeq_spark.storage.query import (
    Aggregate,
    Function,
    Select,
    column_names_in,
    has_aggregates,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tubeq_spark.storage.expression import Expression

    #: The lower bounds of the order columns in a part; `None` if they are unknown.
    Bound: TypeAlias = tuple[int, ...] | None
    #: Yields the rows of a table in parts, in an order of columns if it has some: the lower bound of each part, and an
    #: iterator of its rows, with at least one column and those that a query reads. Parts without a bound come first. If possible
    #: they have as many rows as the limit.
    Parts: TypeAlias = Callable[
        [Select, Sequence[str], int | None], Iterator[tuple[Bound, Iterable[pa.Table]]]
    ]

#: The results are merged when they have this many more rows than after the last merge, and at least twice as many.
_MERGED = 50_000
#: Rows are grouped in pieces of about this many.
_GROUPED = 100_000
#: The aggregate that merges the values of an aggregate for several parts.
_MERGES = {
    Function.COUNT: Function.SUM,
    Function.SUM: Function.SUM,
    Function.MIN: Function.MIN,
    Function.MAX: Function.MAX,
}


def answer_by_parts(query: Select, schema: pa.Schema, parts: Parts) -> pa.Table:
    """The result of a query over the rows of its table, which has these columns. Raises as `answer` does."""
    return _fold_of(query).over(schema, parts)


def columns_read(query: Select) -> list[str]:
    """The columns that a query reads of its table."""
    found = {*query.order, *(query.by or ())} - {*query.columns}
    for value in (*query.columns.values(), query.where):
        found |= column_names_in(value)
    return sorted(found)


@dataclass(frozen=True, slots=True)
class _Fold:
    """The plan of a query that is answered part by part.

    Attributes:
        each: The query for each part.
        merged: The query that merges the results of several parts, and keeps their columns.
        last: The query over the merged result at the end; `None` if the merged result is that of the query.
        order: The order of the rows, by which parts are skipped; empty if there is none.
        limit: The most rows of the result.
    """

    each: Select
    merged: Select
    last: Select | None = None
    order: Sequence[str] = ()
    limit: int | None = None

    def over(self, schema: pa.Schema, parts: Parts) -> pa.Table:
        """Run the plan and return the result."""
        found: list[pa.Table] = []
        merged = rows = 0
        pieces: Iterable[tuple[Bound, Iterable[pa.Table]]]
        pieces = parts(self.each, self.order, self.limit)
        if self.each.by is not None:
            # To merge groups costs as much as to make them.
            pieces = [(None, _gathered(some for _, part in pieces for some in part))]
        for least, part in pieces:
            if self.limit is not None and rows >= self.limit:
                if not self.order:
                    break
                found = [self._merge(found)]
                merged = rows = found[0].num_rows
                if self._is_before(found[0], least):
                    break
            for some in part:
                new = answer(self.each, some)
                if new.num_rows:
                    found.append(new)
                    rows += new.num_rows
                if rows >= merged + max(_MERGED, merged):
                    found = [self._merge(found)]
                    merged = rows = found[0].num_rows
        if not found:
            found = [answer(self.each, empty(schema))]
        result = self._merge(found)
        return result if self.last is None else answer(self.last, result)

    def _merge(self, found: Sequence[pa.Table]) -> pa.Table:
        return found[0] if len(found) == 1 else answer(self.merged, pa.concat_tables(found))

    def _is_before(self, rows: pa.Table, least: Bound) -> bool:
        """Whether the last wanted row comes before the lower bound of all other rows."""
        if least is None or not rows.num_rows:
            return False
        last = [rows.column(name)[-1].as_py() for name in self.order]
        return None not in last and tuple(last) <= least


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables, in fewer tables."""
    some, rows = list[pa.Table](), 0
    for table in tables:
        some.append(table)
        rows += table.num_rows
        if rows >= _GROUPED:
            yield pa.concat_tables(some)
            some, rows = [], 0
    if some:
        yield pa.concat_tables(some)


def _fold_of(query: Select) -> _Fold:
    if not has_aggregates(query):
        return _rows(query)
    aggregates = {n: value for n, value in query.columns.items() if isinstance(value, Aggregate)}
    if any(each.function not in _MERGES for each in aggregates.values()):
        # This reads the columns of all rows at once, because such queries are over small tables.
        columns = named(*columns_read(query))
        rows = Select(query.table, columns, query.where)
        return _Fold(rows, Select("", columns), replace(query, table="", where=TRUE))
    return _groups(query, aggregates)


def _rows(query: Select) -> _Fold:
    """The plan for rows without groups: all rows of each part, or the first ones."""
    columns = named(*query.columns)
    more = {name: Column(name) for name in query.order if name not in columns}
    each = replace(query, columns={**query.columns, **more})
    all_columns = {**columns, **more}
    merged = replace(each, table="", columns=all_columns, where=TRUE)
    bounded = bool(query.order) and not query.descending and query.quotas is None
    limit = query.limit if bounded or not query.order else None
    last = Select("", columns) if more else None
    return _Fold(each, merged, last, query.order if bounded else (), limit)


def _groups(query: Select, aggregates: dict[str, Aggregate]) -> _Fold:
    """The plan for groups: the groups of each part, whose aggregates are merged."""
    keys = {name: value for name, value in query.columns.items() if name not in aggregates}
    keys |= {name: Column(name) for name in query.by or () if name not in query.columns}
    by = None if query.by is None else [*keys]
    each = replace(
        query,
        columns={**keys, **aggregates},
        by=by,
        having=TRUE,
        order=(),
        limit=None,
    )
    merging: dict[str, Expression] = dict(named(*keys))
    for name, aggregate in aggregates.items():
        merging[name] = Aggregate(_MERGES[aggregate.function], Column(name))
    merged = Select("", merging, by=by)
    last = Select(
        "",
        named(*query.columns),
        query.having,
        order=query.order,
        limit=query.limit,
        descending=query.descending,
    )
    return _Fold(each, merged, last)
