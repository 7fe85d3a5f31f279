"""How fast the tasks of a sub-queue may begin."""

from __future__ import annotations

from dataclasses import dataclass

from tubeq_spark.model import validation

#: The most leases that a rate counts: a sub-queue keeps the moment of each.
MOST_TASKS = 1_000


@dataclass(frozen=True, slots=True)
class Rate:
    """How many leases of one sub-queue may begin in some seconds.

    Attributes:
        tasks: So many at most, 1 to 1,000.
        seconds: In any period of this length, > 0.

    Raises:
        InvalidOptionError: A value is out of range.
    """

    tasks: int
    seconds: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        if validation.count("tasks", self.tasks, least=1) > MOST_TASKS:
            validation.refuse("tasks", self.tasks, f"at most {MOST_TASKS:,}")
        validation.lease("seconds", self.seconds)
