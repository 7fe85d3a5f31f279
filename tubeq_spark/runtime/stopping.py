"""Asks a worker loop, a program or the wait for a stream to end: by an event, or by signals."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from signal import Signals
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FINISHING = "finishing this batch; a second signal releases it at once"


@contextmanager
def on_signals(
    handle: Callable[[int, FrameType | None], None], *, ignored: bool = False
) -> Iterator[None]:
    """Call a function for SIGTERM and Ctrl-C during a block, if this is the main thread.

    A shell lets programs in the background ignore Ctrl-C. Ignored signals stay ignored, but with `ignored`.
    """
    is_main = threading.current_thread() is threading.main_thread()
    # `None` is a handler that was not set from Python. It cannot be set again.
    not_ours = (None,) if ignored else (None, signal.SIG_IGN)
    ours = [number for number in _SIGNALS if is_main and signal.getsignal(number) not in not_ours]
    before = {number: signal.signal(number, handle) for number in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """Whether a loop must end after the tasks in hand, or at once."""

    def __init__(
        self,
        event: threading.Event | None = None,
        wake: Callable[[], object] = lambda: None,
        *,
        each_once: bool = False,
    ) -> None:
        """Listen to signals, and to an event of the program.

        Args:
            event: The event.
            wake: Called when a signal comes, between any two instructions of the main thread.
            each_once: Whether a parent process hands signals on, each one once: a repeated signal counts once, so
                that only the other signal is a second one, and signals that the parent ignores are not ignored.
        """
        self._event = event
        self._wake = wake
        self._each_once = each_once
        self._signals: list[Signals] = []

    @property
    def is_asked(self) -> bool:
        """Whether to take no more tasks."""
        return bool(self._signals) or (self._event is not None and self._event.is_set())

    @property
    def is_urgent(self) -> bool:
        """Whether to give back the tasks in hand, because a second signal came."""
        return len(set(self._signals) if self._each_once else self._signals) > 1

    @property
    def signal(self) -> Signals | None:
        """The first signal that came."""
        return self._signals[0] if self._signals else None

    def on_signals(self) -> AbstractContextManager[None]:
        """Listen to SIGTERM and Ctrl-C during a block, as `on_signals` of this module does.

        A child inherits which signals its parent ignores. It listens to these, too: a parent hands on only signals
        that it does not ignore.
        """
        return on_signals(self._came, ignored=self._each_once)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(Signals(number))
        self._wake()


class ProgramStop(Stop):
    """Whether somebody asked the program to stop; a context manager. In other threads than the main one no signal comes.

    Signals that are ignored stay ignored.
    """

    def __init__(self, tell: Callable[[str], object], sentence: str = _FINISHING) -> None:
        """Answer the first request by a sentence."""
        super().__init__()
        self._tell, self._sentence = tell, sentence
        self._block = self.on_signals()

    def __call__(self) -> bool:
        """Whether it was asked."""
        return self.is_asked

    def __enter__(self) -> Self:
        """Take over the signals."""
        self._block.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        self._block.__exit__(None, None, None)

    def _came(self, number: int, frame: FrameType | None) -> None:
        super()._came(number, frame)
        if self.is_urgent:
            raise KeyboardInterrupt(number)
        self._tell(self._sentence)
