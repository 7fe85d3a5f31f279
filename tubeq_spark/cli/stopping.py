"""Makes Ctrl-C and SIGTERM a request: the batch in hand is finished, a second signal interrupts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tubeq_spark.runtime import stopping

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import FrameType


class Stop(stopping.Stop):
    """Whether somebody asked the program to stop; a context manager. In other threads than the main one no signal comes.

    It may be entered again within its block: whatever took the signals over meanwhile, such as Spark, has lost them.
    Signals that are ignored stay ignored.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        """Give `notice` the sentence that answers the first request."""
        super().__init__()
        self._notice = notice
        self._entered: list[AbstractContextManager[None]] = []

    def __call__(self) -> bool:
        """Whether it was asked."""
        return self.is_asked

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal ended; 0 without one."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> Self:
        """Take over the signals."""
        self._entered.append(self.on_signals())
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        self._entered.pop().__exit__(None, None, None)

    def _came(self, number: int, frame: FrameType | None) -> None:
        super()._came(number, frame)
        if self.is_urgent:
            raise KeyboardInterrupt(number)
        self._notice("finishing this batch; a second signal releases it at once")
