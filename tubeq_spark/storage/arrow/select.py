"""Answers queries over the rows of a table, and groups rows, by Arrow's kernels.

`Table.group_by` does the same for groups, but imports pandas, and has no least value of several columns.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.by_row import FewRows, NotByRowError, are_few
from tubeq_spark.storage.arrow.columns import (
    array,
    flat,
    kept,
    numbers_from_0,
    places_in_order,
    repeated,
    scalar,
    taken,
)
from tubeq_spark.storage.arrow.evaluate import column, evaluate, holds, of_table
from tubeq_spark.storage.expression import TRUE, Column
from tubeq_spark.storage.query import Aggregate, Function, Select, Struct, has_aggregates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.storage.arrow.evaluate import Lookup
    from tubeq_spark.storage.expression import Expression

_ZERO = scalar(0, pa.int64())


def numbered(columns: Sequence[pa.Array]) -> pa.Array:
    """A number for each row's values in some columns, in the order of their first rows, from 0 on. NULLs are equal."""
    return combined(columns).dictionary_encode(null_encoding="encode").indices


def combined(columns: Sequence[pa.Array]) -> pa.Array:
    """A value for each row that is equal for rows with equal values in all columns. NULLs are equal."""
    values, *others = columns
    for each in others:
        ours, theirs = (some.dictionary_encode(null_encoding="encode") for some in (values, each))
        size = scalar(len(theirs.dictionary), pa.int64())
        values = pc.add(pc.multiply(ours.indices.cast(pa.int64()), size), theirs.indices)
    return values


class Groups:
    """Rows, by the values of some columns."""

    def __init__(
        self, lookup: Lookup, count: int, keys: Iterable[Expression], *, is_one: bool
    ) -> None:
        """Group rows.

        Args:
            lookup: Their columns.
            count: The number of rows.
            keys: The values to group by.
            is_one: Whether all rows are one group, even if there are none.

        Raises:
            NotByArrowError: Arrow cannot compute a key.
            pa.ArrowException: A key cannot be computed.
        """
        self._lookup = lookup
        self._rows = count
        #: The number of the group of each row.
        self._numbers = repeated(0, pa.int32(), count)
        values = [evaluate(key, lookup) for key in keys] if count else []
        told_apart = [flat(each) for each in values if not isinstance(each, pa.Scalar)]
        if told_apart:
            self._numbers = numbered(told_apart)
        #: The numbers of the groups, from 0 on, and how many rows each has.
        self._each, self._sizes = repeated(0, pa.int32(), 1), repeated(count, pa.int64(), 1)
        if not is_one:
            found = pc.value_counts(self._numbers)
            self._each, self._sizes = found.field("values"), found.field("counts")
        self._places = pc.index_in(self._each, value_set=self._numbers)

    def column(self, value: Expression) -> pa.Array:
        """A value for each group. Raises as the constructor does."""
        if isinstance(value, Aggregate):
            return self._aggregated(value)
        # The value is the same for all rows of a group.
        found = evaluate(value, self._lookup)
        if isinstance(found, pa.Scalar):
            return pa.repeat(found, len(self._each))
        return flat(found).take(self._places)

    def _aggregated(self, aggregate: Aggregate) -> pa.Array:
        if aggregate.part is TRUE:
            return self._sizes
        values = self._values(aggregate.part)
        match aggregate.function:
            case Function.COUNT:
                return self._counted(self._numbers.filter(values))
            case Function.SUM:
                return self._only_known(values, self._summed(values))
            case Function.MIN:
                return values.take(self._best(values, descending=False))
            case Function.MAX:
                return values.take(self._best(values, descending=True))
            case Function.MAX_BY:
                by = values if aggregate.by is None else self._values(aggregate.by)
                return values.take(self._best(by, descending=True))

    def _counted(self, numbers: pa.Array) -> pa.Array:
        """How often the number of each group occurs."""
        found = pc.value_counts(numbers)
        places = pc.index_in(self._each, value_set=found.field("values"))
        return pc.fill_null(found.field("counts").take(places), fill_value=_ZERO)

    def _only_known(self, values: pa.Array, found: pa.Array) -> pa.Array:
        """The results of the groups, with NULL for groups that have only NULLs."""
        known = self._numbers if not values.null_count else self._numbers.filter(values.is_valid())
        has_some = pc.is_in(self._each, value_set=known)
        return pc.if_else(has_some, found, pa.nulls(1, found.type)[0])

    def _summed(self, values: pa.Array) -> pa.Array:
        """The sum of each group, without NULLs."""
        if not self._rows:
            return repeated(0, pa.int64(), len(self._each))
        places = pc.sort_indices(self._numbers)
        addends = pc.fill_null(values.cast(pa.int64()), fill_value=_ZERO).take(places)
        # The index of each group's last row, in rows that are sorted by group.
        ends = pc.subtract(pc.cumulative_sum(self._sizes), scalar(1, pa.int64()))
        sums = pc.cumulative_sum_checked(addends).take(ends)
        before = pa.concat_arrays([repeated(0, pa.int64(), 1), sums[:-1]])
        return pc.subtract(sums, before)

    def _best(self, measures: pa.Array, *, descending: bool) -> pa.Array:
        """The index of the first row of each group in an order of its values; NULL if all are NULL."""
        places = places_in_order([measures], descending=descending)
        if measures.null_count:
            places = places.filter(measures.is_valid().take(places))
        first = pc.index_in(self._each, value_set=taken(self._numbers, places))
        return places.take(first)

    def _values(self, value: Expression) -> pa.Array:
        """A value for each row."""
        if isinstance(value, Struct):
            parts = {name: self._values(part) for name, part in value.fields.items()}
            return pa.StructArray.from_arrays([*parts.values()], names=[*parts])
        return flat(column(value, self._lookup, None, self._rows))


def answer(query: Select, rows: pa.Table) -> pa.Table:
    """The result of a query over the rows of its table.

    Args:
        query: The query.
        rows: The rows, with at least one column.

    Raises:
        NotByArrowError: Arrow cannot answer it.
        pa.ArrowException: A value cannot be computed.
    """
    rows = matching(rows, query.where)
    return _grouped(query, rows) if has_aggregates(query) else _plain(query, rows)


def matching(rows: pa.Table, where: Expression) -> pa.Table:
    """The rows for which a condition holds. Raises as `answer` does."""
    if where is TRUE or not rows.num_rows:
        return rows
    if are_few(rows.num_rows):
        with suppress(NotByRowError):
            few = FewRows(rows).where(where)
            return kept(rows, array(few, pa.int64()))
    return kept(rows, pc.indices_nonzero(holds(where, of_table(rows), rows.num_rows)))


# -- rows --------------------------------------------------------------------------------------------


def _plain(query: Select, rows: pa.Table) -> pa.Table:
    if query.quotas is not None:
        rows = _firsts(rows, query.order, query.quotas)
    elif query.order:
        rows = _sorted(rows, query)
    if query.limit is not None:
        rows = rows[: query.limit]
    lookup = of_table(rows)
    columns = [column(value, lookup, None, rows.num_rows) for value in query.columns.values()]
    return pa.Table.from_arrays(columns, names=list(query.columns))


def _sorted(rows: pa.Table, query: Select) -> pa.Table:
    """Rows in the order of a query, up to its limit."""
    lookup = of_table(rows)
    keys = [lookup("", name) for name in query.order]
    if rows.num_rows == 1:
        return rows
    return taken(rows, places_in_order(keys, query.limit, descending=query.descending))


def _firsts(rows: pa.Table, order: Sequence[str], most: Mapping[str | None, int]) -> pa.Table:
    """The first rows of each sub-queue, in their order."""
    if not rows.num_rows:
        return rows
    rows = rows.take(places_in_order(rows.select([*order]).columns, descending=False))
    utubes = flat(rows.column("utube")).dictionary_encode(null_encoding="encode")
    quotas = [most.get(utube, 0) for utube in utubes.dictionary.to_pylist()]
    # The indexes of the rows, grouped by sub-queue; within one they keep the order of the rows.
    places = pc.sort_indices(utubes.indices)
    number = utubes.indices.take(places)
    counts = pc.value_counts(number)
    ends = pc.cumulative_sum(counts.field("counts"))
    starts = pc.subtract(ends, counts.field("counts"))
    before = pc.subtract(numbers_from_0(rows.num_rows), starts.take(number))
    within = pc.less(before, array(quotas, pa.int64()).take(number))
    chosen = places.filter(within)
    return taken(rows, taken(chosen, pc.sort_indices(chosen)))


# -- groups ------------------------------------------------------------------------------------------


def _grouped(query: Select, rows: pa.Table) -> pa.Table:
    lookup = of_table(rows)
    keys = [query.columns.get(name, Column(name)) for name in query.by or ()]
    groups = Groups(lookup, rows.num_rows, keys, is_one=query.by is None)
    columns = [groups.column(value) for value in query.columns.values()]
    found = matching(pa.Table.from_arrays(columns, names=[*query.columns]), query.having)
    return (_sorted(found, query) if query.order else found)[: query.limit]
