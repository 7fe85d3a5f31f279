"""Runs work that no verb waits for: checkpoints on object stores, and the removal of files that nobody needs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.store.patience import one_patience

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


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

    def run(self, work: Callable[[], object]) -> None:
        """Run some work later, and log its failure. If the system has no thread left, the work waits for the next call."""
        with self._lock:
            if self._is_closed:
                return
            self._work.append(work)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tubeq-background", daemon=True)
                # The commit before this work has succeeded, and the caller must learn that.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._thread = None
                    return
                work = self._work.popleft()
            with one_patience():
                at_once(work)

    def wait(self) -> None:
        """Wait until no work is left."""
        while (thread := self._thread) is not None:
            thread.join()

    def close(self, seconds: float) -> None:
        """Accept no more work, and wait at most so many seconds until the accepted work is done."""
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
