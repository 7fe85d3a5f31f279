"""The native engine over tables in memory, which queue objects share as they share a location elsewhere."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tubeq_spark.storage.durability.background import at_once
from tubeq_spark.storage.location import TUBES, Location
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.storage.log.tidying import Retention, Tidying
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.native.handles import Handles
from tubeq_spark.storage.native.plain_table import PlainTable
from tubeq_spark.storage.opened_location import OpenedLocation, create_system_tables
from tubeq_spark.storage.store.store import DictStore, Files, Patience

if TYPE_CHECKING:
    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.log.snapshot import Snapshot

_numbers = itertools.count(1)
#: So many of the newest versions can be read.
_VERSIONS = 200


class _MemoryLock(TableLock):
    """Keeps the threads of this process apart. Other processes cannot see the table."""

    @property
    def is_exclusive(self) -> bool:
        """Return True: this lock excludes all other writers."""
        return True


class MemoryLocation:
    """The files of a queue in memory, and the locks of its tables."""

    def __init__(self, clock: Clock) -> None:
        """Begin without tables; the clock tells when files are written."""
        self.text = f"memory://{next(_numbers)}"
        self.files = Files(lambda: clock.now().timestamp())
        self.lock = threading.Lock()
        self.table_locks: defaultdict[str, TableLock] = defaultdict(lambda: _MemoryLock(None))


class _MemoryRetention(Retention):
    """The retention in memory: nobody has read an old version for long."""

    versions = _VERSIONS


class _MemoryTidying(Tidying):
    """Also removes data files, for which nobody runs VACUUM here."""

    def clean(self, snapshot: Snapshot) -> None:
        """As `Tidying.clean`, and remove the data files that only removed versions name."""
        super().clean(snapshot)
        self.delete_removed(snapshot.version - _VERSIONS)


class _MemoryHandles(Handles):
    """Tables in memory."""

    def __init__(self, location: MemoryLocation, clock: Clock) -> None:
        """Use the tables of a location."""
        super().__init__()
        self._location, self._clock = location, clock

    def require_own_process(self) -> None:
        """Do nothing: no thread of another process is needed."""

    def plain(self, path: str) -> PlainTable:
        """The table at a path."""
        store = DictStore(self._location.files, path)
        tidying = _MemoryTidying(store, self._clock, _MemoryRetention(), at_once)
        return PlainTable(store, self._clock, tidying, Patience(0, 0.0))


class MemoryEngine(NativeEngine):
    """Runs queries and statements on tables in memory. Thread-safe."""

    def __init__(self, location: MemoryLocation, clock: Clock) -> None:
        """Work on the tables of a location; the clock is for the times of commits."""
        super().__init__(_MemoryHandles(location, clock))
        self.location = location


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedMemory(OpenedLocation):
    """A location in memory, which has the locks of its tables."""

    memory: MemoryLocation

    def lock_as_it_is(self, name: str) -> TableLock:
        """The lock of a table's writers."""
        with self.memory.lock:
            return self.memory.table_locks[name]


def open_location(engine: MemoryEngine, config: QueueConfig) -> OpenedLocation:
    """Create the system tables of a location if they do not exist."""
    memory = engine.location
    location = Location(memory.text)
    opened = _OpenedMemory(location, memory.text, None, memory=memory)
    if engine.tables.is_table(location.table(TUBES)):
        return opened
    create_system_tables(opened, config, engine, "memory")
    return replace(opened, is_new=True)
