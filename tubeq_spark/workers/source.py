"""The tube of a worker loop: takes, settles and renews tasks, and decides about failed ones."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
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
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.model.arguments import Utubes
    from tubeq_spark.model.failures import ErrorTexts
    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube
    from tubeq_spark.verbs.settle import Verb
    from tubeq_spark.workers.handlers import Failure

    #: Makes a verb from the errors of tasks.
    VerbOf: TypeAlias = Callable[[ErrorTexts | None], Verb]

log = logging.getLogger(__name__)
#: The error of a task whose call was running when its loop had to end at once.
STOPPED = "the worker was stopped before the call ended"
#: Seconds between two checks of things that wake nobody: the event of the program, and the time.
LOOK = 0.25


@contextlib.contextmanager
def going_on(said: str) -> Iterator[None]:
    """Run a block that commits. Errors that may pass by themselves end it with a line in the log.

    Raises:
        StoreError: It does not pass by itself.
    """
    try:
        yield
    except (ConflictError, CommitUnknownError, StoreError) as error:
        if isinstance(error, StoreError) and not error.passes:
            raise
        log.warning("%s: %s", said, error)


def log_lost(task: Task) -> None:
    """Log that a task is no longer held for the attempt that a handler got."""
    said = "task %d was lost at attempt %d: its lease ended, or an earlier ack or another program has settled it"
    log.warning(said, task.task_id, task.attempts)


#: Other consumers may hold a task by now, and `Tube.bury_many` would bury it.
_bury = partial(settle.bury, by_holder=True)


def _stop(texts: ErrorTexts | None) -> Verb:
    return settle.release(Release(error=texts))


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
        taken: list[Task] = []
        with going_on(f"{self._tube.name}: no task was taken"):
            taken += self._tube.take_many(
                count, timeout=timeout, per_utube=self._per_utube, utube=self._utube
            )
        return taken

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
        groups: dict[VerbOf, list[Failure]] = defaultdict(list)
        for failure in failures:
            groups[self._verb_of(failure)].append(failure)
        for verb_of, group in groups.items():
            errors = {each.task.task_id: each.error for each in group}
            result = self._on_held(
                [each.task for each in group], partial(self._settle_failed, verb_of, errors)
            )
            buried += sum(task.state is TaskState.BURIED for task in result.tasks)
            later += result.later
        return buried, later

    def _verb_of(self, failure: Failure) -> VerbOf:
        """What settles a failed task with its error."""
        if failure.reason is STOPPED:
            return _stop
        if self._buries or failure.buries:
            return _bury
        return self._release if failure.counts else settle.give_back

    def _release(self, texts: ErrorTexts | None) -> Verb:
        # By a backoff, also if the tube has none.
        return settle.release(Release(Backoff() if self._delays else 0, texts, by_backoff=True))

    def holds_for(self, failure: Failure) -> float:
        """Seconds for which a failed task is held before it is settled; 0 if it need not be held."""
        if self._delays or self._verb_of(failure) != self._release:
            return 0.0
        # The last known options: a read could fail here.
        most = self._tube._ctx.table.max_attempts  # noqa: SLF001  (as above)
        is_last = most is not None and failure.task.attempts >= most
        delay_us = Backoff().delay_us(failure.task.attempts, failure.task.task_id)
        return 0.0 if is_last else min(delay_us / US, LONGEST)

    def _settle_failed(
        self, verb_of: VerbOf, errors: Mapping[int, BaseException | str], ids: list[int]
    ) -> list[Task]:
        return self._settle(verb_of(error_texts(errors, ids)), ids)

    def _settle(self, verb: Verb, ids: list[int]) -> list[Task]:
        return self._tube._settle(verb, ids)  # noqa: SLF001  (the loop is a part of the tube)

    def give_back(self, tasks: Sequence[Task]) -> list[Task]:
        """Give back tasks that no handler has begun, as if they had never been taken.

        Returns:
            The tasks to give back later.
        """
        return self._on_held(tasks, partial(self._settle, settle.GIVE_BACK)).later

    def renew(self, tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
        """Renew the leases of tasks; returns those with new leases, and those to renew later. Others were lost."""
        result = self._on_held(tasks, partial(self._settle, settle.RENEW))
        return result.tasks, result.later

    def _on_held(self, tasks: Sequence[Task], verb: Callable[[list[int]], list[Task]]) -> _Result:
        """Run a verb, in one commit, on those tasks that are still held.

        A lost task must not cost a commit for each of the others, because their leases would end meanwhile. A task
        that this session holds for another attempt by now is lost, too, because verbs name only ids.
        """
        ids_held = {t.task_id for t in tasks if self._attempt(t) in (None, t.attempts)}
        held = _without_lost(tasks, ids_held)
        with going_on(f"{self._tube.name}: {len(held)} tasks stay as they are"):
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
