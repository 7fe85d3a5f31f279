"""Computes rows after a statement from its clauses and the rows before it, as the native engine does; and at a moment.

A verb hands these rows out and does not read them again.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.states import TIMERS
from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array
from tubeq_spark.storage.arrow.evaluate import column
from tubeq_spark.storage.expression import TRUE, Literal, Type
from tubeq_spark.storage.tables.schema import TUBE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.storage.arrow.evaluate import Lookup
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Clause

_STATES = {state.value: state for state in TIMERS}
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
    lookup = _lookup_of(rows, source)
    for clause in clauses:
        if not left:
            break
        applies = values_of(TRUE if clause.when is None else clause.when, lookup, len(rows))
        hits = [place for place in left if applies[place]]
        left = [place for place in left if not applies[place]]
        changes = _changes(clause, lookup, len(rows)) if hits else None
        for place in hits:
            after[place] = None if changes is None else replace(rows[place], **changes[place])
    return [row for row in after if row is not None]


def rows_at(rows: Sequence[StoredTask], state: Expression) -> list[StoredTask | None]:
    """Rows with their states at a moment (`TubeTable.state`); `None` for a task whose ttl has ended."""
    letters = values_of(state, _lookup_of(rows), len(rows))
    pairs = zip(rows, letters, strict=True)
    return [None if letter is None else row.seen_as(_STATES[letter]) for row, letter in pairs]


def _lookup_of(rows: Sequence[StoredTask], source: pa.Table | None = None) -> Lookup:
    """The columns of rows and of their source rows. Each is made when it is read first."""

    @cache
    def lookup(alias: str, name: str) -> pa.Array:
        if alias == "s" and source is not None:
            return source.column(name)[: len(rows)]
        kind = ARROW_TYPES[Type(TUBE_TYPES[name])]
        return array([getattr(row, _ATTRIBUTES[name]) for row in rows], kind)

    return lookup


def values_of(expression: Expression, lookup: Lookup, count: int) -> list[Any]:
    """The values of an expression for this many rows; moments are microseconds."""
    if isinstance(expression, Literal):
        return [expression.value] * count
    found = column(expression, lookup, None, count)
    values: list[Any] = (
        found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found
    ).to_pylist()
    return values


def _changes(clause: Clause, lookup: Lookup, count: int) -> list[dict[str, Any]] | None:
    """The attributes that a clause sets in each row; `None` if it removes rows."""
    sets = clause.sets
    # With a change feed a removed row stays for the feed, with the negated id of the tube.
    if sets is None or "tube" in sets:
        return None
    values = {
        _ATTRIBUTES[name]: values_of(value, lookup, count)
        for name, value in sets.items()
        if name in _ATTRIBUTES
    }
    if "state" in values:
        values["state"] = [_STATES[letter] for letter in values["state"]]
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
