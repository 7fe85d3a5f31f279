"""Work after verbs that nobody waits for: checkpoints on object stores, and files that nobody needs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.native.store_client import one_patience

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class Background:
    """A thread that does one thing after the other, while there is any. For threads."""

    def __init__(self) -> None:
        """Have nothing to do yet."""
        self._work: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Callable[[], object]) -> None:
        """Do something later; what fails is logged. Where the system has no more threads it waits for the next."""
        with self._lock:
            if self._is_closed:
                return
            self._work.append(work)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tubeq-background", daemon=True)
                # The commit before it is made, and the caller must learn so.
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
            try:
                with one_patience():
                    work()
            except Exception:
                log.warning("work after a commit failed", exc_info=True)

    def wait(self) -> None:
        """Wait until all is done."""
        while (thread := self._thread) is not None:
            thread.join()

    def close(self, seconds: float) -> None:
        """Begin nothing new, and wait for what was begun, for so many seconds at most."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is None:
            return
        thread.join(seconds)
        if thread.is_alive():
            # Whoever commits next does the same.
            with self._lock:
                self._work.clear()
            log.warning(
                "the storage does not answer: checkpoints, or old files, are left to others"
            )
