"""Finds statements that run for long: VACUUM must not remove their uncommitted files."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.locking import TableLock

__all__ = ["RunningStatements"]


class RunningStatements:
    """The running statements of a queue object without a table lock that stops VACUUM."""

    def __init__(self, clock: Clock) -> None:
        """Begin without statements.

        Args:
            clock: The queue's.
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
