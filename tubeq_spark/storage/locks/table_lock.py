"""Table locks for writers: a lock between threads of a process, a lock file between processes.

Hadoop's rename on a local file system overwrites. So two processes could both commit the same
version, and one of them would lose its tasks without an error. Therefore every write to a `file:`
table holds the table's lock file.

A process that asks again at once would always be faster than waiting processes. So processes wait in
line, at a second file beside the lock file. Only the first in line waits for the lock file. When it has
the lock, it lets the next one move up. Both waits are blocking locks of the operating system,
which wakes the next process; on Windows, which has none, the process polls. The first in line can prepare
its work while it waits.

Where Spark commits, Python holds the lock file, but a JVM makes the commit, and it may live longer than
its Python. So while a statement runs, a note beside the lock file names the JVM that may be committing. A
process that finds the note of another JVM waits until that JVM has ended. A native commit ends with the
process that holds the lock file, so it needs no note.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import Durability
from tubeq_spark.errors import CommitUnknownError, StoreError, TubeqError
from tubeq_spark.model.validation import was_forked
from tubeq_spark.storage.durability.recovery import recover
from tubeq_spark.storage.durability.synced_log import Place, SyncedLog, synced_log_of
from tubeq_spark.storage.locks.committer import (
    Committer,
    JvmNote,
    SystemProcesses,
    fcntl,
    is_answered,
)
from tubeq_spark.storage.store.local_files import make_directory, using

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


log = logging.getLogger(__name__)

#: The suffix of the file at which processes wait in line.
TURN_SUFFIX = ".turn"
#: Seconds between two attempts to get a lock, if the system does not wake the process.
_POLL = 0.003


def _nothing() -> None:
    """Prepare nothing."""


class LockFile:
    """The lock file of a table, held by one process at a time; its holder may enter it again.

    The callers let in one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        """Use a lock file, which may not exist yet."""
        self.path = path
        self._file = system_lock(path)
        self._line = system_lock(path.with_suffix(TURN_SUFFIX))
        self._process = os.getpid()
        #: How often its holder has entered it.
        self.entered = 0

    @contextmanager
    def holding(self, prepare: Callable[[], None] = _nothing) -> Iterator[None]:
        """Hold it during a block. Errors of the block stay unchanged.

        Args:
            prepare: Called while this process is the first in line. It must not raise.

        Raises:
            OSError: The lock cannot be used.
            StoreError: This process was forked from the one that uses the lock.
        """
        if os.getpid() != self._process:
            # A forked process has the ids and the session of its parent, too.
            raise was_forked(os.getpid(), self._process, f"uses {self.path.parent}")
        if not self.entered:
            try:
                self._wait(prepare)
            except BaseException:
                # The acquisition was interrupted in its last steps.
                self._file.release()
                raise
        self.entered += 1
        try:
            yield
        finally:
            self.entered -= 1
            if not self.entered:
                try:
                    self._file.release()
                except OSError:
                    # The block has committed, so it must not fail. The system has closed the file.
                    log.warning("%s could not be released: others wait", self.path, exc_info=True)

    def _wait(self, prepare: Callable[[], None]) -> None:
        try:
            self._line.acquire()
            if not self._file.acquire(waits=False):
                prepare()
                self._file.acquire()
        finally:
            self._line.release()


class Flock:
    """A lock of the operating system on a file, which ends with the process at the latest."""

    def __init__(self, path: Path) -> None:
        """Use a file, which may not exist yet."""
        self._path = path
        self._descriptor: int | None = None
        _flocks.add(self)

    def acquire(self, *, waits: bool = True) -> bool:
        """Lock it, and return whether this process has it.

        Args:
            waits: Whether to wait for another holder.

        Raises:
            OSError: The file, or its file system, cannot be locked.
        """
        while True:
            self._descriptor = self._opened()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
                # Somebody may have removed the file meanwhile.
                if os.fstat(self._descriptor).st_nlink:
                    return True
            except BaseException as error:
                self.forget()
                # Some file systems say EACCES.
                if not waits and isinstance(error, (BlockingIOError, PermissionError)):
                    return False
                raise
            self.forget()

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT
        try:
            return os.open(self._path, flags, 0o666)
        except FileNotFoundError:
            # Somebody has removed the location. The tables, which are gone too, have the better error.
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, flags, 0o666)

    def release(self) -> None:
        """Unlock it, if this process has it.

        Raises:
            OSError: The system has failed.
        """
        if self._descriptor is None:
            return
        try:
            # Closing is not enough, because a child process may have the file open, too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the file. The lock stays with other processes that have it open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Polled:
    """The lock of a file on a system that cannot wait for one."""

    def __init__(self, path: Path) -> None:
        """Use a file, which may not exist yet."""
        from filelock import FileLock  # noqa: PLC0415

        # Another thread may release it.
        self._file = FileLock(path, thread_local=False)

    def acquire(self, *, waits: bool = True) -> bool:
        """Lock it, as `Flock` does."""
        from filelock import Timeout  # noqa: PLC0415

        try:
            self._file.acquire(timeout=-1 if waits else 0, poll_interval=_POLL)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Unlock it, as `Flock` does."""
        self._file.release(force=True)


def system_lock(path: Path) -> Flock | Polled:
    """Return the lock of a file between processes. It is not held yet, and the file may not exist."""
    return Polled(path) if fcntl is None else Flock(path)


#: All locks of this process.
_flocks: WeakSet[Flock] = WeakSet()


def _forget_all() -> None:
    for flock in list(_flocks):
        flock.forget()


if hasattr(os, "register_at_fork"):
    # A child process would otherwise keep the locks, and could release them.
    os.register_at_fork(after_in_child=_forget_all)


#: The suffix of a table's lock file.
LOCK_SUFFIX = ".lock"
#: A thread that has waited this many seconds for one that got no answer from the storage does not try itself.
_LONG = 5.0


class TableLock:
    """The lock of all writers of this process to one table; it also wakes waiting takes."""

    def __init__(
        self,
        lock_file: Path | None,
        wall: Clock | None = None,
        here: SystemProcesses | None = None,
        synced: SyncedLog | None = None,
    ) -> None:
        """Guard a table.

        Args:
            lock_file: The lock file that excludes other processes; `None` if the storage does.
            wall: The clock; real time by default.
            here: The processes of this host; by default those of the system.
            synced: Its log, which is synced after commits; `None` if the storage is durable by itself.
        """
        #: Its log on the disk; `None` if the storage is durable by itself.
        self.synced = synced
        #: The boot and mount at the last check of the table after a power cut.
        self._seen_on: Place | None = None
        self._threads = threading.RLock()
        self._wall = SystemClock() if wall is None else wall
        self._file = None if lock_file is None else LockFile(lock_file)
        self._note = None if lock_file is None else JvmNote(lock_file, self._wall, here)
        #: It grows when this process may have made a task ready or freed capacity.
        self.changes = 0
        #: The time and the error of the last holder that got no answer from the storage.
        self._silent: tuple[float, TubeqError] | None = None
        #: The last task id that any queue object of this process has made in this tube.
        self.last_id = -1
        #: Whether the tube of this table was dropped, as far as this process knows.
        self.is_dropped = False

    @contextmanager
    def writing(
        self,
        committer: Callable[[], Committer | None],
        prepare: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Hold the table lock, between threads and, if needed, between processes of this host.

        Args:
            committer: Returns the JVM that will commit; `None` if this process commits itself.
            prepare: Called while another process holds the lock and this one is next. It must not raise.

        Raises:
            StoreError: Another JVM may be committing, and did not end within the wait; the lock file cannot be
                used; or this thread has waited for one that got no answer from the storage.
        """
        began = self._wall.monotonic()
        with self._threads:
            if self._file is None or self._note is None:
                with self._hearing(began):
                    yield
                return
            with ExitStack() as held:
                with using(self._file.path):
                    held.enter_context(self._file.holding(prepare))
                if self._file.entered == 1 and (jvm := committer()) is not None:
                    with using(self._note.path):
                        self._note.wait_for_others(jvm)
                yield

    @contextmanager
    def _hearing(self, began: float) -> Iterator[None]:
        """Record, for waiting threads, whether a block gets no answer from the storage.

        Otherwise each thread would wait for its own time-out, after those of all threads before it.

        Raises:
            StoreError: This thread has waited for one that got no answer.
        """
        silent = self._silent
        if silent is not None and silent[0] > began and silent[0] - began > _LONG:
            msg = f"nothing was written, as the verb before this one had no answer: {silent[1]}"
            raise StoreError(msg, passes=True) from silent[1]
        try:
            yield
        except (StoreError, CommitUnknownError) as error:
            if error.passes:
                self._silent = (self._wall.monotonic(), error)
            raise

    @contextmanager
    def committing(self, committer: Callable[[], Committer | None]) -> Iterator[Callable[[], None]]:
        """Run a statement under the lock, with a note that its JVM may be committing.

        A statement that ends without an answer may still run in its JVM. The note stays until the
        JVM has ended, or until somebody removes it by hand.

        Args:
            committer: Returns the JVM that will commit; `None` if this process commits itself.

        Yields:
            A function that the block calls as soon as the statement has ended. After that an error of the block does
            not matter.

        Raises:
            StoreError: The note cannot be written, or the table cannot be written to the disk; the statement was
                not run.
        """
        if self.synced is not None:
            self.synced.require_trust()
        jvm = None if self._note is None else committer()
        if self._note is None or jvm is None:
            yield lambda: None
            return
        if self.synced is not None:
            self.synced.is_sparks = True
        self._note.begin(jvm)
        ended = threading.Event()
        try:
            yield ended.set
            ended.set()
        except Exception as error:
            if is_answered(error):
                ended.set()
            raise
        finally:
            self._note.end(has_ended=ended.is_set())

    @contextmanager
    def changing(self, committer: Callable[[], Committer | None]) -> Iterator[None]:
        """Hold the table lock for statements that need no read before them.

        Raises:
            StoreError: The statements could not be run, or their commits may not be on the disk.
        """
        with self.writing(committer), self.committing(committer):
            yield
            self.sync_commit()

    def sync_commit(self) -> None:
        """Sync commits to the disk, if the durability requires it. The caller holds the lock.

        Raises:
            SyncError: A commit may not be on the disk.
        """
        if self.synced is not None:
            self.synced.sync_commit()

    def flush(self) -> None:
        """Sync all commits to the disk, before files are removed because of the log.

        Raises:
            OSError: A commit may not be on the disk.
        """
        if self.synced is not None:
            self.synced.flush()

    def recover(self) -> None:
        """Begin to use the table; repair it first after a power cut."""
        if self.synced is None or self._file is None:
            return
        with self._threads:
            place = self.synced.place()
            if self._seen_on != place:
                with using(self.synced.log):
                    recover(self.synced, self._file.holding)
                self._seen_on = place

    @property
    def is_exclusive(self) -> bool:
        """Whether this lock excludes all other writers of the table."""
        return self._note is not None and not self._note.is_left

    def wake_takes(self) -> None:
        """Wake this process's waiting takes."""
        self.changes += 1


_table_locks: dict[tuple[str, str], TableLock] = {}
_table_locks_guard = threading.Lock()


def table_lock_of(
    uri: str,
    name: str,
    directory: Path | None,
    durability: Durability = Durability.COMMIT,
    table: str | None = None,
) -> TableLock:
    """Return the lock of a table: one object for each process.

    Args:
        uri: The resolved location of the queue.
        name: The name of the table.
        directory: The directory of lock files; `None` if the storage is safe by itself.
        durability: The durability of the location.
        table: The name of the table's directory, beside that of lock files; by default the table's name.

    Raises:
        StoreError: The directory or the table cannot be used.
    """
    with _table_locks_guard:
        table_lock = _table_locks.get((uri, name))
        if table_lock is None:
            lock_file = synced = None
            if directory is not None:
                with using(directory):
                    # Its name is synced before its contents: a power cut that loses the name loses all below it.
                    make_directory(directory, synced=durability is not Durability.NONE)
                lock_file = directory / f"{name}{LOCK_SUFFIX}"
                synced = synced_log_of(directory.parent / (table or name))
            table_lock = _table_locks[uri, name] = TableLock(lock_file, synced=synced)
    if table_lock.synced is not None:
        table_lock.synced.follow(durability)
    return table_lock
