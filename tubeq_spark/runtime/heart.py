"""The heart of a session: a thread that beats until the session ends or its queue object is forgotten."""

from __future__ import annotations

import atexit
import logging
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet

from tubeq_spark.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)
#: Seconds that a stop, and the end of the process, wait for a beat that is under way.
_PATIENCE = 30.0


class Heart:
    """Beats in a separate thread, in real time, so that a manual clock does not stop it."""

    def __init__(
        self, name: str, beat: Callable[[], object], seconds_between: Callable[[], float]
    ) -> None:
        """Do not beat yet.

        Args:
            name: The name of the thread.
            beat: Called from time to time; its errors are logged.
            seconds_between: Tells the time between two beats.
        """
        self._name, self._beat, self._seconds_between = name, beat, seconds_between
        #: What the thread calls now; `None` ends it. A finalizer can safely put to this queue, also while the thread
        #: takes from it.
        self._told: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Called by the thread once, when it starts.
        self.begin: Callable[[], object] = lambda: None
        #: Called by the thread when the queue object is forgotten.
        self.leave: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Start the thread, if it was never started.

        Raises:
            RuntimeError: The system has no more threads; the next call tries again.
        """
        if self._thread is None and not _exit_has_begun.is_set():
            thread = threading.Thread(target=self._beat_on, name=self._name, daemon=True)
            with _lock:
                _hearts.add(self)
                # It ends before the libraries that were imported so far.
                atexit.unregister(_stop_all)
                atexit.register(_stop_all)
            thread.start()
            self._thread = thread

    def change_rhythm(self) -> None:
        """Read the time between two beats again."""
        self._told.put(lambda: None)

    def beat_soon(self) -> None:
        """Beat without waiting for the next time. Another thread beats, so the caller does not wait."""
        self._told.put(self._beat)

    def forget(self) -> None:
        """End, and leave the session. For finalizers: the queue object was forgotten."""
        self._told.put(self.leave)
        self._told.put(None)

    def stop(self, seconds: float = _PATIENCE) -> None:
        """End, and wait at most this many seconds for a running beat."""
        self._told.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def _beat_on(self) -> None:
        call: Callable[[], object] | None = self.begin
        while call is not None:
            try:
                call()
            except Exception:
                # The lease may still be renewed by the next beat; if not, the session dies safely.
                log.warning("%s failed", self._name, exc_info=True)
            try:
                call = self._told.get(timeout=self._seconds_between())
            except Empty:
                call = self._beat


def _stop_all() -> None:
    """Stop all hearts at the end of the process, because a thread inside a library would crash it."""
    _exit_has_begun.set()
    with _lock:
        hearts = list(_hearts)
    clock = SystemClock()
    until = clock.monotonic() + _PATIENCE
    for heart in hearts:
        heart.stop(0)
    for heart in hearts:
        heart.stop(max(0.0, until - clock.monotonic()))


_hearts: WeakSet[Heart] = WeakSet()
_lock = threading.Lock()
_exit_has_begun = threading.Event()
