"""An opened location: its resolved path, and the locks of its writers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.rules.durability import Durability
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import SESSIONS, TUBES, local_directory
from tubeq_spark.storage.locking import TableLock, table_lock_of

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.location import Location

__all__ = ["LOCKS", "OpenedLocation", "recover_system_tables", "settle_system_tables"]


@dataclass(frozen=True, slots=True)
class OpenedLocation:
    """A location whose system tables exist.

    Attributes:
        location: As parsed.
        uri: Where it really is: the same for everybody, however it was named.
        locks: Directory of lock files; `None` when the storage keeps writers apart by itself.
        durability: What is promised for what is committed there, on local files.
        is_new: Whether its tables have just been made, so that there is nothing to be found in them.
    """

    location: Location
    uri: str
    locks: Path | None
    durability: Durability = Durability.NONE
    is_new: bool = False

    @classmethod
    def without_spark(cls, location: Location, durability: Durability) -> OpenedLocation:
        """A location that is no catalog's, named as Spark names it: both engines have the same locks."""
        directory = local_directory(location.text)
        if directory is None:
            return cls(location, location.text, None, durability)
        return cls(location, f"file:{directory}", directory / LOCKS, durability)

    def table_lock(self, name: str, *, as_it_is: bool = False) -> TableLock:
        """Return the table lock for this process's writers to a table.

        After a power cut the first that asks makes the table usable again, unless it wants it as it is.
        """
        # Catalogs name directories in lower case.
        directory = name.lower() if self.location.in_catalog else name
        return table_lock_of(
            self.uri, name, self.locks, self.durability, directory, as_it_is=as_it_is
        )


def recover_system_tables(opened: OpenedLocation) -> None:
    """Repair the tables that opening reads, after a power cut.

    Raises:
        StoreError: The directory of lock files cannot be made, or the tables cannot be looked at.
    """
    for name in (SESSIONS, TUBES):
        opened.table_lock(name)


def settle_system_tables(opened: OpenedLocation) -> None:
    """Sync the tables of a new queue, as far as durability asks for it.

    Raises:
        StoreError: They may not be there.
    """
    for name in (SESSIONS, TUBES):
        opened.table_lock(name).settle()
