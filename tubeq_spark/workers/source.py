"""The tube of a loop of work: takes, settles and renews tasks, and decides about failed ones."""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from tubeq_spark.errors import CommitUnknownError, ConflictError, NotTakenError, StoreError
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.times import US
from tubeq_spark.task import TaskState
from tubeq_spark.workers.handlers import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.model.arguments import Utubes
    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube

log = logging.getLogger(__name__)

#: Errors that may pass: the loop goes on, and tries again later.
_OF_STORAGE = (ConflictError, CommitUnknownError, StoreError)


class Source:
    """One tube, as a loop of work uses it. For one thread."""

    def __init__(self, tube: Tube, per_utube: int, utube: Utubes | None, retries: Retries) -> None:
        """Take from a tube; `retries` says what becomes of tasks that failed."""
        self._tube = tube
        self._per_utube = per_utube
        self._utube = utube
        self._retries = retries
        #: Tasks that an ack may have removed, of which nobody could tell.
        self._perhaps: set[int] = set()

    @property
    def takes_ahead(self) -> bool:
        """Whether more may be taken than calls can begin at once."""
        return not self._tube._ctx.record.options.limit_takes  # noqa: SLF001  (as below)

    def take(self, count: int, timeout: float = 0) -> list[Task]:
        """Take up to so many tasks; none where the storage fails for a moment, or rivals come first."""
        try:
            return self._tube.take_many(
                count, timeout=timeout, per_utube=self._per_utube, utube=self._utube
            )
        except _OF_STORAGE as error:
            _require_passing(error)
            log.warning("%s: no task was taken: %s", self._tube.name, error)
            return []

    def finish(self, done: Sequence[Task], count: int) -> tuple[list[Task], list[Task], list[Task]]:
        """Ack tasks, and take up to so many.

        Returns:
            What was acked, what has to be acked later, and what was taken. Tasks in neither of the first two
            were lost: their leases had ended.
        """
        ids = [task.task_id for task in done]
        try:
            if count:
                taken = self._tube.exchange(
                    ack=ids, take=count, per_utube=self._per_utube, utube=self._utube
                )
            else:
                taken = []
                self._tube.ack_many(ids)
        except NotTakenError:
            if len(done) == 1:
                return self._acked_before(done[0]), [], []
            # Not all are held any more: each for itself.
            parts = [self.finish([task], 0) for task in done]
            acked = [task for part, _, _ in parts for task in part]
            return acked, [task for _, part, _ in parts for task in part], []
        except _OF_STORAGE as error:
            _require_passing(error)
            log.warning("%s: %d tasks are not acked yet: %s", self._tube.name, len(ids), error)
            if isinstance(error, CommitUnknownError):
                self._perhaps.update(ids)
            return [], list(done), []
        self._perhaps.difference_update(ids)
        return list(done), [], taken

    def _acked_before(self, task: Task) -> list[Task]:
        """A task that is not held any more, if an ack without an answer has removed it."""
        if task.task_id not in self._perhaps:
            log.warning("task %d was lost: its lease ended before its ack", task.task_id)
            return []
        self._perhaps.remove(task.task_id)
        return [task]

    def fail(self, failures: Sequence[Failure]) -> tuple[int, list[Failure]]:
        """Release tasks that failed, or bury them.

        Returns:
            How many are buried by now, and those that have to be released or buried later.
        """
        buried, later = 0, list[Failure]()
        for buries, group in self._retries.fates(failures).items():
            verb = self._tube.bury_many if buries else self._tube._retry  # noqa: SLF001  (the loop is a part of the tube)
            settle = partial(verb, error={each.task.task_id: each.error for each in group})
            for settled in self._settled(settle, group, later):
                buried += settled.state is TaskState.BURIED
        return buried, later

    def _settled(
        self,
        settle: Callable[[list[int]], list[Task]],
        group: list[Failure],
        later: list[Failure],
    ) -> list[Task]:
        """Settle failed tasks together, or each for itself where not all are held any more."""
        try:
            return settle([failure.task.task_id for failure in group])
        except NotTakenError:
            if len(group) > 1:
                return [task for one in group for task in self._settled(settle, [one], later)]
            log.warning("task %d was lost: its lease ended", group[0].task.task_id)
        except _OF_STORAGE as error:
            _require_passing(error)
            log.warning("%s: %d failed tasks are held yet: %s", self._tube.name, len(group), error)
            later += group
        return []

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Give back tasks that no handler has begun: they are ready, and were never taken."""
        self._without_lost(tasks, self._tube._give_back)  # noqa: SLF001  (the loop is a part of the tube)

    def release(self, tasks: Sequence[Task]) -> None:
        """Give back tasks that handlers may still be at."""
        self._without_lost(tasks, self._tube.release_many)

    def renew(self, tasks: Sequence[Task]) -> list[Task]:
        """Renew the leases of tasks; returns those that are held still, with their new leases."""
        return self._without_lost(tasks, self._tube._renew)  # noqa: SLF001  (as above)

    def _without_lost(
        self, tasks: Sequence[Task], verb: Callable[[list[int]], list[Task]]
    ) -> list[Task]:
        """Run a verb on tasks together, or on each for itself where not all are held any more."""
        if not tasks:
            return []
        try:
            return verb([task.task_id for task in tasks])
        except NotTakenError:
            if len(tasks) > 1:
                return [after for task in tasks for after in self._without_lost([task], verb)]
            log.warning("task %d was lost: its lease ended", tasks[0].task_id)
            return []
        except _OF_STORAGE as error:
            _require_passing(error)
            log.warning("%s: %d tasks stay as they are: %s", self._tube.name, len(tasks), error)
            return list(tasks)


def _require_passing(error: Exception) -> None:
    """Raise what does not pass by itself.

    Raises:
        StoreError: As given.
    """
    if isinstance(error, StoreError) and not error.passes:
        raise error


class Retries:
    """Which failed tasks are buried; the tube delays the others.

    A type that cannot delay a task hands it out again at once. There the loop takes nothing until the delay
    has passed.
    """

    def __init__(self, tube: Tube, *, buries: bool) -> None:
        """Decide for a tube; `buries`: each failed task is buried."""
        self._buries = buries
        self._backoff = Backoff()
        self._delays = tube._ctx.driver.timed  # noqa: SLF001  (the loop is a part of the tube)
        #: Seconds for which nothing is to be taken, after the last failures.
        self.pause = 0.0
        if not self._delays and not buries and tube.options.max_attempts is None:
            log.warning(
                "%s: failed tasks come back for ever: the tube has no max_attempts", tube.name
            )

    def fates(self, failures: Sequence[Failure]) -> Mapping[bool, list[Failure]]:
        """The failures by whether they are buried."""
        groups = defaultdict(list)
        for failure in failures:
            buries = self._buries or failure.buries
            groups[buries].append(failure)
            if not buries and not self._delays:
                delay_us = self._backoff.delay_us(failure.task.attempts, failure.task.task_id)
                self.pause = max(self.pause, delay_us / US)
        return groups
