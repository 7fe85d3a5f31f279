"""Runs work for which no verb waits: checkpoints and removals of files after a commit, and one sync of commits a second."""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.storage.durability.synced_log import SyncedLog

log = logging.getLogger(__name__)

#: Seconds from a commit to its flush.
_INTERVAL = 1.0


def at_once(work: Callable[[], object]) -> None:
    """Run work after a commit, and log its failure."""
    try:
        work()
    except Exception:
        # The commit has succeeded, and the caller must learn that.
        log.warning("work after a commit failed", exc_info=True)


class Background:
    """A thread that runs pieces of work one after the other, and ends when none is left. Thread-safe."""

    def __init__(self) -> None:
        """Have nothing to do yet."""
        self._work: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Callable[[], object]) -> bool:
        """Run some work later, and log its failure.

        Returns:
            Whether a thread does it. If the system can start no thread, the work waits for the next call.
        """
        with self._lock:
            if self._is_closed:
                return False
            self._work.append(work)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tubeq-background", daemon=True)
                # The commit before this work has succeeded, and the caller must learn that.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            return self._thread is not None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._thread = None
                    return
                work = self._work.popleft()
            at_once(work)

    def wait(self) -> None:
        """Wait until no work is left."""
        while (thread := self._thread) is not None:
            thread.join()

    def close(self, seconds: float) -> None:
        """Accept no more work, and wait at most this many seconds until the accepted work is done."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is None:
            return
        thread.join(seconds)
        if thread.is_alive():
            # A process that commits later does the same work.
            with self._lock:
                self._work.clear()
            log.warning(
                "the storage does not answer: checkpoints, or old files, are left to others"
            )


class _Flusher:
    """Flushes the tables of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unwritten: dict[SyncedLog, None] = {}
        self._background = Background()

    def add(self, table: SyncedLog) -> None:
        """Flush a table within a second, or at once if no thread can be started."""
        with self._lock:
            is_pending = bool(self._unwritten)
            self._unwritten[table] = None
        if not is_pending and not self._background.run(self._flush_later):
            self.flush()

    def flush(self) -> None:
        """Flush all tables that were added, now."""
        with self._lock:
            tables, self._unwritten = list(self._unwritten), {}
        for table in tables:
            try:
                table.flush()
            except OSError:
                # The table's next commit begins with a sync, or fails.
                log.warning("%s could not be written to the disk", table.table, exc_info=True)

    def _flush_later(self) -> None:
        SystemClock().sleep(_INTERVAL)
        self.flush()


#: The flusher of this process.
flusher = _Flusher()
# A program that ends normally leaves no commit unsynced.
atexit.register(flusher.flush)
