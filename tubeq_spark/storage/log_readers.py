"""Tells whether a process of this host reads a location by Spark, which needs its logs for longer.

Spark lists a table's log and reads the listed files when it plans a statement, which may take long.
So a queue object that returns DataFrames, or whose verbs Spark runs, holds a shared lock on a file
until it is closed. A process that wants to shorten a log tries to get this lock exclusively. The
system releases the lock when a process ends in any way.
"""

from __future__ import annotations

import importlib
import os
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LogReaders", "without_readers"]

_FILE = "spark.readers"


class LogReaders:
    """The shared lock of one queue object that reads a location by Spark."""

    def __init__(self, locks: Path | None) -> None:
        """Begin without the lock.

        Args:
            locks: The location's directory of lock files; `None`: logs are not shortened there.
        """
        self._locks = locks
        self._left: weakref.finalize[..., LogReaders] | None = None

    def enter(self) -> None:
        """Hold the shared lock until `leave`; a second call does nothing."""
        if self._locks is None or self._left is not None:
            return
        # Where there are no such locks, logs are never taken for unread.
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
    """Exclude readers by Spark for the time of a block, if none reads now.

    Args:
        locks: The location's directory of lock files.

    Yields:
        Whether none does. False where that cannot be known, or nothing keeps writers apart.
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
            yield True
    finally:
        os.close(file)


def _opened(locks: Path) -> int:
    return os.open(locks / _FILE, os.O_RDONLY | os.O_CREAT, 0o644)
