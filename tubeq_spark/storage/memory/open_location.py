"""Opens the location of queues in memory: its tables are made if need be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tubeq_spark.storage.location import TUBES, Location
from tubeq_spark.storage.opened_location import OpenedLocation
from tubeq_spark.storage.tables.schema import new_system_tables

if TYPE_CHECKING:
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.locking import TableLock
    from tubeq_spark.storage.memory.engine import MemoryEngine
    from tubeq_spark.storage.memory.store import MemoryStore

__all__ = ["open_location"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryLocation(OpenedLocation):
    """The location of a store, which has the locks of its tables."""

    store: MemoryStore

    def table_lock(self, name: str, *, as_it_is: bool = False) -> TableLock:
        """The way of this process's writers to a table."""
        with self.store.lock:
            return self.store.table_locks[name]


def open_location(engine: MemoryEngine, config: QueueConfig) -> OpenedLocation:
    """Make sure of the system tables of a store."""
    store = engine.store
    location = Location(store.location)
    opened = _MemoryLocation(location, store.location, None, store=store)
    with store.lock:
        if engine.tables.is_table(location.table(TUBES)):
            return opened
        for table in new_system_tables(location, config):
            engine.tables.create(table)
    return replace(opened, is_new=True)
