"""The engine for the queue's tables in memory."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.arrow.columns import records
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.select import answer, innermost
from tubeq_spark.storage.engine import EngineOfThisProcess
from tubeq_spark.storage.location import TUBES, Location
from tubeq_spark.storage.memory.tables import MemoryTables
from tubeq_spark.storage.opened_location import OpenedLocation
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.query import Union
from tubeq_spark.storage.tables.schema import new_system_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.locks.table_lock import TableLock
    from tubeq_spark.storage.memory.store import MemoryStore
    from tubeq_spark.storage.outcome import Note
    from tubeq_spark.storage.query import Query
    from tubeq_spark.storage.statement import Affected, Append, Statement

T = TypeVar("T")


class MemoryEngine(EngineOfThisProcess):
    """Runs queries and statements on tables in memory. Thread-safe."""

    #: Tables in memory can always be reached.
    unreachable = False
    #: Tables in memory have no change feed, so this engine may write to any tube.
    keeps_feeds = True

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        """Work on the tables of a store.

        Args:
            store: The tables.
            clock: The clock for the times of commits.
        """
        self.store = store
        self._clock = clock
        self._tables = MemoryTables(store, self._now_us)

    def _now_us(self) -> int:
        return to_us(self._clock.now())

    @property
    def tables(self) -> MemoryTables:
        """The object that creates, changes and measures its tables."""
        return self._tables

    def close(self) -> None:
        """Do nothing: other queue objects may share the store."""

    @staticmethod
    def patience() -> AbstractContextManager[None]:
        """Do nothing: no request can get lost."""
        return nullcontext()

    @staticmethod
    def operating(_operation: str, _table: str | None) -> AbstractContextManager[None]:
        """Do nothing: no request can get lost, and no UI shows the operation."""
        return nullcontext()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run a block that reads, and turn errors of Arrow into `StoreError`.

        Raises:
            StoreError: A value cannot be computed.
        """
        try:
            yield
        except (pa.ArrowException, NotByArrowError) as error:
            msg = f"the tables in memory could not be read: {error}"
            raise StoreError(msg) from error

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        return records(self.arrow(query))

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query; `expected` does not matter."""
        if isinstance(query, Union):
            # Each select reads another table.
            return pa.concat_tables([self.arrow(each, expected) for each in query.selects])
        with self.store.lock:
            rows = self.store.table(str(innermost(query).table)).rows
        with self.reading():
            return answer(query, rows)

    def look_ahead(self, table: str) -> None:
        """Do nothing: all rows are in memory."""

    @staticmethod
    def memory_for(_statement: Statement | Append) -> int:
        """Return 0: the stored rows are in memory anyway."""
        return 0

    def execute(self, statement: Statement | Append, note: Note) -> Affected:
        """Commit a statement, or nothing if it changes no row.

        Raises:
            EngineError: A row would get `FAIL`, or a value cannot be computed.
            StoreError: The rows are a DataFrame of Spark.
        """
        with self.store.lock:
            try:
                return self.store.table(statement.table).execute(statement, self._now_us())
            except (pa.ArrowException, NotByArrowError) as error:
                raise EngineError(str(error), Outcome.FAILED) from error

    def find(self, statement: Statement | Append) -> Affected | None:
        """The rows changed by a statement that may be committed; `None` if it is not."""
        found = self._commit(statement.table, statement.operation_id)
        return None if found is None else found[1]

    def version_of(self, table: str, operation_id: int) -> int | None:
        """The version of the commit with an operation id."""
        found = self._commit(table, operation_id)
        return None if found is None else found[0]

    def _commit(self, table: str, operation_id: int) -> tuple[int, Affected] | None:
        with self.store.lock:
            return self.store.table(table).commits.get(operation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryLocation(OpenedLocation):
    """The location of a store, which has the locks of its tables."""

    store: MemoryStore

    def table_lock(self, name: str, *, as_it_is: bool = False) -> TableLock:
        """The lock of a table's writers."""
        with self.store.lock:
            return self.store.table_locks[name]


def open_location(engine: MemoryEngine, config: QueueConfig) -> OpenedLocation:
    """Create the system tables of a store if they do not exist."""
    store = engine.store
    location = Location(store.location)
    opened = _MemoryLocation(location, store.location, None, store=store)
    with store.lock:
        if engine.tables.is_table(location.table(TUBES)):
            return opened
        for table in new_system_tables(location, config, "memory"):
            engine.tables.create(table)
    return replace(opened, is_new=True)
