"""A location that was opened: where it really is, and how its writers are kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.locking import TableLock, table_lock_of

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.location import Location

__all__ = ["LOCKS", "OpenedLocation"]

#: Directory of lock files, on local storage.
LOCKS = "_tubeq_locks"


@dataclass(frozen=True, slots=True)
class OpenedLocation:
    """A location whose system tables exist.

    Attributes:
        location: As parsed.
        uri: Where it really is: the same for everybody, however it was named.
        locks: Directory of lock files; `None` when the storage keeps writers apart by itself.
        is_new: Whether its tables have just been made, so that there is nothing to be found in them.
    """

    location: Location
    uri: str
    locks: Path | None
    is_new: bool = False

    def table_lock(self, name: str) -> TableLock:
        """The way of this process's writers to a table."""
        return table_lock_of(self.uri, name, self.locks)
