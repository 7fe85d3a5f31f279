"""Shows whether processes read a location's logs with Spark, and which statements run for long.

Spark lists a table's log and reads the listed files when it plans a statement, which may take long.
So a queue object that returns DataFrames, or whose verbs Spark runs, holds a shared lock on a file
until it is closed. A process that wants to shorten a log tries to get this lock exclusively. The
system releases the lock when a process ends in any way.
"""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.locks.table_lock import TableLock

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
        with suppress(ImportError, OSError):
            fcntl: Any = importlib.import_module("fcntl")
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
    try:
        fcntl: Any = importlib.import_module("fcntl")
        file = _opened(locks)
    except (ImportError, OSError):
        yield False
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            try:
                yield True
            finally:
                # Closing is not enough, because a child process may have the file open, too.
                fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _opened(locks: Path) -> int:
    return os.open(locks / _FILE, os.O_RDONLY | os.O_CREAT, 0o644)


class RunningStatements:
    """The running statements of a queue object without a table lock that stops VACUUM."""

    def __init__(self, clock: Clock) -> None:
        """Begin without statements.

        Args:
            clock: The clock of the queue.
        """
        self._clock = clock
        self._began: dict[object, tuple[str, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def running(self, table: str, table_lock: TableLock) -> Iterator[None]:
        """Run a statement that writes to a table."""
        if table_lock.is_exclusive:
            yield
            return
        key = object()
        with self._lock:
            self._began[key] = table, self._clock.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._began[key]

    def longer_than(self, seconds: float) -> set[str]:
        """The tables of statements that have run for at least some time."""
        since = self._clock.monotonic() - seconds
        with self._lock:
            return {table for table, began in self._began.values() if began <= since}
