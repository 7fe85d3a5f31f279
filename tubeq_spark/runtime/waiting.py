"""How a verb waits for tasks or for room: by the clock of its queue, and until something changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig

__all__ = ["wait_until_found"]

T = TypeVar("T")

#: Longest nap of a blocking take: how soon it sees a put of its own process, in seconds.
_NAP = 0.02
#: Less than this many seconds are none: a clock need not be able to sleep them.
_INSTANT = 1e-6


def wait_until_found(
    look: Callable[[], T | None],
    timeout: float | None,
    *,
    clock: Clock,
    config: QueueConfig,
    changes: Callable[[], int],
    require_running: Callable[[], None],
) -> T | None:
    """Look for something until it is there, or `timeout` seconds have passed.

    Looks at once, whenever this process has changed the tube, and else at growing intervals.

    Args:
        look: Returns what it found, or `None`.
        timeout: Seconds; `None` is for ever, 0 looks once.
        clock: Measures the time, and sleeps.
        config: Says how long to wait between two looks.
        changes: How often this process has changed the tube.
        require_running: Raises once the queue object is closed.
    """
    deadline = None if timeout is None else clock.monotonic() + timeout
    pause = config.poll_first
    while True:
        require_running()
        seen = changes()
        found = look()
        left = math.inf if deadline is None else deadline - clock.monotonic()
        if found is not None or left < _INSTANT:
            return found
        until = clock.monotonic() + min(pause, left)
        while changes() == seen:
            require_running()
            left = until - clock.monotonic()
            if left < _INSTANT:
                break
            clock.sleep(min(_NAP, left))
        pause = config.poll_first if changes() != seen else min(pause * 2, config.poll_most)
