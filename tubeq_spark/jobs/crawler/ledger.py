"""Counts that the consumers of a crawl share: stored pages, tasks in hand, and whether to stop."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tubeq_spark.jobs.crawler.settings import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tubeq_spark import Clock

#: Seconds after which a waiting consumer sees that another one has finished a batch.
_NAP_S = 0.1
#: Shorter waits than this many seconds are skipped, because a clock may not be able to sleep them.
_INSTANT_S = 1e-6


class Ledger:
    """The books of a crawl; safe to use from many threads.

    Attributes:
        taking: Held from the search for a batch until it is taken, so that no other consumer takes it.
        given_up: Set when all batches in hand must be given back unfinished.
        failed: Set when a consumer has failed. The others then finish their batches and end.
    """

    def __init__(self, stored: int, limit: int | None) -> None:
        """Begin.

        Args:
            stored: The number of stored pages.
            limit: The most pages at the end; `None` is unlimited.
        """
        self.taking = threading.Lock()
        self.given_up = threading.Event()
        self.failed = threading.Event()
        self._stored, self._limit = stored, limit
        self._in_hand = self._failures = self._batches = self._fetching = 0
        self._lock = threading.Lock()

    @property
    def in_hand(self) -> int:
        """The number of tasks in batches that are being processed."""
        return self._in_hand

    @property
    def fetching(self) -> int:
        """The number of consumers that are fetching."""
        return self._fetching

    @contextmanager
    def while_fetching(self) -> Iterator[None]:
        """Count a consumer as fetching while the block runs."""
        with self._lock:
            self._fetching += 1
        try:
            yield
        finally:
            with self._lock:
                self._fetching -= 1

    @property
    def batches(self) -> int:
        """The number of finished batches."""
        return self._batches

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self._stored >= self._limit

    def room(self, most: int) -> int:
        """The number of tasks, at most `most`, that can all become pages within the limit."""
        with self._lock:
            if self._limit is None:
                return most
            return max(0, min(most, self._limit - self._stored - self._in_hand))

    def took(self, tasks: int) -> None:
        """Record that a batch was taken."""
        with self._lock:
            self._in_hand += tasks

    def did(self, tasks: int, fetched: int, failed: int) -> None:
        """Record that a batch was finished, or given back."""
        with self._lock:
            self._in_hand -= tasks
            self._stored += fetched
            self._failures += failed
            self._batches += 1

    def progress(self, tasks: Mapping[str, int]) -> Progress:
        """The progress of the crawl, with these tasks by state."""
        with self._lock:
            return Progress(self._stored, self._failures, tasks)

    def wait(self, clock: Clock, seconds: float, batches: int) -> bool:
        """Wait until more than `batches` batches are finished; return whether that was within the time."""
        until = clock.monotonic() + seconds
        while self._batches == batches and (left := until - clock.monotonic()) > _INSTANT_S:
            clock.sleep(min(_NAP_S, left))
        return self._batches != batches
