"""Tables in memory, which queue objects share as they share a location elsewhere."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.arrays import array, empty
from tubeq_spark.storage.arrow.columns import are_in, whole
from tubeq_spark.storage.arrow.decision import StatementOutcome
from tubeq_spark.storage.arrow.sources import held
from tubeq_spark.storage.arrow.statement import changed
from tubeq_spark.storage.ended import total
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.statement import Affected, Append

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.statement import Statement

_numbers = itertools.count(1)
#: The number of commits of a table that are found by their operation ids.
_KEPT = 200
#: A table with more chunks than these is combined into one.
_CHUNKS = 16


class StoredTable:
    """A table: its rows, and the data that otherwise a log has. The store's lock is held during its methods."""

    def __init__(
        self, schema: pa.Schema, by: Sequence[str], properties: Mapping[str, str], now_us: int
    ) -> None:
        """Begin without rows.

        Args:
            schema: Its columns.
            by: Its partition columns.
            properties: Its table properties.
            now_us: The moment.
        """
        self.rows = empty(schema)
        self.by = by
        self.properties = dict(properties)
        self.version = 0
        self.committed_us = now_us
        #: The versions that were written under application ids.
        self.transactions: dict[str, int] = {}
        #: The version and the changes of the newest commits, by their operation ids.
        self.commits: OrderedDict[int, tuple[int, Affected]] = OrderedDict()

    def execute(self, statement: Statement | Append, now_us: int) -> Affected:
        """Commit a statement, or nothing if it changes no row.

        Raises:
            RefusedError: A row would get `FAIL`.
            DuplicateError: Two source rows change one row of the table.
            StoreError: The rows are a DataFrame of Spark.
            pa.ArrowException: A value cannot be computed.
        """
        if isinstance(statement, Append):
            return self._append(statement, now_us)
        near = self._within(statement.partitions)
        found = changed(statement, near, self.by)
        outcome = StatementOutcome(statement, found, self.rows.schema, self.by)
        affected = outcome.affected()
        if not affected.total:
            return affected
        ended = statement.ended
        transaction = None if ended is None else ended.total(affected, self.transactions.get)
        if affected.total == affected.inserted:
            rows = [self.rows, outcome.inserted()]
        else:
            decision = outcome.decision(affected)
            gone = are_in(self.rows, self.by, decision.changed or ())
            rows = [self.rows.filter(pc.invert(gone)), decision.rows]
        self._commit(pa.concat_tables(rows), statement, affected, transaction, now_us)
        return affected

    def _within(self, partitions: Mapping[str, Sequence[int]]) -> pa.Table:
        rows = self.rows
        for name, values in partitions.items():
            column = rows.column(name)
            rows = rows.filter(pc.is_in(column, value_set=array(list(values), column.type)))
        return rows

    def _append(self, append: Append, now_us: int) -> Affected:
        once, rows = append.once, held(append.rows)
        if once is not None and self.transactions.get(once[0], -1) >= once[1]:
            return Affected()
        affected = Affected(inserted=rows.num_rows)
        if append.replaces is None:
            rows = pa.concat_tables([self.rows, whole(rows, self.rows.schema)])
        self._commit(rows, append, affected, once, now_us)
        return affected

    def _commit(
        self,
        rows: pa.Table,
        statement: Statement | Append,
        affected: Affected,
        transaction: tuple[str, int] | None,
        now_us: int,
    ) -> None:
        many = rows.num_columns and rows.column(0).num_chunks > _CHUNKS
        self.rows = rows.combine_chunks() if many else rows
        if transaction is not None:
            self.transactions[transaction[0]] = transaction[1]
        self.changed(now_us)
        self.commits[statement.operation_id] = self.version, affected
        if len(self.commits) > _KEPT:
            self.commits.popitem(last=False)

    def changed(self, now_us: int) -> None:
        """Begin the next version."""
        self.version += 1
        self.committed_us = now_us

    def ended(self, tube: int) -> int:
        """The number of ended tasks of a tube."""
        return self.transactions.get(total(tube), 0)


class _MemoryLock(TableLock):
    """Keeps the threads of this process apart. Other processes cannot see the table."""

    @property
    def is_exclusive(self) -> bool:
        """Return True: this lock excludes all other writers."""
        return True


class MemoryStore:
    """All tables of some queue objects, by their names. One lock guards all of them."""

    def __init__(self) -> None:
        """Begin without tables."""
        self.location = f"memory:{next(_numbers)}"
        self.lock = threading.RLock()
        self.tables: dict[str, StoredTable] = {}
        self.table_locks: defaultdict[str, TableLock] = defaultdict(lambda: _MemoryLock(None))

    def table(self, name: str) -> StoredTable:
        """A table.

        Raises:
            EngineError: There is no such table.
        """
        found = self.tables.get(name)
        if found is None:
            msg = f"there is no table {name}"
            raise EngineError(msg, Outcome.FAILED, missing=True)
        return found
