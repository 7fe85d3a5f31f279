"""Searches for the lease segments of takes whose commit is unknown, until the outcome is known."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.clock import Clock

log = logging.getLogger(__name__)
#: Seconds after which no request that was sent once can be under way any more.
_UNDER_WAY = 3_600


class UnknownTakes:
    """Takes that raised `CommitUnknownError`, so that the queue object may hold tasks without a caller.

    When the storage answers again, the session's heart gives the tasks back if they were taken.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin without takes; the clock is the queue's."""
        self._clock = clock
        self._waiting: list[tuple[float, Callable[[], bool]]] = []
        self._lock = threading.Lock()

    def add(self, give_back: Callable[[], bool]) -> None:
        """Search for a take from now on.

        Args:
            give_back: Gives back the tasks of the take; False if none were found yet.
        """
        with self._lock:
            self._waiting.append((self._seconds() + _UNDER_WAY, give_back))

    def look(self) -> None:
        """Release the tasks that are found by now. No commit if there are none.

        Only a search that gets an answer is the last one: the storage may fail for longer than a request takes.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for until, give_back in waiting:
            if not _is_given_back(give_back, is_last=self._seconds() >= until):
                with self._lock:
                    self._waiting.append((until, give_back))

    def _seconds(self) -> float:
        # The wall clock may jump.
        return self._clock.monotonic()


def _is_given_back(give_back: Callable[[], bool], *, is_last: bool) -> bool:
    """Whether the search is over: the tasks are given back, or this was the last look and there are none."""
    try:
        return give_back() or is_last
    except Exception:
        log.warning("a take of which nobody can tell is looked for again", exc_info=True)
        return False
