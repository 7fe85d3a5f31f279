"""The base classes of the system tables: how they are read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.arrow.columns import ARROW_TYPES, table_of
from tubeq_spark.storage.commit_loop import CommitLoop, Plan, Stale
from tubeq_spark.storage.expression import Expression, Literal, Type, row
from tubeq_spark.storage.query import Select, Struct, count, greatest, last_by, named
from tubeq_spark.storage.statement import Affected, Clause, Statement
from tubeq_spark.storage.tables.schema import SESSION_COLUMNS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.locks.table_lock import TableLock

_ROW = row()
_KEY = ("bucket", "kind", "session", "key")
#: The types of the columns of `_tubeq_sessions`, in statements and in appended files.
TYPES = {name: Type(kind) for name, (kind, _) in SESSION_COLUMNS.items()}


@dataclass(eq=False)
class SystemTable:
    """A system table (by its SQL name), and the objects for commits to it."""

    _engine: Engine
    _table: str
    _loop: CommitLoop
    _table_lock: TableLock
    _random: random.Random

    @staticmethod
    def _one_inserted(affected: Affected) -> bool:
        """Return True if a statement has inserted its row; otherwise raise Stale, because the table has changed."""
        if affected.inserted != 1:
            raise Stale
        return True


class KeyedTable(SystemTable):
    """Rows of some kinds in `_tubeq_sessions`. Of the rows of a kind and key the one with the highest `seq` counts.

    Most rows are appended, and read nothing. A row that must be exclusive is inserted by a MERGE over the literal
    bucket, which all competing commits read. `Sessions.compact` removes replaced rows.
    """

    def _newest(self, where: Expression, **values: Expression) -> list[dict[str, Any]]:
        """The newest row of each key: its key columns, `seq`, `values`, and `n`, the number of its rows."""
        columns = {**named(*_KEY), "seq": greatest(_ROW.seq), "n": count()}
        if values:
            columns["last"] = last_by(Struct(values), _ROW.seq)
        rows = self._engine.rows(Select(self._table, columns, where, [*_KEY]))
        return [each | (each.get("last") or {}) for each in rows]

    def _append(self, operation: str, values: Mapping[str, Any]) -> None:
        """Add a row by a blind append, which conflicts with nothing. One commit."""
        kinds = {name: ARROW_TYPES[TYPES[name]] for name in values}
        added = table_of([[*values.values()]], kinds)

        def attempt() -> Plan[None]:
            return Plan(Statement(self._table, new=added), lambda _: None)

        self._loop.run(operation, self._table_lock, attempt)

    def _insert(self, values: Mapping[str, Any], unless: Expression) -> Statement:
        """Insert a row, unless another row `t` of its bucket fulfils a condition."""
        return Statement(
            self._table,
            inserts=[Clause({name: Literal(values[name], TYPES[name]) for name in values})],
            where=unless,
            by="bucket",
            reads=[values["bucket"]],
        )
