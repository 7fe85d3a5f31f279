"""The tube of a worker loop: takes, settles and renews tasks, and decides about failed ones."""

from __future__ import annotations

import logging
from collections import defaultdict
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tubeq_spark.clock import US
from tubeq_spark.errors import CommitUnknownError, ConflictError, NotTakenError, StoreError
from tubeq_spark.model.changes import Release
from tubeq_spark.model.failures import Backoff, error_texts
from tubeq_spark.task import TaskState
from tubeq_spark.verbs import settle
from tubeq_spark.workers.brake import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tubeq_spark.model.arguments import Utubes
    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube
    from tubeq_spark.workers.handlers import Failure

log = logging.getLogger(__name__)
#: Errors that may pass: a loop goes on after them, and tries again later. For a `StoreError`, `require_passing` decides.
OF_STORAGE = (ConflictError, CommitUnknownError, StoreError)
#: The error of a task whose call was running when its loop had to end at once.
STOPPED = "the worker was stopped before the call ended"
#: Seconds between two checks of things that wake nobody: the event of the program, and the time.
LOOK = 0.25


def require_passing(error: Exception) -> None:
    """Raise an error that does not pass by itself.

    Raises:
        StoreError: The error itself.
    """
    if isinstance(error, StoreError) and not error.passes:
        raise error


def log_lost(task: Task) -> None:
    """Log that a task is no longer held for the attempt that a handler got."""
    said = "task %d was lost at attempt %d: its lease ended, or it was settled elsewhere"
    log.warning(said, task.task_id, task.attempts)


class _Fate(Enum):
    """What becomes of a failed task."""

    RELEASED = auto()
    GIVEN_BACK = auto()
    BURIED = auto()


class Source:
    """One tube, as a worker loop uses it. For one thread.

    The tube delays failed tasks. If its type has no delays, it hands a task out again as soon as it is released. So the
    loop holds the task for that time, a minute at most: its sub-queue waits, and all other tasks go on.
    """

    def __init__(
        self, tube: Tube, per_utube: int, utube: Utubes | None, *, buries: bool = False
    ) -> None:
        """Take from a tube. With `buries` each failed task is buried."""
        self._tube = tube
        self._per_utube = per_utube
        self._utube = utube
        self._buries = buries
        self._delays = tube._ctx.tube_type.timed  # noqa: SLF001  (the loop is a part of the tube)
        if not self._delays and not buries and tube.options.max_attempts is None:
            log.warning(
                "%s: failed tasks come back forever: the tube has no max_attempts", tube.name
            )

    @property
    def name(self) -> str:
        """The name of the tube."""
        return self._tube.name

    def count(self, event: str) -> None:
        """Count an event of this loop, and let other programs see it at once, in `metrics` and `health`."""
        ctx = self._tube._ctx  # noqa: SLF001  (the loop is a part of the tube)
        ctx.events.count(event, 1)
        ctx.queue.session.heart.beat_soon()

    @property
    def takes_ahead(self) -> bool:
        """Whether more tasks may be taken than calls can begin at once."""
        return not self._tube._ctx.record.options.limit_takes  # noqa: SLF001  (as below)

    @property
    def frees_tasks(self) -> bool:
        """Whether an ack lets the next task of its sub-queue begin."""
        return self._tube._ctx.tube_type.subqueues  # noqa: SLF001  (as below)

    def holds(self, task: Task) -> bool:
        """Whether this session still holds a task for its attempt, as far as is known. Nothing is read."""
        return self._tube._ctx.queue.session.lasts() and self._attempt(task) == task.attempts  # noqa: SLF001  (as below)

    def _attempt(self, task: Task) -> int | None:
        ctx = self._tube._ctx  # noqa: SLF001  (the loop is a part of the tube)
        return ctx.queue.held_tasks.attempt(ctx.record.id, task.task_id)

    def take(self, count: int, timeout: float = 0) -> list[Task]:
        """Take up to this many tasks; none if the storage fails for a moment, or rivals come first."""
        try:
            return self._tube.take_many(
                count, timeout=timeout, per_utube=self._per_utube, utube=self._utube
            )
        except OF_STORAGE as error:
            require_passing(error)
            log.warning("%s: no task was taken: %s", self._tube.name, error)
            return []

    def finish(self, done: Sequence[Task], count: int) -> tuple[list[Task], list[Task], list[Task]]:
        """Ack tasks, and take up to `count` tasks.

        Returns:
            The acked tasks, those to ack later, and the taken ones. Other tasks of `done` were lost: their leases
            had ended, or an earlier ack with an unknown outcome has removed them.
        """

        def ack(ids: list[int]) -> list[Task]:
            if count > 0 and len(ids) == len(done):
                return self._tube.exchange(
                    ack=ids, take=count, per_utube=self._per_utube, utube=self._utube
                )
            self._tube.ack_many(ids)
            return []

        result = self._on_held(done, ack)
        return result.settled, result.later, result.tasks

    def fail(self, failures: Sequence[Failure]) -> tuple[int, list[Task]]:
        """Release tasks that failed, or bury them. If a failure does not count, its task is given back with the error.

        Returns:
            The number of buried tasks, and the tasks to settle later.
        """
        buried = 0
        later: list[Task] = []
        groups: dict[_Fate, list[Failure]] = defaultdict(list)
        for failure in failures:
            groups[self._fate(failure)].append(failure)
        for fate, group in groups.items():
            errors = {each.task.task_id: each.error for each in group}
            result = self._on_held(
                [each.task for each in group], partial(self._settle_failed, errors, fate)
            )
            buried += sum(task.state is TaskState.BURIED for task in result.tasks)
            later += result.later
        return buried, later

    def _fate(self, failure: Failure) -> _Fate:
        if self._buries or failure.buries:
            return _Fate.BURIED
        return _Fate.RELEASED if failure.counts else _Fate.GIVEN_BACK

    def holds_for(self, failure: Failure) -> float:
        """Seconds for which a failed task is held before it is settled; 0 if it need not be held."""
        if self._delays or self._fate(failure) is not _Fate.RELEASED:
            return 0.0
        # The last known options: a read could fail here.
        most = self._tube._ctx.table.max_attempts  # noqa: SLF001  (as above)
        is_last = most is not None and failure.task.attempts >= most
        delay_us = Backoff().delay_us(failure.task.attempts, failure.task.task_id)
        return 0.0 if is_last else min(delay_us / US, LONGEST)

    def _settle_failed(
        self, errors: Mapping[int, BaseException | str], fate: _Fate, ids: list[int]
    ) -> list[Task]:
        texts = error_texts({task_id: errors[task_id] for task_id in ids}, ids)
        if fate is _Fate.BURIED:
            # `Tube.bury_many` would also bury a task that another consumer holds by now.
            verb = settle.bury(texts, by_holder=True)
        elif fate is _Fate.GIVEN_BACK:
            verb = settle.give_back(texts)
        else:
            # By a backoff, also if the tube has none.
            verb = settle.release(Release(Backoff() if self._delays else 0, texts, by_backoff=True))
        return self._tube._settle(verb, ids)  # noqa: SLF001  (the loop is a part of the tube)

    def give_back(self, tasks: Sequence[Task]) -> list[Task]:
        """Give back tasks that no handler has begun, as if they had never been taken.

        Returns:
            The tasks to give back later.
        """
        settled = lambda ids: self._tube._settle(settle.GIVE_BACK, ids, "release")  # noqa: SLF001, E731  (as above)
        return self._on_held(tasks, settled).later

    def release(self, tasks: Sequence[Task]) -> list[Task]:
        """Release tasks, perhaps with running handlers; returns those to release later."""
        stopped = partial(self._tube.release_many, delay=0, error=STOPPED)
        return self._on_held(tasks, stopped).later

    def renew(self, tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
        """Renew the leases of tasks; returns those with new leases, and those to renew later. Others were lost."""
        settled = lambda ids: self._tube._settle(settle.RENEW, ids, "touch")  # noqa: SLF001, E731  (as above)
        result = self._on_held(tasks, settled)
        return result.tasks, result.later

    def _on_held(self, tasks: Sequence[Task], verb: Callable[[list[int]], list[Task]]) -> _Result:
        """Run a verb, in one commit, on those tasks that are still held.

        A lost task must not cost a commit for each of the others, because their leases would end meanwhile. A task
        that this session holds for another attempt by now is lost, too, because verbs name only ids.
        """
        ids_held = {t.task_id for t in tasks if self._attempt(t) in (None, t.attempts)}
        held = _without_lost(tasks, ids_held)
        try:
            while held:
                ids = [task.task_id for task in held]
                try:
                    return _Result(verb(ids), held, [])
                except NotTakenError as error:
                    there = self._tube._read(partial(settle.still_held, ids=ids))  # noqa: SLF001  (as above)
                    if there.issuperset(ids):
                        log.warning(
                            "%s: %d tasks stay as they are: %s", self._tube.name, len(ids), error
                        )
                        break
                    held = _without_lost(held, there)
        except OF_STORAGE as error:
            require_passing(error)
            log.warning("%s: %d tasks stay as they are: %s", self._tube.name, len(held), error)
        return _Result([], [], held)


def _without_lost(tasks: Sequence[Task], held: Collection[int]) -> list[Task]:
    """Those tasks whose ids are still held; the others are logged."""
    for task in tasks:
        if task.task_id not in held:
            log_lost(task)
    return [task for task in tasks if task.task_id in held]


class _Result(NamedTuple):
    """The result of a verb, the settled tasks, and those to settle later."""

    tasks: list[Task]
    settled: list[Task]
    later: list[Task]
