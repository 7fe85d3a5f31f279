"""Answers queries over the rows of a small table by Arrow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.evaluate import NotByArrowError, column, holds, of_table
from tubeq_spark.storage.arrow_arrays import array, nested, taken
from tubeq_spark.storage.expression import Column, Micros
from tubeq_spark.storage.query import (
    Aggregate,
    Firsts,
    Function,
    Select,
    Struct,
    has_aggregates,
    keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.storage.expression import Expression

    #: Values, one a row or one a group, and their type.
    Typed: TypeAlias = "tuple[list[Any], pa.DataType]"

__all__ = ["MOST", "answer", "innermost"]

#: Of more rows DataFusion makes groups faster than Python.
MOST = 2_000


def innermost(query: Select) -> Select:
    """The part of a query that reads the table itself."""
    while not isinstance(query.table, str):
        query = query.table.rows if isinstance(query.table, Firsts) else query.table
    return query


def answer(query: Select, rows: pa.Table, *, any_size: bool = False) -> pa.Table:
    """What a query finds among the rows of its table.

    Args:
        query: The query.
        rows: All rows of the table.
        any_size: Whether to group any number of rows; else more than `MOST` are left to DataFusion.

    Raises:
        NotByArrowError: It is left to DataFusion.
        pa.ArrowException: A value cannot be computed.
    """
    if isinstance(query.table, Select):
        rows = answer(query.table, rows, any_size=any_size)
    elif isinstance(query.table, Firsts):
        rows = answer(query.table.rows, rows, any_size=any_size)
        rows = _firsts(query.table, rows, any_size=any_size)
    rows = _matching(rows, query.where)
    if not has_aggregates(query):
        return _plain(query, rows)
    if not any_size:
        _require_few(rows)
    return _grouped(query, rows)


def _matching(rows: pa.Table, where: Expression | None) -> pa.Table:
    if where is None or not rows.num_rows:
        return rows
    return taken(rows, pc.indices_nonzero(holds(where, of_table(rows), rows.num_rows)))


# -- rows --------------------------------------------------------------------------------------------


def _plain(query: Select, rows: pa.Table) -> pa.Table:
    if query.order and rows.num_rows > 1:
        _require_stored(query)
        rows = taken(rows, _in_order(rows, query.order, query.limit, query.descending))
    if query.limit is not None:
        rows = rows[: query.limit]
    lookup = of_table(rows)
    columns = [column(value, lookup, None, rows.num_rows) for value in query.columns.values()]
    return pa.Table.from_arrays(columns, names=list(query.columns))


def _require_stored(query: Select) -> None:
    """Refuse to sort by a computed column that has the name of a stored one."""
    for name in query.order:
        value = query.columns.get(name)
        if value is not None and not (isinstance(value, Column) and value.name == name):
            msg = f"an order by a computed {name}"
            raise NotByArrowError(msg)


def _in_order(
    rows: pa.Table,
    order: Sequence[str],
    limit: int | None = None,
    descending: bool = False,  # noqa: FBT001, FBT002  (as of a query)
) -> pa.Array:
    """The places of rows in an order; NULL comes before all values."""
    if not {*order} <= {*rows.column_names}:
        raise NotByArrowError(str(order))
    columns = {}
    for name in order:
        values = rows.column(name)
        if values.null_count:
            # Arrow itself puts NULLs last, in either direction.
            columns[f"{name} is there"] = pc.is_valid(values)
        columns[name] = values
    keys = pa.table(columns)
    by = [(name, "descending" if descending else "ascending") for name in columns]
    if limit is None:
        return pc.sort_indices(keys, sort_keys=by)
    return pc.select_k_unstable(keys, k=min(limit, rows.num_rows), sort_keys=by)


def _firsts(firsts: Firsts, rows: pa.Table, *, any_size: bool) -> pa.Table:
    """The first rows of each sub-queue."""
    if not rows.num_rows:
        return rows
    if not any_size:
        _require_few(rows)
    rows = rows.take(_in_order(rows, firsts.order))
    seen: Counter[str | None] = Counter()
    chosen = []
    for place, utube in enumerate(rows.column("utube").to_pylist()):
        seen[utube] += 1
        if seen[utube] <= firsts.quotas.get(utube, 0):
            chosen.append(place)
    return taken(rows, array(chosen, pa.int64()))


def _require_few(rows: pa.Table) -> None:
    if rows.num_rows > MOST:
        msg = "many rows"
        raise NotByArrowError(msg)


# -- groups ------------------------------------------------------------------------------------------


def _grouped(query: Select, rows: pa.Table) -> pa.Table:
    groups = _Groups(rows, query)
    columns = {name: groups.column(value) for name, value in query.columns.items()}
    numbers = list(range(groups.count))
    if query.having is not None and numbers:
        found = pa.Table.from_arrays([nested(*each) for each in columns.values()], names=[*columns])
        numbers = pc.indices_nonzero(holds(query.having, of_table(found), groups.count)).to_pylist()
    # Sorted by the last column first: rows that are equal by one stay in their order.
    for name in reversed(query.order):
        values = _comparable(columns[name][0], numbers)
        numbers.sort(key=values.__getitem__, reverse=query.descending)
    numbers = numbers[: query.limit]
    arrays = [nested([values[n] for n in numbers], kind) for values, kind in columns.values()]
    return pa.Table.from_arrays(arrays, names=list(columns))


class _Groups:
    """Rows, by the values of some columns."""

    def __init__(self, rows: pa.Table, query: Select) -> None:
        self._lookup = of_table(rows)
        self._rows = rows.num_rows
        self._keys = {id(value): self._values(value) for value in keys_of(query).values()}
        groups: dict[tuple[Any, ...], list[int]] = {(): []} if query.by is None else {}
        for n in range(rows.num_rows):
            of = tuple(values[n] for values, _ in self._keys.values())
            groups.setdefault(of, []).append(n)
        self._groups = list(groups.values())
        self.count = len(groups)

    def column(self, value: Expression) -> Typed:
        """A value for each group."""
        if id(value) in self._keys:
            values, kind = self._keys[id(value)]
            return [values[group[0]] for group in self._groups], kind
        if isinstance(value, Micros):
            return self.column(value.part)[0], pa.int64()
        if isinstance(value, Aggregate):
            return self._aggregated(value)
        # The same for all rows.
        found, kind = self._values(value)
        return [found[group[0]] for group in self._groups], kind

    def _aggregated(self, aggregate: Aggregate) -> Typed:  # noqa: PLR0911  (one of each)
        of = aggregate.part
        if of is None:
            return [len(group) for group in self._groups], pa.int64()
        values, kind = self._values(of)
        known = [[n for n in group if values[n] is not None] for group in self._groups]
        match aggregate.function:
            case Function.COUNT:
                return [len(group) for group in known], pa.int64()
            case Function.COUNT_IF:
                return [sum(values[n] for n in group) for group in known], pa.int64()
            case Function.SUM:
                sums = [sum(values[n] for n in group) if group else None for group in known]
                return sums, pa.int64()
            case Function.ANY:
                return [any(values[n] for n in g) if g else None for g in known], kind
            case Function.COLLECT:
                sets = [list(dict.fromkeys(values[n] for n in group)) for group in known]
                return sets, pa.list_(kind)
            case Function.MIN:
                return _best(values, values, known, min), kind
            case Function.MAX:
                return _best(values, values, known, max), kind
            case Function.MAX_BY:
                return self._last(values, of if aggregate.by is None else aggregate.by), kind

    def _last(self, values: list[Any], by: Expression) -> list[Any]:
        measures, _ = self._values(by)
        known = [[n for n in group if measures[n] is not None] for group in self._groups]
        return _best(values, measures, known, max)

    def _values(self, value: Expression) -> Typed:
        """A value for each row; moments as numbers."""
        if isinstance(value, Struct):
            found = {name: self._values(part) for name, part in value.fields.items()}
            each = zip(*(values for values, _ in found.values()), strict=True)
            kind = pa.struct([(name, kind) for name, (_, kind) in found.items()])
            return [dict(zip(found, row, strict=True)) for row in each], kind
        values = column(value, self._lookup, None, self._rows)
        kind = values.type
        if pa.types.is_timestamp(kind):
            values = values.cast(pa.int64())
        return values.to_pylist(), kind


def _best(
    values: Sequence[Any],
    measures: Sequence[Any],
    known: Sequence[Sequence[int]],
    chosen: Callable[..., int],
) -> list[Any]:
    """Of each group the value where another one is the least, or the greatest."""
    measured = _comparable(measures, [n for group in known for n in group])
    return [values[chosen(g, key=measured.__getitem__)] if g else None for g in known]


def _comparable(values: Sequence[Any], wanted: Sequence[int]) -> Mapping[int, Any]:
    """Values by their numbers as Python compares them; NULL comes before all others.

    Raises:
        NotByArrowError: They have no order.
    """
    found = {}
    for n in wanted:
        value = tuple(values[n].values()) if isinstance(values[n], dict) else values[n]
        if isinstance(value, list) or (isinstance(value, tuple) and None in value):
            msg = "an order of lists, or of structs with NULLs"
            raise NotByArrowError(msg)
        found[n] = (False,) if value is None else (True, value)
    return found
