"""Answers plain queries by Arrow: columns of one table, by a condition, in an order, up to a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow_arrays import array
from tubeq_spark.storage.native import expressions
from tubeq_spark.storage.native.expressions import UnknownTextError
from tubeq_spark.storage.native.tokens import grouped, parts, words
from tubeq_spark.storage.sql.quoting import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.native.tokens import Piece

__all__ = ["PlainSelect", "clauses_of", "limit_of", "matching", "named", "table_of", "text_of"]

_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "LIMIT")
#: Those that go on with "BY".
_BY = {"GROUP", "ORDER"}


@dataclass(frozen=True, slots=True)
class PlainSelect:
    """Such a query.

    Attributes:
        table: The table's SQL name.
        columns: What is selected, by its names.
        where: The condition; empty: there is none.
        order: Columns of the table.
        limit: How many rows; `None`: all.
    """

    table: str
    columns: Sequence[tuple[str, Sequence[Piece]]]
    where: Sequence[Piece]
    order: Sequence[str]
    limit: int | None

    @classmethod
    def of(cls, sql: str) -> PlainSelect:
        """Read a query.

        Raises:
            UnknownTextError: It is another one.
        """
        clauses = clauses_of(sql)
        if "GROUP" in clauses:
            msg = "groups"
            raise UnknownTextError(msg)
        columns = [named(part) for part in parts(clauses["SELECT"])]
        keys = [text_of(*part) for part in parts(clauses.get("ORDER", ()))]
        if any(name in keys and [*value] not in ([name], [f"`{name}`"]) for name, value in columns):
            msg = "an order of what is computed"
            raise UnknownTextError(msg)
        where = clauses.get("WHERE", ())
        return cls(table_of(clauses), columns, where, keys, limit_of(clauses))

    def answer(self, rows: pa.Table) -> pa.Table:
        """What it finds among the rows of its table.

        Raises:
            UnknownTextError: It has something that is evaluated by DataFusion only.
            pa.ArrowException: A value cannot be computed.
        """
        found = self._found(rows)
        # Arrow before version 19 has no empty selections, and some of them end the process.
        rows = rows.take(found) if found is not None and len(found) else rows.slice(0, 0)
        lookup = expressions.of_table(rows)
        columns = [
            expressions.column(value, lookup, None, rows.num_rows) for _, value in self.columns
        ]
        return pa.Table.from_arrays(columns, names=[name for name, _ in self.columns])

    def _found(self, rows: pa.Table) -> pa.Array | None:
        """The numbers of the rows that are wanted, in order; `None`: there are no rows."""
        if not rows.num_rows:
            return None
        found = matching(rows, self.where)
        if self.order and len(found) > 1:
            found = found.take(self._in_order(rows, found))
        return found if self.limit is None else found[: self.limit]

    def _in_order(self, rows: pa.Table, found: pa.Array) -> pa.Array:
        if not {*self.order} <= {*rows.column_names}:
            raise UnknownTextError(str(self.order))
        keys = rows.select(self.order).take(found)
        if any(column.null_count for column in keys.columns):
            msg = "an order of NULLs"
            raise UnknownTextError(msg)
        ascending = [(name, "ascending") for name in self.order]
        if self.limit is None:
            return pc.sort_indices(keys, sort_keys=ascending)
        return pc.select_k_unstable(keys, k=self.limit, sort_keys=ascending)


def matching(rows: pa.Table, where: Sequence[Piece]) -> pa.Array:
    """The numbers of the rows, which are some, that a condition holds for.

    Raises as `PlainSelect.answer`.
    """
    if not where:
        return array(range(rows.num_rows), pa.int64())
    holds = expressions.holds(where, expressions.of_table(rows), rows.num_rows)
    return pc.indices_nonzero(holds)


def clauses_of(sql: str) -> dict[str, list[Piece]]:
    """What follows each of the words that begin a part of a query.

    Raises:
        UnknownTextError: It is not one of these.
    """
    found: dict[str, list[Piece]] = {}
    current: list[Piece] = []
    for piece in words(grouped(sql)):
        word = piece.upper() if isinstance(piece, str) else ""
        if word in _CLAUSES:
            if word in found:
                raise UnknownTextError(word)
            current = found[word] = []
        else:
            current.append(piece)
    if list(found) != [word for word in _CLAUSES if word in found] or not {"SELECT", "FROM"} <= {
        *found
    }:
        msg = "another order of clauses"
        raise UnknownTextError(msg)
    for word in _BY & found.keys():
        by, *found[word] = found[word] or [""]
        if text_of(by).upper() != "BY":
            raise UnknownTextError(word)
    return found


def table_of(clauses: Mapping[str, Sequence[Piece]]) -> str:
    """The SQL name of the one table that a query is about. Raises as `clauses_of`."""
    # Its alias does not matter: there is no other table.
    table = "".join(map(text_of, clauses["FROM"][:3]))
    if path_of(table) is None or len(clauses["FROM"]) > 4:
        raise UnknownTextError(table)
    return table


def limit_of(clauses: Mapping[str, Sequence[Piece]]) -> int | None:
    """How many rows a query is for; `None`: all. Raises as `clauses_of`."""
    if "LIMIT" not in clauses:
        return None
    limit = text_of(*clauses["LIMIT"])
    if not limit.isdigit():
        raise UnknownTextError(limit)
    return int(limit)


def named(pieces: Sequence[Piece]) -> tuple[str, Sequence[Piece]]:
    """An expression by its name. Raises as `clauses_of`."""
    if len(pieces) > 2 and isinstance(pieces[-2], str) and pieces[-2].upper() == "AS":
        return text_of(pieces[-1]), pieces[:-2]
    return text_of(*pieces).strip("`"), pieces


def text_of(*pieces: Piece) -> str:
    """The one word that is expected.

    Raises:
        UnknownTextError: It is something else.
    """
    if len(pieces) != 1 or not isinstance(pieces[0], str):
        raise UnknownTextError(str(pieces))
    return pieces[0]
