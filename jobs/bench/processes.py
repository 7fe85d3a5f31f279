"""What processes that share one tube on local files get done, beside one process alone.

    PYTHONPATH=jobs python -m bench.processes
    PYTHONPATH=jobs python -m bench.processes --processes 8 --rounds 5 --seconds 5 --json found.json

Each takes a task and acks it, by the native engine, as often as it can in some seconds; one process
and several take turns, so a busy machine slows down both. More processes get more of a busy machine
than one does: trust the ratio of an idle one only, and beside it the processor time of a task.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import BenchError
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from multiprocessing.queues import Queue as Answers
    from multiprocessing.synchronize import Barrier

__all__ = ["Goodput", "Shared", "main", "measure"]

#: Tasks that are there at the beginning: more than can be done.
_PUTS, _TASKS = 20, 1_000
_WARM_UP = 3
#: Seconds for all processes to have started.
_START = 120.0


@dataclass(frozen=True, slots=True)
class Goodput:
    """What some processes got done together.

    Attributes:
        processes: How many.
        per_second: Tasks taken and acked, in a second.
        least: Those of the process that did the fewest, in all.
        most: Those of the one that did the most.
        cpu_s: Seconds of processor time that a task took.
    """

    processes: int
    per_second: float
    least: int
    most: int
    cpu_s: float


@dataclass(slots=True)
class Shared:
    """Rounds of one process alone, and of several."""

    alone: list[Goodput] = field(default_factory=list)
    together: list[Goodput] = field(default_factory=list)

    def measure(self, processes: int, seconds: float, rounds: Iterable[int]) -> None:
        """Measure both in turns.

        Raises:
            BenchError: A tube was empty before the time was over.
        """
        for _ in rounds:
            alone = measure(1, seconds)
            self.together.append(measure(processes, seconds))
            self.alone.append(alone)

    @property
    def ratio(self) -> float:
        """How many times the tasks of one process several did, round by round, and of that the median."""
        pairs = zip(self.together, self.alone, strict=True)
        return statistics.median(many.per_second / one.per_second for many, one in pairs)


def measure(processes: int, seconds: float) -> Goodput:
    """Let processes empty a new tube for some seconds.

    Raises:
        BenchError: It was empty before.
    """
    # With everything imported once, and no thread yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tubeq_spark.queue", "deltalake"])
    with tempfile.TemporaryDirectory(prefix="tubeq-bench-") as location:
        with Queue(None, location, engine="native") as queue:
            tube = queue.create_tube("work", "fifottl")
            for _ in range(_PUTS):
                tube.put_many(range(_TASKS))
        begin, answers = context.Barrier(processes + 1), context.Queue()
        arguments = (location, seconds, begin, answers)
        started = [context.Process(target=_consume, args=arguments) for _ in range(processes)]
        for process in started:
            process.start()
        begin.wait(_START)
        told = [answers.get() for _ in started]
        for process in started:
            process.join()
    counts, took = [count for count, _ in told], sum(cpu for _, cpu in told)
    if None in counts or not all(counts):
        msg = f"{processes} processes did {counts} tasks in {seconds} s: not to be compared"
        raise BenchError(msg)
    done = sum(counts)
    return Goodput(processes, done / seconds, min(counts), max(counts), took / done)


def _consume(
    location: str, seconds: float, begin: Barrier, answers: Answers[tuple[int | None, float]]
) -> None:
    # A terminal's Ctrl-C is for whoever waits for the answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Queue(None, location, engine="native") as queue:
        tube = queue["work"]
        for _ in range(_WARM_UP):
            for task in tube.take_many(1):
                tube.ack(task.task_id)
        begin.wait(_START)
        count: int | None = 0
        cpu, until = _cpu(), time.monotonic() + seconds
        while count is not None and time.monotonic() < until:
            found = tube.take(0)
            if found is None:
                count = None
            else:
                tube.ack(found.task_id)
                count += 1
        answers.put((count, _cpu() - cpu))


def _cpu() -> float:
    """The processor time of this process, all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    parse = argparse.ArgumentParser(prog="bench.processes", description=__doc__.splitlines()[0])
    parse.add_argument("--processes", type=int, default=8, help="beside one (%(default)s)")
    parse.add_argument("--rounds", type=int, default=5, help="of each (%(default)s)")
    parse.add_argument("--seconds", type=float, default=5.0, help="of a round (%(default)s)")
    parse.add_argument("--json", type=Path, help="write all numbers there")
    given = parse.parse_args(argv)
    found = Shared()
    found.measure(given.processes, given.seconds, range(given.rounds))
    sides = {1: found.alone, given.processes: found.together}
    for processes, rounds in sides.items():
        rates = sorted(one.per_second for one in rounds)
        shares = ", ".join(f"{one.least}-{one.most}" for one in rounds)
        print(
            f"{processes} processes, n = {len(rates)}: {statistics.median(rates):.1f} tasks/s "
            f"({rates[0]:.1f} to {rates[-1]:.1f}), "
            f"{statistics.median(one.cpu_s for one in rounds) * 1000:.1f} ms of processor time each; "
            f"by one process {shares}"
        )
    print(
        f"{given.processes} do {found.ratio:.2f} times what one does (median of the rounds' ratios)"
    )
    if given.json is not None:
        rounds_of = {str(key): [asdict(one) for one in value] for key, value in sides.items()}
        given.json.write_text(json.dumps(rounds_of, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
