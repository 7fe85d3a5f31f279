"""Waits for tasks or free capacity, by the clock of the queue, until something changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tubeq_spark.storage.uninterrupted import is_interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig

#: The longest nap of a blocking take, in seconds. After it the take sees a put of its own host.
_NAP = 0.02
#: Fewer seconds than this count as none, because a clock may not be able to sleep so short.
_INSTANT = 1e-6


def looks(
    timeout: float | None,
    *,
    clock: Clock,
    config: QueueConfig,
    changes: Callable[[], object],
    require_running: Callable[[], None],
    next_change: Callable[[], float | None] = lambda: None,
) -> Iterator[None]:
    """Yield the times to check for something, until `timeout` seconds have passed.

    It yields at once, whenever the tube has changed, and otherwise at growing intervals. It ends if the
    verb was interrupted.

    Args:
        timeout: Seconds; `None` waits for ever, 0 checks once.
        clock: Measures the time, and sleeps.
        config: Has the waits between two checks.
        changes: Returns another value after a change of the tube; called about fifty times a
            second.
        require_running: Raises once the queue object is closed.
        next_change: Seconds until a task becomes ready by time, as far as the last check knows; `None` if unknown.

    Yields:
        Nothing; the caller stops when it has found something.
    """
    deadline = None if timeout is None else clock.monotonic() + timeout
    pause = config.poll_first
    while True:
        require_running()
        seen = changes()
        yield
        left = math.inf if deadline is None else deadline - clock.monotonic()
        if left < _INSTANT or is_interrupted():
            return
        brought = next_change()
        until = clock.monotonic() + min(pause, left, math.inf if brought is None else brought)
        while changes() == seen:
            require_running()
            left = until - clock.monotonic()
            if left < _INSTANT:
                break
            if is_interrupted():
                return
            clock.sleep(min(_NAP, left))
        pause = config.poll_first if changes() != seen else min(pause * 2, config.poll_most)
