"""How a loop of work, or the wait for a stream, is asked to end: by an event of its program, or by signals."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Wake:
    """Wakes one thread that waits; a signal handler of that thread may call `set`, whatever the thread is doing.

    The handler would wait for ever in `Event.set` if it interrupted a method of the same event, which has a lock.
    A put to a `SimpleQueue` may interrupt a get and another put.
    """

    def __init__(self) -> None:
        """Nobody has called yet."""
        self._calls: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake the thread, or end its next wait at once."""
        self._calls.put(None)

    def clear(self) -> None:
        """Forget all calls so far."""
        while self.wait(0):
            pass

    def wait(self, seconds: float) -> bool:
        """Wait for a call, which is forgotten then; False: none came."""
        try:
            self._calls.get(timeout=seconds)
        except Empty:
            return False
        return True


class Stop:
    """Whether a loop is to end after the tasks in hand, or at once."""

    def __init__(self, event: threading.Event | None, woken: Wake) -> None:
        """Listen to an event of the program; `woken` is set when a signal comes."""
        self._event = event
        self._woken = woken
        self._signals = 0
        #: The first signal that came.
        self.signal: signal.Signals | None = None

    @property
    def is_asked(self) -> bool:
        """Whether to take no more tasks."""
        return self._signals > 0 or (self._event is not None and self._event.is_set())

    @property
    def is_urgent(self) -> bool:
        """Whether to give back what is in hand: a second signal came."""
        return self._signals > 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to SIGTERM and Ctrl-C for a block, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: a handler that is not of Python, which cannot be set again.
                if handler is not None:
                    signal.signal(number, handler)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self.signal = self.signal or signal.Signals(number)
        self._woken.set()
