"""The clock of a queue: no other module asks the operating system for the time."""

from __future__ import annotations

import datetime as dt
import time
from typing import Protocol, runtime_checkable

__all__ = ["Clock", "SystemClock"]


@runtime_checkable
class Clock(Protocol):
    """The source of time for a queue: verbs compare its times and wait by its `sleep`."""

    def now(self) -> dt.datetime:
        """Return the current time, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring how long something took."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds` (>= 0)."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> dt.datetime:
        """Return the wall clock's time in UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        """Return the monotonic clock's seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        time.sleep(seconds)
