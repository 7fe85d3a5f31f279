"""An opened location: its real path or URI, and the committer and the durability that its registry names.

All commits at a location are native, or all are Spark's. Neither sees all of the other's: Spark renames over an existing
version on local files, and on S3 it does not know the conditional PUT by which a native commit becomes a version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tubeq_spark.config import Durability, QueueConfig
from tubeq_spark.errors import StoreError
from tubeq_spark.model.validation import refuse
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import SESSIONS, TUBES, Location, local_directory
from tubeq_spark.storage.locks.table_lock import TableLock, table_lock_of
from tubeq_spark.storage.tables.schema import (
    COMMITTER,
    DURABILITY,
    FORMAT,
    OUR_FORMAT,
    new_system_tables,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tubeq_spark.storage.engine import Engine

#: The committers.
NATIVE, SPARK = "native", "spark"


@dataclass(frozen=True, slots=True)
class OpenedLocation:
    """A location whose system tables exist.

    Attributes:
        location: The parsed location.
        uri: Its real path or URI, which is the same for all programs, however they name the location.
        locks: The directory of lock files; `None` if the storage itself keeps writers apart.
        durability: The durability of commits, on local files; "commit" until the registry was read.
        is_new: Whether its tables were just created, so that they are empty.
    """

    location: Location
    uri: str
    locks: Path | None
    durability: Durability = Durability.COMMIT
    is_new: bool = False

    @classmethod
    def without_spark(cls, location: Location) -> OpenedLocation:
        """A location that is not in a catalog."""
        directory = local_directory(location.text)
        if directory is None:
            return cls(location, location.text, None)
        return cls(location, f"file:{directory}", directory / LOCKS)

    def table_lock(self, name: str) -> TableLock:
        """Return the lock of a table, for this process's writers; the first call after a power cut repairs the table."""
        table_lock = self.lock_as_it_is(name)
        table_lock.recover()
        return table_lock

    def lock_as_it_is(self, name: str) -> TableLock:
        """The same for a caller that checks the table itself."""
        # Catalogs name directories in lower case.
        directory = name.lower() if self.location.in_catalog else name
        return table_lock_of(self.uri, name, self.locks, self.durability, directory)


def recover_system_tables(opened: OpenedLocation) -> None:
    """Repair the tables that opening reads, after a power cut.

    Raises:
        StoreError: The directory of lock files cannot be made, or the tables cannot be read.
    """
    for name in (SESSIONS, TUBES):
        opened.table_lock(name)


def create_system_tables(
    opened: OpenedLocation, config: QueueConfig, engine: Engine, name: str
) -> None:
    """Create the tables of a new queue, and sync them, if the durability requires it.

    Args:
        opened: The location.
        config: The settings of the queue.
        engine: The engine that creates them.
        name: Its name, as that of the committer.

    Raises:
        StoreError: The tables cannot be created, or may not be on the disk.
    """
    with opened.table_lock(TUBES).changing(engine.committing_jvm):
        for table in new_system_tables(
            opened.location, config, name, local=opened.locks is not None
        ):
            engine.tables.create(table)
    opened.table_lock(SESSIONS).sync_commit()


def require_format(marks: Mapping[str, str | None], location: object) -> None:
    """Refuse a location of another format.

    Args:
        marks: The properties of its registry.
        location: Its path or URI.

    Raises:
        StoreError: It has another format.
    """
    if marks.get(FORMAT) != OUR_FORMAT:
        raise StoreError(
            f"{location} was made by another version of tubeq_spark, in a format that this one does not read: "
            "make a new queue at another place, and take the tasks of this one with the version that made it"
        )


def require_ours(
    marks: Mapping[str, str | None],
    opened: OpenedLocation,
    engine: str,
    durability: str | None = None,
) -> OpenedLocation:
    """Refuse a location of another format, and an engine or a durability that is not its own.

    Args:
        marks: The properties of the registry.
        opened: The location.
        engine: The engine that opens it.
        durability: The durability that the program names, if any.

    Returns:
        The location with its durability.

    Raises:
        StoreError: The location has another format, or the other engine commits there.
        InvalidOptionError: It has another durability.
    """
    place = opened.location.text
    require_format(marks, place)
    committer, own = marks[COMMITTER], marks[DURABILITY] or ""
    if committer != engine:
        is_sparks = committer == SPARK
        raise StoreError(belongs_to_spark(place) if is_sparks else _belongs_to_native(place))
    if opened.locks is not None and durability not in (None, own):
        allowed = f"{own!r}, with which {place} was made: leave it out, or make a new queue"
        refuse("durability", durability, allowed)
    return replace(opened, durability=Durability(own))


def belongs_to_spark(place: str) -> str:
    """The error text if a program opens a location of Spark without it."""
    return (
        f"all commits at {place} are made by Spark (engine='spark'): open it with a Spark session, and without "
        "engine='native'"
    )


def _belongs_to_native(place: str) -> str:
    return (
        f"all commits at {place} are native (engine='native'): open it by its path or URI and without "
        "engine='spark'; a Spark session may be given all the same. An object store needs the extra `native` and "
        "credentials for it (storage_options)"
    )
