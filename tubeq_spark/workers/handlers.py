"""Calls a program's handler, and says which tasks are done and which failed. No tube is touched here.

It also has the limits, the listeners and the report of a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.failures import (
    PATIENCE,
    Bury,
    FailedTasks,
    halves,
    headline,
    program_frames,
    said,
)
from tubeq_spark.model.validation import is_async, is_generator, refuse, require_run, takes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from signal import Signals
    from typing import TypeAlias

    from tubeq_spark.model.arguments import Seconds
    from tubeq_spark.model.failures import Reason
    from tubeq_spark.task import Task

    #: The handler of `Tube.work`: a function of a task or, with `batch > 1`, of a list of tasks.
    Handler: TypeAlias = Callable[[Any], object] | Callable[[Any], Awaitable[object]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed task, and the reason.

    Attributes:
        task: The task.
        reason: What the handler raised, or named.
        counts: Whether the call counts as an attempt. If not, something else than the task has probably failed.
    """

    task: Task
    reason: Reason
    counts: bool = True

    @property
    def buries(self) -> bool:
        """Whether the handler asked to bury it."""
        return isinstance(self.reason, Bury)

    @property
    def error(self) -> BaseException | str:
        """The error that is stored with the task; of a `Bury` only its text."""
        return (said(self.reason) or "Bury") if isinstance(self.reason, Bury) else self.reason

    def log(self) -> None:
        """Log the task with its reason."""
        error, trace = self.reason, None
        if isinstance(error, BaseException):
            trace = type(error), error, program_frames(error)
        text = "task %d failed at attempt %d: %s"
        log.warning(text, self.task.task_id, self.task.attempts, headline(error), exc_info=trace)


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What a call of `Tube.work` has done.

    Attributes:
        done: Tasks that were acked. An ack whose answer was lost may be missing.
        failed: Number of failures: a task that failed twice counts twice.
        buried: Failed tasks that were buried: by `Bury`, by `on_error="bury"`, or at
            `max_attempts`.
        seconds: How long it worked, by the queue's clock.
        gave_up: Whether a loop with `idle` ended because all calls failed, with tasks left.
    """

    done: int = 0
    failed: int = 0
    buried: int = 0
    seconds: float = 0.0
    gave_up: bool = False

    def __add__(self, other: WorkReport) -> WorkReport:
        """The tasks of both; the seconds are those of this one, and so is whether it gave up."""
        return replace(
            self,
            done=self.done + other.done,
            failed=self.failed + other.failed,
            buried=self.buried + other.buried,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """How many tasks a loop handles at a time, and when it ends.

    Attributes:
        calls: The most calls at a time.
        batch: The most tasks of a call.
        idle: Seconds without a task after which the loop ends; `None` if it goes on.
        poll: Seconds between two takes from a tube that had no task, while calls run.
    """

    calls: int
    batch: int
    idle: float | None
    poll: float


@dataclass(frozen=True, slots=True)
class Ears:
    """Functions that a loop calls while it runs.

    Attributes:
        progress: Called with the report so far, after each step of the loop.
        calls: Called by the threads of calls with the tasks of each call, and whether it begins; else it is over.
        hands_on: Whether a parent process hands signals on to this one: the first one as SIGTERM, the second one
            as SIGINT.
        stopping: Called once with the number of running calls, when the loop is asked to end after them.
        cut_off: Called with the first signal, if a second one made the loop give back tasks of running calls.
    """

    progress: Callable[[WorkReport], object] = lambda _: None
    calls: Callable[[Sequence[Task], bool], object] = lambda *_: None
    hands_on: bool = False
    stopping: Callable[[int], object] = lambda _: None
    cut_off: Callable[[Signals], object] = lambda _: None


@dataclass(slots=True)
class Outcome:
    """The outcome of some tasks, after a call with all of them, and calls with halves of those at which it fails."""

    done: list[Task] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    #: Tasks that may succeed in another call: their leases had ended, or too many calls before had failed.
    untried: list[Task] = field(default_factory=list)
    #: The tasks of further calls.
    parts: list[Sequence[Task]] = field(default_factory=list)
    #: How many calls have failed in a row.
    _failed: int = 0

    def next(self, is_held: Callable[[Task], bool]) -> Sequence[Task]:
        """The tasks of the next call, which are still held; none if no call is left."""
        while self.parts:
            held: list[Task] = []
            for task in self.parts.pop():
                goes_on = self._failed < PATIENCE and is_held(task)
                (held if goes_on else self.untried).append(task)
            if held:
                return held
        return []

    def returned(self, tasks: Sequence[Task], result: object) -> None:
        """All tasks are done, except those that the result names."""
        self._failed = 0
        reasons = result.reasons if isinstance(result, FailedTasks) else {}
        strange = reasons.keys() - {task.task_id for task in tasks}
        if strange:
            log.warning("a handler named tasks that it was not given: %s", sorted(strange))
        for task in tasks:
            if task.task_id in reasons:
                self.failed.append(Failure(task, reasons[task.task_id]))
            else:
                self.done.append(task)

    def raised(self, tasks: Sequence[Task], error: BaseException) -> None:
        """The named tasks have failed, or the only one. Else it is not known which of the tasks failed."""
        if isinstance(error, FailedTasks):
            try:
                self.returned(tasks, error)
            except Exception as unnamed:  # noqa: BLE001  (a class of the program may lack the reasons)
                self.raised(tasks, unnamed)
            return
        self._failed = 0 if isinstance(error, Bury) else self._failed + 1
        if len(tasks) > 1:
            self.parts += halves(tasks)
        else:
            self.failed.append(Failure(tasks[0], error))


def check(handler: object, time_limit: Seconds | None) -> None:
    """Refuse a handler that `Tube.work` cannot call.

    Raises:
        InvalidOptionError: It cannot be called, or nothing could enforce its time limit.
    """
    if not callable(handler) or is_generator(handler):
        refuse("handler", handler, "a function that takes a task, and not a generator")
    takes("handler", handler, "a function that takes a task")
    if time_limit is not None and not is_async(handler):
        msg = (
            "time_limit needs an async handler, or processes (tubeq work --processes): "
            "a thread that runs a function cannot be ended"
        )
        raise InvalidOptionError(msg)


class Calls:
    """Calls a handler with one task, or with several."""

    def __init__(self, handler: Handler, *, single: bool, time_limit: float | None = None) -> None:
        """Call `handler` with a task (`single`) or a list of tasks, each time for at most this many seconds."""
        self._handler: Any = handler
        self._single = single
        self._time_limit = time_limit
        #: Whether a call may begin with a task. If its lease has ended, another consumer may have it.
        self.is_held: Callable[[Task], bool] = lambda _: True
        #: Whether cancelled coroutines must end, because nobody waits for the outcome of their tasks.
        self.ends = False
        #: Called with the outcome of some tasks, in the thread of the call.
        self.sees: Callable[[Outcome], object] = lambda _: None
        #: Called with the tasks of each call, and whether it begins; else it is over.
        self.watch: Callable[[Sequence[Task], bool], object] = lambda *_: None
        #: The context manager of a call: its span, if the program wants one.
        self.span: Callable[[Sequence[Task]], AbstractContextManager[object]] = (
            contextlib.nullcontext
        )

    def call(self, tasks: Sequence[Task]) -> Outcome:
        """Call the handler. If it fails at several tasks together, find those at which it fails."""
        outcome = Outcome(parts=[tasks])
        while held := outcome.next(self.is_held):
            with self._trying(outcome, held):
                result = self._handler(self._argument(held))
                require_run(result)
                outcome.returned(held, result)
        return outcome

    async def call_async(self, tasks: Sequence[Task]) -> Outcome:
        """The same for a coroutine function; a call that takes too long is cancelled."""
        outcome = Outcome(parts=[tasks])
        while held := outcome.next(self.is_held):
            limit = asyncio.timeout(self._time_limit)
            with self._trying(outcome, held, limit):
                async with limit:
                    result = await self._handler(self._argument(held))
                require_run(result)
                outcome.returned(held, result)
        return outcome

    @contextlib.contextmanager
    def _trying(
        self, outcome: Outcome, held: Sequence[Task], limit: asyncio.Timeout | None = None
    ) -> Iterator[None]:
        """A block with one call. If it raises, its tasks have failed, or parts of them are tried."""
        self.watch(held, True)  # noqa: FBT003  (it begins)
        try:
            with self.span(held):
                yield
        # A handler that exits, or awaits something cancelled, must not end its thread or the event loop.
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self.ends:
                raise
            if limit is not None and limit.expired():
                error = TimeoutError(f"it took longer than {self._time_limit:g} s")
            outcome.raised(held, error)
        self.watch(held, False)  # noqa: FBT003  (it is over)

    def _argument(self, tasks: Sequence[Task]) -> Task | list[Task]:
        if self._single:
            return tasks[0]
        if len(tasks) == 1:
            return list(tasks)
        # A failed handler is called again, and must not get payloads that it has changed.
        return [replace(task, data=copy.deepcopy(task.data)) for task in tasks]
