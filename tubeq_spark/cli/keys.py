"""Keys that are pressed while a table is on the screen, one by one and without Return."""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from tubeq_spark.clock import Clock


class Keys:
    """Reads keys from standard input if that is a terminal; a context manager."""

    def __init__(self, clock: Clock) -> None:
        """Wait by this clock if there is no terminal."""
        self._clock = clock
        self._input: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        """Make the terminal pass on each key at once."""
        try:
            import termios  # noqa: PLC0415  not on every system
            import tty  # noqa: PLC0415
        except ImportError:
            return self
        # Standard input may be a pipe, or closed.
        with suppress(OSError, ValueError, termios.error):
            number = sys.stdin.fileno()
            self._before = termios.tcgetattr(number)
            tty.setcbreak(number)
            self._input = number
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        if self._before:
            import termios  # noqa: PLC0415  as above

            with suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    @property
    def are_read(self) -> bool:
        """Whether there is a terminal."""
        return self._input is not None

    def wait(self, seconds: float) -> str | None:
        """The next key; `None` if none was pressed for so many seconds."""
        if self._input is None:
            self._clock.sleep(max(0.0, seconds))
            return None
        ready, _, _ = select.select([self._input], [], [], max(0.0, seconds))
        if not ready:
            return None
        pressed = os.read(self._input, 1).decode("ascii", "replace")
        if not pressed:
            # The terminal was closed.
            self._input = None
            return None
        return pressed
