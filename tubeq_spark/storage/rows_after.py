"""Computes rows after a statement from its clauses and the rows before it, as the native engine does; and at a moment.

A verb hands these rows out and does not read them again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.storage.arrow.by_row import FewRows, NotByRowError, are_few, value_of
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array
from tubeq_spark.storage.arrow.evaluate import column
from tubeq_spark.storage.expression import Literal, Type
from tubeq_spark.storage.rows import STATES
from tubeq_spark.storage.tables.schema import TUBE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.storage.arrow.by_row import Read
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause

#: The attributes of a StoredTask by the columns of a tube.
_ATTRIBUTES = {
    "claim" if field.name == "take_id" else field.name: field.name for field in fields(StoredTask)
}


def rows_after(
    clauses: Iterable[Clause], rows: Sequence[StoredTask], source: pa.Table | None = None
) -> list[StoredTask]:
    """The rows after a statement, without removed ones. The first clause that applies to a row changes it.

    Args:
        clauses: The changes of a statement.
        rows: The rows before it.
        source: The source rows of these rows in their order, perhaps before others, if the clauses read them.

    Raises:
        NotByArrowError: A clause makes the statement fail.
    """
    after: list[StoredTask | None] = list(rows)
    left = list(range(len(rows)))
    columns = _Columns(rows, source)
    for clause in clauses:
        if not left:
            break
        applies = columns.values_of(clause.when)
        hits = [place for place in left if applies[place]]
        left = [place for place in left if not applies[place]]
        changes = _changes(clause, columns) if hits else None
        for place in hits:
            after[place] = None if changes is None else replace(rows[place], **changes[place])
    return [row for row in after if row is not None]


def rows_at(rows: Sequence[StoredTask], state: Expression) -> list[StoredTask | None]:
    """Rows with their states at a moment (`TubeTable.state`); `None` for a task whose ttl has ended."""
    letters = _Columns(rows).values_of(state)
    pairs = zip(rows, letters, strict=True)
    return [None if letter is None else row.seen_as(STATES[letter]) for row, letter in pairs]


class _Columns:
    """The columns of rows, and of their source rows."""

    def __init__(self, rows: Sequence[StoredTask], source: pa.Table | None = None) -> None:
        self._rows, self._source = rows, source
        self._few_source = None if source is None else FewRows(source)
        #: The columns for Arrow. Each is made when it is read first.
        self._lookup = cache(self._column)

    def values_of(self, expression: Expression) -> list[Any]:
        """The values of an expression for all rows; moments are microseconds."""
        count = len(self._rows)
        if isinstance(expression, Literal):
            return [expression.value] * count
        if are_few(count):
            with suppress(NotByRowError):
                return [value_of(expression, self._read(place)) for place in range(count)]
        found = column(expression, self._lookup, None, count)
        values: list[Any] = (
            found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found
        ).to_pylist()
        return values

    def _read(self, place: int) -> Read:
        """Reads the row at a place."""

        def read(alias: str, name: str) -> Any:
            if alias == "s" and self._few_source is not None:
                return self._few_source.column(name)[place]
            return getattr(self._rows[place], _ATTRIBUTES[name])

        return read

    def _column(self, alias: str, name: str) -> pa.Array:
        """The column of an alias and a name, for all rows."""
        if alias == "s" and self._source is not None:
            return self._source.column(name)[: len(self._rows)]
        kind = ARROW_TYPES[Type(TUBE_TYPES[name])]
        return array([getattr(row, _ATTRIBUTES[name]) for row in self._rows], kind)


def _changes(clause: Clause, columns: _Columns) -> list[dict[str, Any]] | None:
    """The attributes that a clause sets in each row; `None` if it removes rows."""
    sets = clause.sets
    if sets is None or clause.removes:
        return None
    values = {
        _ATTRIBUTES[name]: columns.values_of(value)
        for name, value in sets.items()
        if name in _ATTRIBUTES
    }
    if "state" in values:
        values["state"] = [STATES[letter] for letter in values["state"]]
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
