"""Syncs tables to the disk once a second while there are commits for which no verb waits."""

from __future__ import annotations

import atexit
import logging
import threading
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock

if TYPE_CHECKING:
    from tubeq_spark.storage.durability.synced_log import SyncedLog

log = logging.getLogger(__name__)

#: Seconds from a commit to its flush.
_INTERVAL = 1.0
#: Seconds without a commit after which the thread ends; the next commit starts another one.
_IDLE = 10.0


class _Flusher:
    """The thread of this process that flushes tables."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._unwritten: dict[SyncedLog, None] = {}
        self._is_running = False

    def add(self, table: SyncedLog) -> None:
        """Flush a table within a second, or at once if no thread can be started."""
        with self._changed:
            self._unwritten[table] = None
            if self._is_running or self._starts():
                self._changed.notify()
                return
        self.flush()

    def _starts(self) -> bool:
        """Start the thread; return False if it cannot be started now."""
        try:
            threading.Thread(target=self._run, name="tubeq-flush", daemon=True).start()
        except RuntimeError:
            return False
        self._is_running = True
        return True

    def flush(self) -> None:
        """Flush all tables that were added, now."""
        with self._changed:
            tables, self._unwritten = list(self._unwritten), {}
        for table in tables:
            try:
                table.flush()
            except OSError:
                # The table's next commit begins with a sync, or fails.
                log.warning("%s could not be written to the disk", table.table, exc_info=True)

    def _run(self) -> None:
        wall = SystemClock()
        while True:
            with self._changed:
                if not self._unwritten and not self._changed.wait(_IDLE):
                    self._is_running = False
                    return
            wall.sleep(_INTERVAL)
            self.flush()


_flusher = _Flusher()


def flush_soon(table: SyncedLog) -> None:
    """Sync the commits to a table within a second."""
    _flusher.add(table)


def flush_now() -> None:
    """Sync all pending commits of all tables."""
    _flusher.flush()


# A program that ends normally leaves no commit unsynced.
atexit.register(flush_now)
