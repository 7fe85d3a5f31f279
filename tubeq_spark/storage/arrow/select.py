"""Answers queries over the rows of a table by Arrow's kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.arrays import array, flat, numbers_from_0, taken
from tubeq_spark.storage.arrow.columns import places_in_order
from tubeq_spark.storage.arrow.evaluate import NotByArrowError, column, evaluate, of_table
from tubeq_spark.storage.arrow.groups import Groups
from tubeq_spark.storage.expression import Column
from tubeq_spark.storage.query import Firsts, Select, has_aggregates, keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from tubeq_spark.storage.expression import Expression

    Constants: TypeAlias = "Mapping[str, pa.Scalar] | None"


def innermost(query: Select) -> Select:
    """The part of a query that reads the table itself."""
    while not isinstance(query.table, str):
        query = query.table.rows if isinstance(query.table, Firsts) else query.table
    return query


def with_innermost(query: Select, inner: Select) -> Select:
    """A query with another part that reads the table itself."""
    match query.table:
        case Select() as rows:
            return replace(query, table=with_innermost(rows, inner))
        case Firsts(rows) as firsts:
            return replace(query, table=replace(firsts, rows=with_innermost(rows, inner)))
        case _:
            return inner


def answer(
    query: Select, rows: pa.Table, constants: Mapping[str, pa.Scalar] | None = None
) -> pa.Table:
    """The result of a query over the rows of its table.

    Args:
        query: The query.
        rows: The rows, with at least one column.
        constants: Columns with one value in all rows. The rows need not have these columns.

    Raises:
        NotByArrowError: Arrow cannot answer it.
        pa.ArrowException: A value cannot be computed.
    """
    if isinstance(query.table, Select):
        rows, constants = answer(query.table, rows, constants), None
    elif isinstance(query.table, Firsts):
        rows, constants = _firsts(query.table, answer(query.table.rows, rows, constants)), None
    rows = _matching(rows, query.where, constants)
    found = _grouped if has_aggregates(query) else _plain
    return found(query, rows, constants)


def _matching(rows: pa.Table, where: Expression | None, constants: Constants = None) -> pa.Table:
    if where is None or not rows.num_rows:
        return rows
    found = evaluate(where, of_table(rows, constants))
    if isinstance(found, pa.Scalar):
        return rows if found.as_py() else rows.slice(0, 0)
    # A NULL counts as false.
    places = pc.indices_nonzero(found)
    return rows if len(places) == rows.num_rows else taken(rows, places)


# -- rows --------------------------------------------------------------------------------------------


def _plain(query: Select, rows: pa.Table, constants: Constants) -> pa.Table:
    if query.order:
        _require_stored(query)
        rows = _sorted(rows, query, constants)
    if query.limit is not None:
        rows = rows[: query.limit]
    lookup = of_table(rows, constants)
    columns = [column(value, lookup, None, rows.num_rows) for value in query.columns.values()]
    return pa.Table.from_arrays(columns, names=list(query.columns))


def _require_stored(query: Select) -> None:
    """Refuse to sort by a computed column with the name of a stored one."""
    for name in query.order:
        value = query.columns.get(name)
        if value is not None and not (isinstance(value, Column) and value.name == name):
            msg = f"an order by a computed {name}"
            raise NotByArrowError(msg)


def _sorted(rows: pa.Table, query: Select, constants: Constants = None) -> pa.Table:
    """Rows in the order of a query, up to its limit."""
    order = [name for name in query.order if name not in (constants or {})]
    if not {*order} <= {*rows.column_names}:
        raise NotByArrowError(str(order))
    if not order:
        return rows
    keys = rows.select(order).columns
    return taken(rows, places_in_order(keys, query.limit, descending=query.descending))


def _firsts(firsts: Firsts, rows: pa.Table) -> pa.Table:
    """The first rows of each sub-queue, in their order."""
    if not rows.num_rows:
        return rows
    keys = rows.select([*firsts.order]).columns
    rows = rows.take(places_in_order(keys, descending=False))
    utubes = flat(rows.column("utube")).dictionary_encode(null_encoding="encode")
    quotas = [firsts.quotas.get(utube, 0) for utube in utubes.dictionary.to_pylist()]
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


def _grouped(query: Select, rows: pa.Table, constants: Constants) -> pa.Table:
    lookup = of_table(rows, constants)
    groups = Groups(lookup, rows.num_rows, keys_of(query).values(), is_one=query.by is None)
    columns = [groups.column(value) for value in query.columns.values()]
    found = _matching(pa.Table.from_arrays(columns, names=[*query.columns]), query.having)
    return (_sorted(found, query) if query.order else found)[: query.limit]
