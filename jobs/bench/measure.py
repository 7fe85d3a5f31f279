"""Times the queue and the bare statements by turns, a round at a time; medians and ratios of that."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.plan import Series
    from bench.subjects import Subject

__all__ = ["VERBS", "BenchError", "Measured", "Progress", "interleave", "quartiles"]

VERBS = ("put", "take", "ack")


class BenchError(Exception):
    """A measurement that means nothing; the message says why."""


@dataclass(slots=True)
class Measured:
    """The times of one subject, by verb.

    Attributes:
        batch: Tasks in a batch.
        seconds: Of each measured call.
        cpu: Processor time of this process in each of them: all of it, where there is no JVM.
        commits: Of one call, read from the table's version before and after it.
        all_commits: Of all measured rounds together.
    """

    batch: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: {verb: [] for verb in VERBS})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {verb: [] for verb in VERBS})
    commits: dict[str, int] = field(default_factory=dict)
    all_commits: int = 0

    @property
    def rounds(self) -> int:
        """How many rounds were measured: none when it was stopped before."""
        return len(self.seconds[VERBS[-1]])

    def median(self, verb: str) -> float:
        """The middle of the times."""
        return statistics.median(self.seconds[verb])

    def p90(self, verb: str) -> float:
        """The time that nine of ten calls stay within, to the nearest call above."""
        ordered = sorted(self.seconds[verb])
        return ordered[math.ceil(0.9 * len(ordered)) - 1]

    def quartiles(self, verb: str) -> tuple[float, float]:
        """What a quarter of the calls stay below, and what a quarter of them exceed."""
        return quartiles(self.seconds[verb])

    def tasks_per_second(self, verb: str) -> float:
        """Tasks in a batch over the median."""
        return self.batch / self.median(verb)

    def ratio_to(self, other: Measured, verb: str) -> float:
        """How many times as long as `other` it takes, round by round, and of that the median.

        Both were busy within the same seconds of a round, so what else the machine does falls out.
        """
        return _ratio(self.seconds[verb], other.seconds[verb])

    def cpu_ratio_to(self, other: Measured, verb: str) -> float:
        """The same of the processor time, which others on a busy machine change less."""
        return _ratio(self.cpu[verb], other.cpu[verb])

    def as_dict(self, verb: str) -> dict[str, Any]:
        """Everything about one verb, for JSON."""
        low, high = self.quartiles(verb)
        return {
            "n": len(self.seconds[verb]),
            "median_s": round(self.median(verb), 6),
            "quartiles_s": [round(low, 6), round(high, 6)],
            "p90_s": round(self.p90(verb), 6),
            "cpu_s": round(statistics.median(self.cpu[verb]), 6),
            "tasks_per_s": round(self.tasks_per_second(verb), 1),
            "commits": self.commits[verb],
        }


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, theirs, strict=True))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile of some values."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


class Progress:
    """Says what is being measured: one line that changes on a terminal, a line a series elsewhere."""

    def __init__(self, stream: TextIO, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write to a stream, until `stopped` says that no more is to be measured."""
        self._stream = stream
        self._live = stream.isatty()
        self._said = ""
        self.stopped = stopped

    def rounds(self, what: str, count: int) -> Iterator[int]:
        """Count to `count` - 1, showing it; ends early, between two rounds, when it is stopped."""
        line = f"{what}: {count} rounds\n"
        if not self._live and line != self._said:
            self._said = line
            self._stream.write(line)
            self._stream.flush()
        for number in range(count):
            if self.stopped():
                break
            if self._live:
                self._stream.write(f"\r\x1b[K{what}: {number + 1} of {count} rounds")
                self._stream.flush()
            yield number
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def interleave(
    what: str, series: Series, subjects: Mapping[str, Subject], progress: Progress
) -> dict[str, Measured]:
    """Measure subjects in turns: each verb of all of them, whoever was last begins the next round.

    Stopped, it returns the rounds that it has measured.

    Args:
        what: What to say of it.
        series: How often.
        subjects: By name.
        progress: Where to say it.

    Raises:
        BenchError: A verb was not for as many tasks as it was given.
    """
    measured = {name: Measured(series.batch) for name in subjects}
    before = dict.fromkeys(subjects, 0)
    for number in progress.rounds(what, series.warm_up + series.rounds):
        names = list(subjects)
        names = names[number % len(names) :] + names[: number % len(names)]
        if number == series.warm_up:
            before = {name: subject.version() for name, subject in subjects.items()}
        for name in names:
            subjects[name].prepare()
        for verb in VERBS:
            for name in names:
                if number < series.warm_up:
                    _count(subjects[name], verb, measured[name])
                else:
                    seconds, cpu = _time(subjects[name], verb, series.batch)
                    measured[name].seconds[verb].append(seconds)
                    measured[name].cpu[verb].append(cpu)
    for name, subject in subjects.items():
        measured[name].all_commits = subject.version() - before[name]
    return measured


def _count(subject: Subject, verb: str, measured: Measured) -> None:
    before = subject.version()
    _time(subject, verb, measured.batch)
    measured.commits[verb] = subject.version() - before


def _time(subject: Subject, verb: str, batch: int) -> tuple[float, float]:
    call = {"put": subject.put, "take": subject.take, "ack": subject.ack}[verb]
    began, cpu = time.perf_counter(), time.process_time()
    tasks = call()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if tasks != batch:
        msg = f"{verb} of {batch} tasks by {type(subject).__name__} was for {tasks}"
        raise BenchError(msg)
    return seconds, cpu
