"""The lock file between processes, and the line of processes that wait for it.

A process that asks again at once would always be faster than waiting processes. So processes wait in
line, at a second file beside the lock file. Only the first in line waits for the lock file. When it has
the lock, it lets the next one move up. Both waits are blocking locks of the operating system,
which wakes the next process; on Windows, which has none, the process polls. The first in line can prepare
its work while it waits.

Another file shows whether processes read a location's logs with Spark. Spark lists a table's log and reads the listed
files when it plans a statement, which may take long. So a queue object that returns DataFrames, or whose verbs Spark
runs, holds a shared lock on that file until it is closed. A process that wants to shorten a log tries to get this lock
exclusively. The system releases the lock when a process ends in any way.
"""

from __future__ import annotations

import importlib
import os
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tubeq_spark.model.refusals import was_forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


try:
    fcntl: Any = importlib.import_module("fcntl")
except ImportError:
    # On Windows.
    fcntl = None

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
        self._entered = 0

    def acquire(self, prepare: Callable[[], None] = _nothing) -> None:
        """Wait until this process holds it.

        Args:
            prepare: Called while this process is the first in line. It must not raise.

        Raises:
            OSError: The lock cannot be used.
            StoreError: This process was forked from the one that uses the lock.
        """
        if os.getpid() != self._process:
            # A forked process has the ids and the session of its parent, too.
            raise was_forked(os.getpid(), self._process, f"uses {self.path.parent}")
        if not self._entered:
            try:
                self._wait(prepare)
            except BaseException:
                # The acquisition was interrupted in its last steps.
                self._file.release()
                raise
        self._entered += 1

    def release(self) -> None:
        """Release it to the next process, after as many releases as acquisitions.

        Raises:
            OSError: The system has failed. The lock is released as far as the system can.
        """
        self._entered -= 1
        if not self._entered:
            self._file.release()

    @contextmanager
    def holding(self, prepare: Callable[[], None] = _nothing) -> Iterator[None]:
        """Hold it during a block; argument as for `acquire`."""
        self.acquire(prepare)
        try:
            yield
        finally:
            self.release()

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


_FILE = "spark.readers"


class LogReaders:
    """The shared lock of one queue object that reads a location with Spark."""

    def __init__(self, locks: Path | None) -> None:
        """Begin without the lock.

        Args:
            locks: The location's directory of lock files; `None` if logs are not shortened there.
        """
        self._locks = locks
        self._left: weakref.finalize[..., LogReaders] | None = None

    def enter(self) -> None:
        """Hold the shared lock until `leave`; a second call does nothing."""
        if self._locks is None or self._left is not None:
            return
        # Without such locks `without_readers` always yields False.
        with suppress(AttributeError, OSError):
            file = _opened(self._locks)
            self._left = weakref.finalize(self, os.close, file)
            fcntl.flock(file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Release the lock."""
        left, self._left = self._left, None
        if left is not None:
            left()


@contextmanager
def without_readers(locks: Path) -> Iterator[bool]:
    """Exclude readers with Spark during a block, if none reads now.

    Args:
        locks: The location's directory of lock files.

    Yields:
        Whether no process reads. It is False if that is unknown, or if no lock keeps writers apart.
    """
    file, is_held = None, False
    with suppress(AttributeError, OSError):
        file = _opened(locks)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = True
    try:
        yield is_held
    finally:
        if is_held:
            # Closing is not enough, because a child process may have the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
        if file is not None:
            os.close(file)


def _opened(locks: Path) -> int:
    return os.open(locks / _FILE, os.O_RDONLY | os.O_CREAT, 0o644)
