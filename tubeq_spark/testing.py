"""For tests of your own code: a queue in memory, and a clock that the test advances."""

from __future__ import annotations

import datetime as dt
import threading

from tubeq_spark.memory.queue import InMemoryQueue
from tubeq_spark.memory.tube import InMemoryTube

__all__ = ["InMemoryQueue", "InMemoryTube", "ManualClock"]


class ManualClock:
    """A clock that stands still until `advance`; its `sleep` advances it.

    Pass the same clock to all queues of a test; then a timeout of an hour passes at once.
    """

    def __init__(self, start: dt.datetime | None = None) -> None:
        """Start the clock.

        Args:
            start: The first `now`, timezone-aware; 2026-01-01 00:00 UTC by default.

        Raises:
            ValueError: `start` has no time zone.
        """
        start = start or dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        if start.tzinfo is None:
            msg = f"start must be timezone-aware, not {start!r}"
            raise ValueError(msg)
        self._start = start.astimezone(dt.UTC)
        self._elapsed = dt.timedelta()
        self._lock = threading.Lock()

    def now(self) -> dt.datetime:
        """Return the start time plus all advances."""
        with self._lock:
            return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        with self._lock:
            return self._elapsed.total_seconds()

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds` at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Args:
            seconds: How far, >= 0.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            msg = f"a clock does not go back: {seconds!r}"
            raise ValueError(msg)
        with self._lock:
            self._elapsed += dt.timedelta(seconds=seconds)
