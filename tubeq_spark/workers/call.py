"""The limits and listeners of a call of `Tube.work`, and its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.task import Task
    from tubeq_spark.workers.handlers import Failure


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What a call of `Tube.work` has done.

    Attributes:
        done: Tasks that were acked.
        failed: Number of failures: a task that failed twice counts twice.
        buried: Failed tasks that were buried: by `Bury`, by `on_error="bury"`, or at
            `max_attempts`.
        seconds: How long it worked, by the queue's clock.
    """

    done: int = 0
    failed: int = 0
    buried: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How many tasks a loop handles at a time, and when it ends.

    Attributes:
        calls: The most calls at a time.
        batch: The most tasks of a call.
        ahead: The most tasks that may be taken ahead.
        idle: Seconds without a task after which the loop ends; `None` if it goes on.
        poll: Seconds between two takes from a tube that had no task, while calls run.
        time_limit: Seconds for which a call in a thread may run; `None` if unlimited.
    """

    calls: int
    batch: int
    ahead: int
    idle: float | None
    poll: float
    time_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Ears:
    """Functions that a loop calls while it runs.

    Attributes:
        progress: Called with the report so far, after each step of the loop.
        failed: Called with each failed task.
        overdue: Called with the tasks of calls that have run for too long, and all other tasks in hand. It ends
            the process.
        hands_on: Whether a parent process hands signals on to this one: the first one as SIGTERM, the second one
            as SIGINT.
    """

    progress: Callable[[WorkReport], object] = lambda _: None
    failed: Callable[[Failure], object] = lambda _: None
    overdue: Callable[[Sequence[Task], Sequence[Task]], object] = lambda *_: None
    hands_on: bool = False
