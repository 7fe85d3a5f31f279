"""Makes Ctrl-C and SIGTERM a request: the batch in hand is finished, a second signal interrupts it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: What Python knows of how a signal was handled before.
_Handler: TypeAlias = Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked the program to stop; a context manager. In other threads than the main one no signal comes.

    It may be entered again within its block: whatever took the signals over meanwhile has lost them. Signals that are
    ignored stay ignored.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        """Give `notice` the sentence that answers the first request."""
        self._notice = notice
        self._signal: int | None = None
        self._before: list[dict[signal.Signals, _Handler]] = []

    def __call__(self) -> bool:
        """Whether it was asked."""
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal ended; 0 without one."""
        return 0 if self._signal is None else 128 + self._signal

    def __enter__(self) -> Self:
        """Take over the signals, from Spark too, whose handler would cancel the batch."""
        taken: dict[signal.Signals, _Handler] = {}
        if threading.current_thread() is threading.main_thread():
            # `None` is a handler that was not set from Python. It cannot be set again.
            ours = [n for n in _SIGNALS if signal.getsignal(n) not in (None, signal.SIG_IGN)]
            taken = {number: signal.signal(number, self._handle) for number in ours}
        self._before.append(taken)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.pop().items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt(number)
        self._signal = number
        self._notice("finishing this batch; a second signal gives it back at once")
