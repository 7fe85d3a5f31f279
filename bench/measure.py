"""Runs the subjects of a comparison by turns, and reduces what their rounds told to medians and ratios."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: One round of a subject; returns its figures by what was measured.
    Round = Callable[[], Mapping[str, float]]

__all__ = ["BenchError", "Samples", "Sizes", "Spread", "by_turns", "checked", "timed"]


class BenchError(Exception):
    """A measurement that means nothing; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        rounds: Of long measurements.
        calls: Rounds of single calls; a tenth of them on Spark.
        seconds: Of a load of threads; a load of `Tube.work` lasts five times as long.
        tasks: Waiting tasks of such a load.
        batch: Tasks of a large batch.
        few: Waiting tasks beside which single calls are measured.
        many: The same, when they are many.
        workers: Processes that share a tube on an object store.
    """

    rounds: int = 3
    calls: int = 100
    seconds: float = 2.0
    tasks: int = 30_000
    batch: int = 100_000
    few: int = 1_000
    many: int = 2_000_000
    workers: Sequence[int] = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Spread:
    """Some figures: how many, their quartiles and their median."""

    n: int
    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one figure."""
        if len(values) == 1:
            return cls(1, values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(len(values), low, median, high)


@dataclass(slots=True)
class Samples:
    """The figures of a comparison, round by round.

    Attributes:
        figures: By what was measured, and by the subject. A name `what | column` is for another
            figure of the same calls, which is a column of its own.
    """

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, subject: str, found: Mapping[str, float]) -> None:
        """Add what a round of a subject told."""
        for what, figure in found.items():
            self.figures.setdefault(what, {}).setdefault(subject, []).append(figure)

    def ratio(self, what: str, subject: str, reference: str) -> float | None:
        """How many times the figure of the reference a subject has, round by round, and of that the median.

        Both ran within the same seconds of a round, so what else the machine does falls out.

        Returns:
            The ratio; `None` if it is the reference itself, or if that was not measured, or is 0.
        """
        of_what = self.figures[what]
        if subject == reference or reference not in of_what:
            return None
        # Stopped within a round, one of them has a figure more.
        pairs = zip(of_what[subject], of_what[reference], strict=False)
        ratios = [mine / theirs for mine, theirs in pairs if theirs]
        return statistics.median(ratios) if ratios else None


def by_turns(
    title: str,
    subjects: Sequence[tuple[str, Round]],
    rounds: int,
    samples: Samples,
    *,
    warm_up: int = 1,
) -> None:
    """Run subjects by turns; who began a round is the last of the next one.

    Args:
        title: What to say on standard error.
        subjects: Each with its name. A name may be there twice, for different figures.
        rounds: How many rounds count.
        samples: Where to add, so that a run that is stopped has the rounds before.
        warm_up: Rounds before that, which do not count.

    Raises:
        BenchError: A subject did not do what it was asked to.
    """
    sys.stderr.write(f"{title}: {rounds} rounds of {len(subjects)}\n")
    for number in range(-warm_up, rounds):
        first = number % len(subjects)
        for name, run in (*subjects[first:], *subjects[:first]):
            found = run()
            if number >= 0:
                samples.add(name, found)


def timed(call: Callable[[], int], count: int) -> float:
    """The seconds of a call that returns for how many tasks it was.

    Raises:
        BenchError: It was for another number of tasks.
    """
    began = time.perf_counter()
    tasks = call()
    seconds = time.perf_counter() - began
    checked(tasks, count)
    return seconds


def checked(tasks: int, count: int) -> None:
    """Refuse a call that was for another number of tasks.

    Raises:
        BenchError: It was.
    """
    if tasks != count:
        msg = f"a call for {count} tasks was for {tasks}"
        raise BenchError(msg)
