"""Answers queries of groups by Arrow: counts, least and greatest values of some rows of one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.storage.arrow_arrays import nested
from tubeq_spark.storage.native import expressions
from tubeq_spark.storage.native.expressions import UnknownTextError
from tubeq_spark.storage.native.plain_select import (
    clauses_of,
    limit_of,
    matching,
    named,
    table_of,
    text_of,
)
from tubeq_spark.storage.native.tokens import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from tubeq_spark.storage.native.tokens import Piece

    #: Values, one a row or one a group, and their type.
    Typed: TypeAlias = "tuple[list[Any], pa.DataType]"

__all__ = ["MOST", "GroupedSelect"]

#: Of more rows DataFusion is faster than Python.
MOST = 2_000


@dataclass(frozen=True, slots=True)
class GroupedSelect:
    """Such a query.

    Attributes:
        table: The table's SQL name.
        columns: What is selected, by its names: keys, or what becomes of a group.
        where: The condition; empty: there is none.
        keys: Columns of the table; `None`: all rows are one group.
        order: What it selects that the groups are in the order of; `None`: in any.
        limit: How many groups; `None`: all.
    """

    table: str
    columns: Sequence[tuple[str, Sequence[Piece]]]
    where: Sequence[Piece]
    keys: Sequence[str] | None
    order: str | None
    limit: int | None

    @classmethod
    def of(cls, sql: str) -> GroupedSelect:
        """Read a query.

        Raises:
            UnknownTextError: It is another one.
        """
        clauses = clauses_of(sql)
        selected = clauses["SELECT"]
        is_distinct = isinstance(selected[0], str) and selected[0].upper() == "DISTINCT"
        columns = [named(part) for part in parts(selected[1:] if is_distinct else selected)]
        keys = [text_of(*part) for part in parts(clauses.get("GROUP", ()))]
        if is_distinct:
            keys = [text_of(*value) for _, value in columns]
        order = text_of(*clauses["ORDER"]) if "ORDER" in clauses else None
        if order is not None and order not in dict(columns):
            raise UnknownTextError(order)
        is_whole = not is_distinct and "GROUP" not in clauses
        where, limit = clauses.get("WHERE", ()), limit_of(clauses)
        return cls(table_of(clauses), columns, where, None if is_whole else keys, order, limit)

    def answer(self, rows: pa.Table) -> pa.Table:
        """What it finds among the rows of its table.

        Raises:
            UnknownTextError: It has something that is evaluated by DataFusion only.
            pa.ArrowException: A value cannot be computed.
        """
        found = matching(rows, self.where) if rows.num_rows else ()
        if len(found) > MOST:
            msg = "many rows"
            raise UnknownTextError(msg)
        # Arrow before version 19 has no empty selections.
        group = _Groups(rows.take(found) if len(found) else rows.slice(0, 0), self.keys)
        columns = {name: group.column(value) for name, value in self.columns}
        numbers = list(range(group.count))
        if self.order is not None:
            numbers.sort(key=_comparable(columns[self.order][0]).__getitem__)
        numbers = numbers[: self.limit]
        arrays = [nested([values[n] for n in numbers], kind) for values, kind in columns.values()]
        return pa.Table.from_arrays(arrays, names=list(columns))


class _Groups:
    """Rows, by the values of some columns."""

    def __init__(self, rows: pa.Table, keys: Sequence[str] | None) -> None:
        self._lookup = expressions.of_table(rows)
        self._rows = rows.num_rows
        self._keys = {key: self._values([key]) for key in keys or ()}
        groups: dict[tuple[Any, ...], list[int]] = {} if keys else {(): []}
        for n in range(rows.num_rows):
            of = tuple(values[n] for values, _ in self._keys.values())
            groups.setdefault(of, []).append(n)
        self._groups = list(groups.values())
        self.count = len(groups)

    def column(self, pieces: Sequence[Piece]) -> Typed:
        """A value for each group."""
        match pieces:
            case [str(name)] if name in self._keys:
                values, kind = self._keys[name]
                return [values[group[0]] for group in self._groups], kind
            case [str(name), [*inside]]:
                return self._aggregated(name.upper(), inside)
            case _:
                raise UnknownTextError(str(pieces))

    def _aggregated(self, name: str, inside: list[Piece]) -> Typed:
        args = parts(inside)
        match name, args:
            case "COUNT", [["*"]]:
                return [len(group) for group in self._groups], pa.int64()
            case "MIN", [of]:
                return self._best(of, of, min)
            case "MAX", [of]:
                return self._best(of, of, max)
            case "MAX_BY", [of, by]:
                return self._best(of, by, max)
            case "BOOL_OR", [condition]:
                values, kind = self._values(condition)
                if None in values:
                    raise UnknownTextError(name)
                held = (any(values[n] for n in group) if group else None for group in self._groups)
                return list(held), kind
            case "UNIX_MICROS", [[str(inner), [*of]]] if inner.upper() in {"MIN", "MAX"}:
                return self._aggregated(inner.upper(), ["unix_micros", of])
        raise UnknownTextError(name)

    def _best(self, of: Sequence[Piece], by: Sequence[Piece], chosen: Callable[..., int]) -> Typed:
        """Of each group the value where another one is the least, or the greatest; NULLs are none."""
        (values, kind), (measures, _) = self._values(of), self._values(by)
        measured = _comparable(measures, [n for n, m in enumerate(measures) if m is not None])
        best = []
        for group in self._groups:
            known = [n for n in group if measures[n] is not None]
            best.append(values[chosen(known, key=measured.__getitem__)] if known else None)
        return best, kind

    def _values(self, pieces: Sequence[Piece]) -> Typed:
        """A value for each row."""
        if len(pieces) == 2 and pieces[0] in {"struct", "STRUCT"}:
            return self._structs(parts(pieces[1]))
        found = expressions.column(pieces, self._lookup, None, self._rows)
        if pa.types.is_timestamp(found.type) or pa.types.is_null(found.type):
            raise UnknownTextError(str(pieces))
        return found.to_pylist(), found.type

    def _structs(self, fields: Sequence[Sequence[Piece]]) -> Typed:
        """A struct for each row."""
        found = {name: self._values(value) for name, value in map(named, fields)}
        each = zip(*(values for values, _ in found.values()), strict=True)
        kind = pa.struct([(name, kind) for name, (_, kind) in found.items()])
        return [dict(zip(found, row, strict=True)) for row in each], kind


def _comparable(values: Sequence[Any], wanted: Sequence[int] | None = None) -> dict[int, Any]:
    """Values by their numbers as Python compares them.

    Raises:
        UnknownTextError: Some are NULL, or have no order.
    """
    found = {}
    for n in range(len(values)) if wanted is None else wanted:
        value = tuple(values[n].values()) if isinstance(values[n], dict) else values[n]
        if value is None or isinstance(value, list) or (isinstance(value, tuple) and None in value):
            msg = "an order of NULLs"
            raise UnknownTextError(msg)
        found[n] = value
    return found
