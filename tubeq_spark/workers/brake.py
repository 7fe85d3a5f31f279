"""The brake of a worker loop: while everything fails, it takes no more tasks, and tries one now and then.

Without it, an outage of something that the handler needs would use up the attempts of all tasks of the tube within
minutes, and bury them. While the brake is on, a failure does not count as an attempt. After an hour it counts again,
so that bad tasks are buried in the end if the tube has no other ones.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.model.failures import GAVE_UP
from tubeq_spark.model.stored_task import FAILING, WORKING
from tubeq_spark.model.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.task import Task
    from tubeq_spark.workers.handlers import Outcome

log = logging.getLogger(__name__)

#: After this many failed tasks in a row, of all threads together, the loop takes no more.
FAILED_IN_A_ROW = 10
#: The first task that it tries is one of this many, because the first tasks of the tube may be bad ones.
TRIED_FROM = 32
#: Seconds until it tries one task; they double up to the longest pause.
_FIRST, LONGEST = 10.0, 60.0
#: Seconds for which failures do not count while the brake is on.
UNCOUNTED = 3600.0


class Brake:
    """Knows whether a loop may take tasks. Thread-safe."""

    def __init__(
        self,
        name: str,
        now: Callable[[], float],
        count: Callable[[str], None],
        patience: float | None = None,
    ) -> None:
        """Begin without failures.

        Args:
            name: The name of the tube, for the log.
            now: The time in seconds.
            count: Counts an event, `FAILING` or `WORKING`, for metrics and `Queue.health`.
            patience: Seconds for which the brake may be on before the loop gives up; `None` if it never does.
        """
        self._name, self._now, self._count = name, now, count
        self._patience = float("inf") if patience is None else patience
        self._failed, self._pause = 0, 0.0
        self._since = self._until = 0.0
        #: Whether it is counted as `FAILING`. It is not if the tube has no task that waits for this loop.
        self._is_told = False
        #: How often each task was tried since the brake is on.
        self._tries: Counter[int] = Counter()
        #: The task that was tried last.
        self.tried: int | None = None
        #: Whether the loop must end, because the last try has failed, too.
        self.gave_up = False
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
    def choice(self) -> int:
        """How many tasks to choose the next one from: more each time, because all that are known may be bad ones."""
        return TRIED_FROM * (1 + self._tries.total())

    def choose(self, tasks: Sequence[Task]) -> int | None:
        """Choose the task to try: the last one of those with the fewest attempts; `None` if none is tried now.

        Args:
            tasks: All that could be taken. If there is none, the next one is still tried alone.
        """
        with self._lock:
            self.tried = None
            if not tasks:
                self._tell(WORKING)
            elif not self.waits:
                tries = self._tries
                chosen = min(reversed(tasks), key=lambda task: task.attempts + tries[task.task_id])
                self.tried = chosen.task_id
                tries[chosen.task_id] += 1
            return self.tried

    def see(self, outcome: Outcome) -> None:
        """See the outcome of a call, and decide whether its failures count as attempts."""
        failures = [failure for failure in outcome.failed if not failure.buries]
        with self._lock:
            if outcome.done or len(failures) < len(outcome.failed):
                self._see_success()
            elif self.is_on:
                if self._now() < self._since + UNCOUNTED:
                    outcome.failed = [replace(failure, counts=False) for failure in failures]
                # Calls that began before may fail, too. They are no tries.
                if self.tried in [failure.task.task_id for failure in failures]:
                    self._see_failed(failures[-1].error, 1)
            elif failures:
                self._see_failed(failures[-1].error, len(failures))

    def _see_failed(self, error: BaseException | str, count: int) -> None:
        now = self._now()
        self._failed += count
        if self._failed < FAILED_IN_A_ROW:
            return
        if not self.is_on:
            self._since = now
        elif now >= self._since + self._patience:
            self.gave_up = True
            return
        self._pause = min(2 * self._pause, LONGEST) or _FIRST
        # The last try is at the end of the patience.
        self._until = min(now + self._pause, self._since + self._patience)
        if not self._is_told:
            self._tell(FAILING)
            log.warning(
                "%s: %d tasks failed in a row, the last one with %s: no more are taken; in %g s one is tried",
                *(self._name, self._failed, shown(error), self._until - now),
            )

    def _see_success(self) -> None:
        if self.is_on:
            seconds = self._now() - self._since
            log.warning(
                "%s: a task succeeded: after %.0f s all are taken again", self._name, seconds
            )
        self._tell(WORKING)
        self._failed, self._pause = 0, 0.0
        self._tries.clear()

    def _tell(self, event: str) -> None:
        if self._is_told is not (event == FAILING):
            self._is_told = event == FAILING
            self._count(event)

    def end(self) -> None:
        """See that the loop ends."""
        with self._lock:
            self._tell(WORKING)
        if self.gave_up:
            log.warning("%s: %s", self._name, GAVE_UP)
