"""Runs the subjects of a comparison by turns, and computes medians and ratios from their figures."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: Runs one round of a subject; returns its figures by the names of the measurements.
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
        figures: The figures of each round, by the measurement and the subject. The measurement `what | column`
            belongs to the calls of `what`; the page shows its figures in a column of its own.
    """

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, subject: str, found: Mapping[str, float]) -> None:
        """Add the figures of one round of a subject."""
        for what, figure in found.items():
            self.figures.setdefault(what, {}).setdefault(subject, []).append(figure)

    def ratio(self, what: str, subject: str, reference: str) -> float | None:
        """The median of a subject's ratios to the reference, one ratio for each round.

        Both run within the same seconds of a round, so other load on the machine affects both.

        Returns:
            The ratio; `None` if the subject is the reference, or if the reference was not measured or is 0.
        """
        of_what = self.figures[what]
        if subject == reference or reference not in of_what:
            return None
        # If the run was stopped within a round, one of them has one figure more.
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
    """Run subjects by turns. The first subject of a round is the last one of the next round.

    Args:
        title: The title for standard error.
        subjects: The subjects and their names. A name may occur twice, for different figures.
        rounds: The number of rounds that count.
        samples: Gets the figures of each round at once, so a run that is stopped keeps them.
        warm_up: The number of rounds before, which do not count.

    Raises:
        BenchError: A round of a subject failed.
    """
    sys.stderr.write(f"{title}: {rounds} rounds of {len(subjects)}\n")
    for number in range(-warm_up, rounds):
        first = number % len(subjects)
        for name, run in (*subjects[first:], *subjects[:first]):
            found = run()
            if number >= 0:
                samples.add(name, found)


def timed(call: Callable[[], int], count: int) -> float:
    """The seconds that a call takes.

    Args:
        call: The call; it returns the number of its tasks.
        count: The number of tasks that it must return.

    Raises:
        BenchError: It returned another number.
    """
    began = time.perf_counter()
    tasks = call()
    seconds = time.perf_counter() - began
    checked(tasks, count)
    return seconds


def checked(tasks: int, count: int) -> None:
    """Refuse a call that has handled another number of tasks.

    Raises:
        BenchError: The numbers differ.
    """
    if tasks != count:
        msg = f"a call for {count} tasks was for {tasks}"
        raise BenchError(msg)
