"""What a call of `Tube.work` is given, and what it returns."""

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
    """How much is done at a time, and when it ends.

    Attributes:
        calls: Calls at a time.
        batch: Tasks of a call at most.
        ahead: Tasks that may be taken ahead at most.
        idle: Seconds without a task after which the loop ends; `None`: it does not.
        poll: Seconds between two looks at a tube that had nothing, while calls run.
        time_limit: Seconds for which a call in a thread may run; `None`: no limit.
    """

    calls: int
    batch: int
    ahead: int
    idle: float | None
    poll: float
    time_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Ears:
    """Who is told of a loop while it runs.

    Attributes:
        progress: Called with what was done so far, after each step of the loop.
        failed: Called with each task that a handler failed at.
        overdue: Called with the tasks of calls that have run for too long, and all others in hand. It ends the
            process.
        hands_on: Whether who is told hands signals on, the first one as SIGTERM, the second one as SIGINT.
    """

    progress: Callable[[WorkReport], object] = lambda _: None
    failed: Callable[[Failure], object] = lambda _: None
    overdue: Callable[[Sequence[Task], Sequence[Task]], object] = lambda *_: None
    hands_on: bool = False
