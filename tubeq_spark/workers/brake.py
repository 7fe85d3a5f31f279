"""The brake of a worker loop: while everything fails, it takes no more tasks, and tries one now and then.

Without it, an outage of something that the handler needs would use up the attempts of all tasks of the tube within
minutes, and bury them.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tubeq_spark.model.stored_task import FAILING, WORKING
from tubeq_spark.model.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.workers.handlers import Outcome

log = logging.getLogger(__name__)

#: After this many failed tasks in a row, of all threads together, the loop takes no more.
FAILED_IN_A_ROW = 10
#: The task that it tries is one of this many: one with few attempts, because the first tasks may be bad ones.
TRIED_FROM = 32
#: Seconds until it tries one task; they double up to the longest pause. So few tasks lose an attempt meanwhile.
_FIRST, LONGEST = 10.0, 60.0


class Brake:
    """Knows whether a loop may take tasks. Thread-safe."""

    def __init__(self, name: str, now: Callable[[], float], count: Callable[[str], None]) -> None:
        """Begin without failures.

        Args:
            name: The name of the tube, for the log.
            now: The time in seconds.
            count: Counts an event, `FAILING` or `WORKING`, for metrics and `Queue.health`.
        """
        self._name, self._now, self._count = name, now, count
        self._failed, self._pause = 0, 0.0
        self._since = self._until = 0.0
        #: Whether it is counted as `FAILING`. It is not if the tube has no task that waits for this loop.
        self._is_told = False
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether the loop tries one task at a time."""
        return bool(self._pause)

    @property
    def waits(self) -> bool:
        """Whether the pause before the next try goes on; then the loop takes none."""
        return self.is_on and self._now() < self._until

    @property
    def is_hopeful(self) -> bool:
        """Whether the pauses still grow; then a loop that ends when it is idle waits on."""
        return self._pause < LONGEST

    def see(self, outcome: Outcome) -> None:
        """See the outcome of a call."""
        failures = [failure for failure in outcome.failed if not failure.buries]
        with self._lock:
            if outcome.done or len(failures) < len(outcome.failed):
                self._see_success()
            elif failures and not self.waits:
                self._failed += len(failures)
                if self._failed >= FAILED_IN_A_ROW:
                    self._wait(failures[-1].error)

    def _wait(self, error: BaseException | str) -> None:
        self._since = self._since if self.is_on else self._now()
        self._pause = min(2 * self._pause, LONGEST) or _FIRST
        self._until = self._now() + self._pause
        if not self._is_told:
            self._tell(FAILING)
            log.warning(
                "%s: %d tasks failed in a row, the last one with %s: no more are taken; in %g s one is tried",
                *(self._name, self._failed, shown(error), self._pause),
            )

    def _see_success(self) -> None:
        if self.is_on:
            seconds = self._now() - self._since
            log.warning(
                "%s: a task succeeded: after %.0f s all are taken again", self._name, seconds
            )
        self._tell(WORKING)
        self._failed, self._pause = 0, 0.0

    def _tell(self, event: str) -> None:
        if self._is_told is not (event == FAILING):
            self._is_told = event == FAILING
            self._count(event)

    def rest(self) -> None:
        """See that the tube has no task. The next one is still tried alone."""
        with self._lock:
            self._tell(WORKING)

    def end(self) -> None:
        """See that the loop ends."""
        with self._lock:
            if self._is_told:
                log.warning("%s: the loop ends; %d tasks failed in a row", self._name, self._failed)
            self._tell(WORKING)
