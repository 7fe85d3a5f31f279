"""Makes the syncs for which a commit to a log on local files waits, and shows waiting verbs the commits of others.

At durability "commit" a native commit has its contents on the disk before it gets its name. So a sync of the names in the
log writes the commit and all before it, also those of processes that were killed. Contents of Spark's commits, or of those
of an unknown writer, are not on the disk then, and the whole file system is synced.

The mark beside a table's lock file has the boot and the mount in which the log was last checked after a power cut.

The name of the next version is known in advance. So a waiting verb can check many times a second whether this file exists,
and reads the tube only after a commit that may matter.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tubeq_spark.config import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability import background
from tubeq_spark.storage.location import SYSTEM
from tubeq_spark.storage.locks.committer import SystemProcesses
from tubeq_spark.storage.log.log_files import commit_file, versions_of
from tubeq_spark.storage.statement import operation_in
from tubeq_spark.storage.store import local_files
from tubeq_spark.storage.store.local_files import SyncError, mount_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

#: Directory of lock files and marks, beside the tables of a location.
LOCKS = "_tubeq_locks"
#: The suffix of a mark's file.
MARK_SUFFIX = ".synced"
#: From this many files on, the whole file system is synced instead of each file.
_MANY = 50


@dataclass(frozen=True, slots=True)
class Place:
    """The boot and the mount; unsynced data is lost if one of them changes.

    Attributes:
        machine: The host.
        boot: The boot of its system.
        mount: The mount of the file system.
    """

    machine: str
    boot: str
    mount: str


def place_of(path: Path) -> Place:
    """The current boot and mount of a path."""
    machine, boot = _host()
    return Place(machine, boot, mount_of(path))


@functools.cache
def _host() -> tuple[str, str]:
    host = SystemProcesses().host()
    return f"{host.machine} {host.name}", host.boot


class SyncedLog:
    """The log of one table. Thread-safe; a committing thread holds the table's lock.

    Attributes:
        table: The directory of the table.
        log: The directory of its log.
        durability: Its durability; that of a table that others rely on is never "table".
        damage: A sentence about damage that was not repaired.
        is_sparks: Whether Spark commits, which gives commits their names before their contents are on the disk.
    """

    def __init__(self, table: Path, places: Callable[[Path], Place] = place_of) -> None:
        """Use the table at a directory, which may not exist yet.

        Args:
            table: The directory.
            places: Returns the boot and the mount of a path.
        """
        self.table = table
        self.log = table / "_delta_log"
        self.durability = Durability.COMMIT
        self.damage = ""
        self.is_sparks = False
        self._places = places
        self._mark = table.parent / LOCKS / f"{table.name}{MARK_SUFFIX}"
        #: Whether a sync has failed. Then it is not known what is on the disk.
        self._has_failed = False
        #: Whether this process has synced a commit. The first one of a new table must not get lost.
        self._has_begun = False
        self._changing = threading.RLock()

    def follow(self, durability: Durability) -> None:
        """Follow the durability of the location."""
        # Commits to other tables rely on these tables, so each of their commits is synced.
        is_in_step = durability is Durability.TABLE and self.table.name in SYSTEM
        self.durability = Durability.COMMIT if is_in_step else durability

    def place(self) -> Place:
        """The current boot and mount of the location."""
        return self._places(self.table.parent)

    def mark(self) -> Place | None:
        """The mark beside the table's lock; `None` if it cannot be read."""
        try:
            return Place(**json.loads(self._mark.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write_mark(self) -> None:
        """Note that the log was checked in this boot and mount. Without the mark the next process only checks again."""
        with suppress(OSError):
            self._mark.write_text(json.dumps(asdict(self.place())), encoding="utf-8")

    def is_of_now(self, mark: Place) -> bool:
        """Whether a mark is from this boot and mount; false if the system has no boot ids."""
        return bool(mark.boot) and mark == self.place()

    def newest_since(self, known: int = -1) -> int:
        """The newest version of the log, from a known one, which may be removed by now; -1 if the log is empty."""
        if not self._has(known):
            names: list[str] = []
            with suppress(FileNotFoundError):
                names = os.listdir(self.log)  # noqa: PTH208  (names are enough)
            return max(versions_of(names), default=-1)
        while self._has(known + 1):
            known += 1
        return known

    def _has(self, version: int) -> bool:
        return os.path.exists(commit_file(self.log, version))  # noqa: PTH110  (each wait asks)

    # -- before a commit ---------------------------------------------------------------------------

    def make_directory(self) -> None:
        """Make the directory of the log of a new table, if it does not exist; raises OSError."""
        self.log.mkdir(parents=True, exist_ok=True)
        self._has_begun = False
        if self.durability is not Durability.NONE:
            # The location may be new, too.
            for directory in (self.table, self.table.parent, self.table.parent.parent):
                local_files.sync_directory(directory)

    def prepare(self, files: Iterable[Path]) -> bool:
        """Sync the data files of a version that this process will commit, if necessary.

        Args:
            files: The files, below the table's directory.

        Returns:
            Whether the content of the commit file must be synced, too, before the file gets its name.

        Raises:
            OSError: The files may not be on the disk.
        """
        if self.durability is not Durability.COMMIT:
            return False
        found = list(files)
        if len(found) > _MANY:
            local_files.sync_file_system(self.log)
        else:
            self._sync_contents(found)
        return True

    def require_trust(self, *, is_known: bool = True) -> None:
        """Sync everything, if contents of earlier commits may not be on the disk.

        Args:
            is_known: Whether all of them were made by queues.

        Raises:
            SyncError: The sync fails; nothing was committed.
        """
        with self._changing:
            if (is_known and not self._has_failed) or self.durability is Durability.NONE:
                return
            try:
                local_files.sync_file_system(self.log)
                local_files.sync_directory(self.log)
            except OSError as error:
                msg = f"{self.table} cannot be written to the disk, so nothing is committed: "
                raise SyncError(msg + reason_of(error)) from error
            self._has_failed = False

    # -- after a commit ----------------------------------------------------------------------------

    def sync_commit(self) -> None:
        """Sync commits, if the durability requires it. The caller holds the table's lock.

        Raises:
            SyncError: A commit may not be on the disk.
        """
        durability = self.durability
        if durability is Durability.NONE:
            return
        if durability is Durability.TABLE and self._has_begun:
            background.flusher.add(self)
            return
        with self._changing:
            is_prepared = durability is Durability.COMMIT and not self.is_sparks
            try:
                if is_prepared and not self._has_failed:
                    local_files.sync_directory(self.log)
                else:
                    local_files.sync_file_system(self.log)
            except OSError as error:
                self._has_failed = True
                msg = f"the commit to {self.table} may not be on the disk: {reason_of(error)}"
                raise SyncError(msg) from error
            self._has_begun, self._has_failed = True, False

    def flush(self) -> None:
        """Sync all commits, by syncing the whole file system.

        It is called before files are removed because of the log, and by the flush of each second.

        Raises:
            OSError: The commits may not be on the disk.
        """
        if self.durability is Durability.NONE:
            return
        try:
            local_files.sync_file_system(self.log)
        except FileNotFoundError:
            # The table was removed since.
            return
        except OSError:
            self._has_failed = True
            raise

    def _sync_contents(self, files: Iterable[Path]) -> None:
        """Sync files, and all directories between them and the table."""
        directories: dict[Path, None] = {}
        for file in files:
            # A later commit may have removed the file.
            with suppress(FileNotFoundError):
                local_files.sync_file(file)
            for parent in file.parents:
                directories[parent] = None
                if parent == self.table:
                    break
        for directory in directories:
            with suppress(FileNotFoundError):
                local_files.sync_directory(directory)


_known: dict[str, SyncedLog] = {}
_known_guard = threading.Lock()


def synced_log_of(table: Path) -> SyncedLog:
    """Return the log of the table at a directory: one object for each process."""
    real = os.path.realpath(table)
    with _known_guard:
        found = _known.get(real)
        if found is None:
            found = _known[real] = SyncedLog(table)
        return found


#: The number of bytes to read for the note, which is in the first line.
_BEGINNING = 1 << 16


class Arrivals:
    """Counts commits to a table, except those of certain operations, from the first call on."""

    def __init__(self, synced: SyncedLog, but: Collection[str]) -> None:
        """Follow a log.

        Args:
            synced: The log.
            but: Operations that cannot end the wait.
        """
        self._synced = synced
        self._but = but
        self._last: int | None = None
        self._count = 0

    def count(self) -> int:
        """The number of such commits; 0 if the log cannot be read.

        The first call lists the names in the log. Later calls check for one name at a time.
        """
        with suppress(OSError):
            known = self._last
            newest = self._synced.newest_since(-1 if known is None else known)
            if known is not None and newest != known:
                new = range(known + 1, newest + 1)
                # If the table was created anew, its versions begin again.
                self._count += sum(map(self._matters, new)) if new else 1
            self._last = newest
        return self._count

    def _matters(self, version: int) -> bool:
        try:
            with open(commit_file(self._synced.log, version), "rb") as file:  # noqa: PTH123  (as its siblings)
                operation = operation_in(file.read(_BEGINNING))
        except FileNotFoundError:
            # While this process was suspended, the log was shortened beyond this version.
            return True
        # Commits without a note may be of any kind, so they count.
        return operation not in self._but
