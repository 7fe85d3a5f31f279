"""The delay after which a failed task is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model import validation

if TYPE_CHECKING:
    from collections.abc import Callable

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
