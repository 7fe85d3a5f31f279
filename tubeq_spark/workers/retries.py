"""What becomes of tasks that a handler of `Tube.work` failed at."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from tubeq_spark.rules.failures import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.tube import Tube
    from tubeq_spark.workers.handlers import Failure

log = logging.getLogger(__name__)


class Retries:
    """Which failed tasks are buried, and after which delay the others are tried again.

    A type that cannot delay a task hands it out again at once. There the loop takes nothing until the delay
    has passed.
    """

    def __init__(self, tube: Tube, *, buries: bool, uniform: Callable[[], float]) -> None:
        """Decide for a tube; `buries`: each failed task is buried."""
        self._buries = buries
        self._uniform = uniform
        self._backoff = Backoff()
        self._delays = tube._ctx.driver.timed  # noqa: SLF001  (the loop is a part of the tube)
        #: Seconds for which nothing is to be taken, after the last failures.
        self.pause = 0.0
        if not self._delays and not buries and tube.options.max_attempts is None:
            log.warning(
                "%s: failed tasks come back for ever: the tube has no max_attempts", tube.name
            )

    def fates(self, failures: Sequence[Failure]) -> Mapping[tuple[bool, float], list[Failure]]:
        """The failures by what becomes of them: whether they are buried, and else after which delay."""
        # One number for all, so that tasks of one attempt share a commit.
        chance = self._uniform()
        groups = defaultdict(list)
        for failure in failures:
            if self._buries or failure.buries:
                groups[True, 0.0].append(failure)
                continue
            delay = self._backoff.delay(failure.task.attempts, lambda: chance)
            if not self._delays:
                self.pause, delay = max(self.pause, delay), 0.0
            groups[False, delay].append(failure)
        return groups
