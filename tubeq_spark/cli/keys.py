"""Keys that are pressed while a table is on the screen, one by one and without Return."""

from __future__ import annotations

import os
import select
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark.clock import Clock

_STDIN = 0
#: The key that ends a program.
QUIT = "q"


def are_read() -> bool:
    """Whether keys can be read: standard input is a terminal."""
    return find_spec("termios") is not None and os.isatty(_STDIN)


@contextmanager
def pressed_keys(clock: Clock, *, wanted: bool) -> Iterator[Callable[[float], str | None]]:
    """Read keys during a block, if standard input is a terminal.

    Args:
        clock: The clock that waits if no keys are read.
        wanted: Whether to read keys.

    Yields:
        A function that returns the next key, or `None` if none was pressed for so many seconds.
    """
    if not (wanted and are_read()):
        yield partial(_sleep, clock)
        return
    import termios  # noqa: PLC0415  not on every system
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(_STDIN)
    tty.setcbreak(_STDIN)
    try:
        yield _next_key
    finally:
        with suppress(OSError, termios.error):
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)


def _sleep(clock: Clock, seconds: float) -> None:
    clock.sleep(max(0.0, seconds))


def _next_key(seconds: float) -> str | None:
    ready, _, _ = select.select([_STDIN], [], [], max(0.0, seconds))
    if not ready:
        return None
    # Nothing can be read from a terminal that was closed.
    return os.read(_STDIN, 1).decode("ascii", "replace") or QUIT
