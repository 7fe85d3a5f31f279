"""The brake of a worker loop: while everything fails, it takes no more tasks, and tries one now and then.

Without it, an outage of something that the handler needs would use up the attempts of all tasks of the tube within
minutes, and bury them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.model.states import FAILING, WORKING
from tubeq_spark.model.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.workers.handlers import Outcome

log = logging.getLogger(__name__)

#: After this many failed tasks in a row, of all threads together, the loop takes no more.
FAILED_IN_A_ROW = 10
#: Seconds until it tries one task; they double up to the longest pause. So few tasks lose an attempt meanwhile.
_FIRST, _MOST = 10.0, 60.0


class Brake:
    """Knows whether a loop may take tasks. For one thread."""

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

    @property
    def is_on(self) -> bool:
        """Whether the loop takes one task at most."""
        return bool(self._pause)

    @property
    def waits(self) -> bool:
        """Whether the pause before the next try goes on; then the loop takes none."""
        return self.is_on and self._now() < self._until

    @property
    def is_hopeful(self) -> bool:
        """Whether the pauses still grow; then a loop that ends when it is idle waits on."""
        return self._pause < _MOST

    def see(self, outcome: Outcome) -> bool:
        """See the outcome of a call; whether the brake was put on by it."""
        failures = [failure for failure in outcome.failed if not failure.buries]
        if outcome.done or len(failures) < len(outcome.failed):
            self._see_success()
        elif failures and not self.is_on:
            self._failed += len(failures)
            if self._failed >= FAILED_IN_A_ROW:
                self._put_on(failures[-1].error)
                return True
        elif failures and not self.waits:
            self._pause = min(2 * self._pause, _MOST)
            self._until = self._now() + self._pause
        return False

    def _put_on(self, error: BaseException | str) -> None:
        self._pause, self._since = _FIRST, self._now()
        self._until = self._since + self._pause
        self._count(FAILING)
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
        self.end()

    def end(self) -> None:
        """Begin without failures again."""
        if self.is_on:
            self._count(WORKING)
        self._failed, self._pause = 0, 0.0
