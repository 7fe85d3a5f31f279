"""Records the last synced version of a log on local files, and makes the syncs for which a commit waits.

A version is synced when the contents and names of its data files and of its commit file are on the
disk, and those of all versions before it. A native commit has its contents on the disk before it gets its name.
Versions whose contents this process has not synced are those of Spark, of a process that was killed, or of an unknown
writer. Then the whole file system is synced.

The mark beside a table's lock file has the last synced version and the boot id, for the other processes of the
host. The mark itself need not be synced: after a power cut it may be an older one, with an earlier version.
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
from tubeq_spark.storage import disk
from tubeq_spark.storage.disk import SyncError, mount_of
from tubeq_spark.storage.durability import background
from tubeq_spark.storage.location import SYSTEM
from tubeq_spark.storage.locks.committer import processes
from tubeq_spark.storage.log.names import commit_file, versions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

#: Directory of lock files and marks, beside the tables of a location.
LOCKS = "_tubeq_locks"
#: The suffix of a mark's file.
MARK_SUFFIX = ".synced"
#: A mark overwrites the one before it, so all have the same length.
_LENGTH = 400
#: From so many files on, the whole file system is synced instead of each file.
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


@dataclass(frozen=True, slots=True)
class Mark:
    """The synced version of a log, with its boot and mount.

    Attributes:
        version: The version; -1 if none is synced.
        place: The boot and mount at that time.
    """

    version: int
    place: Place


def place_of(path: Path) -> Place:
    """The current boot and mount of a path."""
    machine, boot = _host()
    return Place(machine, boot, mount_of(path))


@functools.cache
def _host() -> tuple[str, str]:
    host = processes().host()
    return f"{host.machine} {host.name}", host.boot


class SyncedLog:
    """The log of one table. Thread-safe; a committing thread holds the table's lock."""

    def __init__(self, table: Path, places: Callable[[Path], Place] = place_of) -> None:
        """Use the table at a directory, which may not exist yet.

        Args:
            table: The directory.
            places: Returns the boot and the mount of a path.
        """
        self.table = table
        self.log = table / "_delta_log"
        #: The last version to read, if this process may not move later damaged ones aside.
        self.last_readable: int | None = None
        #: A sentence about damage that was not repaired.
        self.damage = ""
        self._durability = Durability.NONE
        # Commits to other tables rely on these tables, so each of their commits is synced.
        self._is_in_step = table.name in SYSTEM
        self._places = places
        self._mark = table.parent / LOCKS / f"{table.name}{MARK_SUFFIX}"
        self._synced = -1
        #: Later versions whose contents this process has synced.
        self._contents: set[int] = set()
        #: Whether a sync has failed. Then it is not known what is on the disk.
        self._has_failed = False
        self._changing = threading.RLock()

    def require(self, durability: Durability) -> None:
        """Raise the durability to at least this one."""
        with self._changing:
            if durability.rank > self._durability.rank:
                self._durability = durability

    @property
    def durability(self) -> Durability:
        """The durability of this table; for tables that others rely on it is never "table"."""
        if self._durability is Durability.TABLE and self._is_in_step:
            return Durability.COMMIT
        return self._durability

    def place(self) -> Place:
        """The current boot and mount of the table."""
        return self._places(self.table)

    def mark(self) -> Mark | None:
        """The mark beside the table's lock; `None` if it cannot be read."""
        try:
            found = json.loads(self._mark.read_bytes())
            return Mark(int(found["version"]), Place(**found["place"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def newest(self, known: int) -> int:
        """The newest version of the log, at or after a known one (-1 if none is known)."""
        while self._has(known + 1):
            known += 1
        return known

    def newest_since(self, known: int = -1) -> int:
        """The newest version of the log, from one that may be removed by now; -1 if the log is empty."""
        return self.newest(known) if self._has(known) else max(self._versions(), default=-1)

    # -- before a commit ---------------------------------------------------------------------------

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
            disk.sync_file_system(self.log)
        else:
            self._sync_contents(found)
        return True

    def committed(self, version: int) -> None:
        """Record that this process has committed a version with synced contents."""
        with self._changing:
            self._contents.add(version)

    def require_trust(self) -> None:
        """Sync everything after a sync that failed.

        Raises:
            SyncError: The sync fails again; nothing was committed.
        """
        with self._changing:
            if not self._has_failed:
                return
            try:
                disk.sync_file_system(self.log)
                disk.sync_directory(self.log)
            except OSError as error:
                msg = f"{self.table} cannot be written to the disk, so nothing is committed: "
                raise SyncError(msg + reason_of(error)) from error
            self._has_failed = False

    # -- after a commit ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Sync commits, if the durability requires it. The caller holds the table's lock.

        Raises:
            SyncError: A commit may not be on the disk.
        """
        durability = self.durability
        if durability is Durability.NONE:
            return
        if durability is Durability.TABLE and self._synced >= 0:
            background.flush_soon(self)
            return
        with self._changing:
            try:
                first = self._covered() + 1
                newest = self.newest(first - 1)
                if newest < first:
                    return
                self._sync_versions(first, newest)
            except OSError as error:
                self._has_failed = True
                msg = f"the commit to {self.table} may not be on the disk: {reason_of(error)}"
                raise SyncError(msg) from error
            self.remember(newest)

    def flush(self) -> None:
        """Sync all commits, by syncing the whole file system.

        It is called before files are removed because of the log, and by the flush of each second.

        Raises:
            OSError: The commits may not be on the disk.
        """
        if self.durability is Durability.NONE:
            return
        newest = self.newest(self._covered())
        try:
            disk.sync_file_system(self.log)
        except FileNotFoundError:
            # The table was removed since.
            self.forget()
            return
        except OSError:
            self._has_failed = True
            raise
        self.remember(newest)

    def remember(self, version: int) -> None:
        """Record, also for other processes, the version up to which the log is synced."""
        with self._changing:
            self._synced = max(self._synced, version)
            self._contents = {later for later in self._contents if later > version}
            # Without the mark the next process only syncs once more.
            with suppress(OSError):
                self._write(Mark(self._synced, self.place()))

    def _write(self, mark: Mark) -> None:
        file = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            # One write, so that another process reads this mark or the one before it.
            os.write(file, json.dumps(asdict(mark)).encode().ljust(_LENGTH))
        finally:
            os.close(file)

    def forget(self) -> None:
        """Forget everything, because the path has another table by now."""
        with self._changing:
            self._synced, self._contents = -1, set()

    def _covered(self) -> int:
        """The last synced version, by any process."""
        if self._synced >= 0 and not self._has(self._synced):
            # The log was shortened since, or the path has another table by now.
            self.forget()
        if self._synced >= 0 and self._synced + 1 in self._contents:
            return self._synced
        mark = self.mark()
        is_valid = mark is not None and self.is_of_now(mark) and self._has(mark.version)
        if mark is not None and is_valid:
            self._synced = max(self._synced, mark.version)
        elif self._synced < 0:
            self._synced = min(self._versions(), default=0) - 1
        return self._synced

    def _has(self, version: int) -> bool:
        return os.path.exists(commit_file(self.log, version))  # noqa: PTH110  (each commit asks)

    def is_of_now(self, mark: Mark) -> bool:
        """Whether a mark is from this boot and mount; false if the system has no boot ids."""
        return bool(mark.place.boot) and mark.place == self.place()

    def _versions(self) -> list[int]:
        """The versions of the commits in the log."""
        try:
            return versions_of(os.listdir(self.log))  # noqa: PTH208  (names are enough)
        except FileNotFoundError:
            return []

    # -- syncs -------------------------------------------------------------------------------------

    def _sync_versions(self, first: int, last: int) -> None:
        if not self._contents.issuperset(range(first, last + 1)):
            disk.sync_file_system(self.log)
            return
        disk.sync_directory(self.log)
        if not first:
            # The table is new, and its location may be new, too.
            for directory in (self.table, self.table.parent, self.table.parent.parent):
                disk.sync_directory(directory)

    def _sync_contents(self, files: Iterable[Path]) -> None:
        """Sync files, and all directories between them and the table."""
        directories: dict[Path, None] = {}
        for file in files:
            # A later commit may have removed the file.
            with suppress(FileNotFoundError):
                disk.sync_file(file)
            for parent in file.parents:
                directories[parent] = None
                if parent == self.table:
                    break
        for directory in directories:
            with suppress(FileNotFoundError):
                disk.sync_directory(directory)


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
