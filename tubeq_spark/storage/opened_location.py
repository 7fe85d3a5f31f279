"""An opened location: its real path or URI, and the engine that may commit there.

On S3 a commit of Spark goes through a table of DynamoDB (or is not safe at all), and a commit of
the native engine uses a conditional put. Neither sees the other, so one would overwrite the other.
On such storage the location records at its creation which engine commits to it; `admin/hand_over`
changes that from Spark to the native engine. On local files the lock file keeps both engines apart. Other object
stores refuse to overwrite a version, for both engines.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tubeq_spark.errors import StoreError
from tubeq_spark.model.durability import Durability
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import SESSIONS, TUBES, local_directory
from tubeq_spark.storage.locks.table_lock import TableLock, table_lock_of

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.engine import Tables
    from tubeq_spark.storage.location import Location


class OtherEngineError(StoreError):
    """The location belongs to the other engine, whose commits ours would overwrite."""


@dataclass(frozen=True, slots=True)
class OpenedLocation:
    """A location whose system tables exist.

    Attributes:
        location: The parsed location.
        uri: Its real path or URI, which is the same for all programs, however they name the location.
        locks: The directory of lock files; `None` if the storage itself keeps writers apart.
        durability: The durability of commits, on local files.
        is_new: Whether its tables were just created, so that they are empty.
    """

    location: Location
    uri: str
    locks: Path | None
    durability: Durability = Durability.NONE
    is_new: bool = False

    @classmethod
    def without_spark(cls, location: Location, durability: Durability) -> OpenedLocation:
        """A location that is not in a catalog. Its `uri` is the one of Spark, so both engines use the same locks."""
        directory = local_directory(location.text)
        if directory is None:
            return cls(location, location.text, None, durability)
        return cls(location, f"file:{directory}", directory / LOCKS, durability)

    @property
    def has_one_engine(self) -> bool:
        """Whether only one kind of engine may commit there."""
        return not self.location.in_catalog and allows_one_engine_only(self.uri)

    def table_lock(self, name: str, *, as_it_is: bool = False) -> TableLock:
        """Return the table lock for this process's writers to a table.

        After a power cut the first call for a table repairs it, unless `as_it_is` is true.
        """
        # Catalogs name directories that they choose in lower case.
        is_named_by_catalog = self.location.in_catalog and self.location.storage is None
        directory = name.lower() if is_named_by_catalog else name
        return table_lock_of(
            self.uri, name, self.locks, self.durability, directory, as_it_is=as_it_is
        )


def recover_system_tables(opened: OpenedLocation) -> None:
    """Repair the tables that opening reads, after a power cut.

    Raises:
        StoreError: The directory of lock files cannot be made, or the tables cannot be read.
    """
    for name in (SESSIONS, TUBES):
        opened.table_lock(name)


def settle_system_tables(opened: OpenedLocation) -> None:
    """Sync the tables of a new queue, if the durability requires it.

    Raises:
        StoreError: The tables may not be on the disk.
    """
    for name in (SESSIONS, TUBES):
        opened.table_lock(name).settle()


#: The property of the registry with the engine that may commit to the location, where only one may.
WRITERS = "tubeq.writers"
#: Seconds after which an engine reads that property again.
_LOOK_EVERY = 4.0


def allows_one_engine_only(uri: str) -> bool:
    """Whether only one kind of engine may commit to a location."""
    return urlsplit(uri).scheme in ("s3", "s3a", "s3n")


def writers_of(tables: Tables, location: Location) -> str | None:
    """The engine that may commit to a location where only one kind may; `None` if it has no queue."""
    table = location.table(TUBES)
    # Locations that were created before the native engine existed belong to Spark.
    return (tables.property(table, WRITERS) or "spark") if tables.is_table(table) else None


def require_writers(tables: Tables, opened: OpenedLocation, engine: str) -> None:
    """Refuse an engine if the other one commits to the location.

    Raises:
        OtherEngineError: The location belongs to the other engine.
    """
    if not opened.has_one_engine:
        return
    # Locations that were created before the native engine existed belong to Spark.
    theirs = tables.property(opened.location.table(TUBES), WRITERS) or "spark"
    if theirs != engine:
        raise OtherEngineError(_refusal(opened, theirs, engine))


def why_not(opened: OpenedLocation, other: str, engine: str) -> str | None:
    """Why an engine must not commit to a location of another one; `None` if it may.

    Args:
        opened: The location.
        other: The engine that commits to the location.
        engine: The engine that would commit, too.
    """
    if other == engine or not opened.has_one_engine:
        return None
    return _refusal(opened, other, engine)


def _refusal(opened: OpenedLocation, theirs: str, engine: str) -> str:
    msg = (
        f"{opened.uri} belongs to engine={theirs!r}: on S3 the commits of engine={engine!r} and its "
        f"would overwrite each other; open it with engine={theirs!r}"
    )
    if theirs != "spark":
        return msg
    return f"{msg}, or stop all its programs and run `tubeq upgrade` with a Spark session"


class Permission:
    """Whether an engine may still commit to a location where only one may. For threads."""

    def __init__(self, tables: Tables, opened: OpenedLocation, engine: str, clock: Clock) -> None:
        """Begin with an engine that `require_writers` has just accepted.

        Args:
            tables: The tables of the engine.
            opened: The location.
            engine: The name of the engine.
            clock: Real time.
        """
        self._tables, self._opened, self._engine = tables, opened, engine
        self._clock = clock
        self._looked = clock.monotonic()
        self._lock = threading.Lock()
        #: The number of calls of `forget`. The result of a read that began before the last one does not count.
        self._forgotten = 0

    def forget(self) -> None:
        """Read the property again before the next commit."""
        with self._lock:
            self._forgotten += 1
            self._looked = -math.inf

    def require(self) -> None:
        """Refuse the engine if the location belongs to another one by now. It reads this every four seconds.

        Raises:
            OtherEngineError: The location belongs to another engine.
            StoreError: The property cannot be read.
        """
        with self._lock:
            now, forgotten = self._clock.monotonic(), self._forgotten
            if now - self._looked < _LOOK_EVERY:
                return
        require_writers(self._tables, self._opened, self._engine)
        with self._lock:
            if forgotten == self._forgotten:
                self._looked = now
