"""What handlers say of tasks that they failed at, and the delay after which these are tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model import validation

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    #: Why a task failed.
    Reason: TypeAlias = BaseException | str

#: Beyond this exponent each delay is the longest one.
_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of failed tasks, which grow with each attempt.

    After attempt `n` the delay is `first * factor ** (n - 1)`, `most` at most, and up to `jitter` of it
    longer or shorter, so that tasks that failed together are not tried together.

    Attributes:
        first: Seconds after the first attempt, >= 0.
        factor: By how much each delay is longer than the one before, >= 1.
        most: Seconds of the longest delay, >= `first`.
        jitter: Part of the delay that chance decides, 0 to 1.

    Raises:
        InvalidOptionError: A value is out of range.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 3600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("first", "factor", "most", "jitter"):
            validation.seconds(name, getattr(self, name))
        if self.factor < 1:
            validation.refuse("factor", self.factor, "at least 1")
        if self.most < self.first:
            validation.refuse("most", self.most, f"at least first ({self.first})")
        if self.jitter > 1:
            validation.refuse("jitter", self.jitter, "at most 1")

    def delay(self, attempts: int, uniform: Callable[[], float]) -> float:
        """The seconds before a task is tried again.

        Args:
            attempts: How often it has been taken, >= 1.
            uniform: A random number from 0 to 1.
        """
        delay = self.first
        for _ in range(min(attempts - 1, _STEPS)):
            if delay >= self.most or self.factor == 1:
                break
            delay *= self.factor
        return min(delay, self.most) * (1 + self.jitter * (2 * uniform() - 1))


class Bury(Exception):  # noqa: N818  (it is raised to say what becomes of a task; nothing failed)
    """Raised by a handler of `Tube.work`, or the reason of a failed task: bury it at once."""


class FailedTasks(Exception):  # noqa: N818  (it names tasks, not an error)
    """Raised or returned by a handler of several tasks: these failed, all others are done.

    Raised in the block of a `Batch`, it says the same of that batch, and goes no further.

    Attributes:
        reasons: By task id an exception or a text. `Bury` as the reason buries the task at once.
    """

    def __init__(self, reasons: Mapping[int, Reason]) -> None:
        """Name the tasks that failed, each with its reason.

        Raises:
            InvalidOptionError: An id is no whole number, or a reason neither a text nor an exception.
        """
        if not isinstance(reasons, Mapping):
            validation.refuse("reasons", type(reasons), "a mapping from task ids to reasons")
        super().__init__(f"{len(reasons)} tasks failed")
        for reason in reasons.values():
            if not isinstance(reason, str | BaseException):
                validation.refuse("reasons", reason, "texts or exceptions")
        self.reasons = {validation.task_id(number): reason for number, reason in reasons.items()}
