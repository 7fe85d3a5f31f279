"""Runs a chaos: processes on one location that are killed at random, and what came of it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.checker import findings
from tests.chaos.drain import drain
from tests.chaos.history import History
from tests.chaos.journal import Journal, lives_of
from tests.chaos.plan import TUBES, open_queue
from tests.chaos.worker import work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.journal import Life

__all__ = ["Chaos", "Outcome"]

ROOT = Path(__file__).parents[2]
_SPARK_JOB = (sys.executable, "-m", "tests.chaos.spark_job")
#: Lines of its journal after which a Spark job is killed: how long it takes for them is the machine's.
_SPARK_LINES = (2, 16)
#: Seconds that the JVM of a killed job may go on.
_JVM_ENDS = 60.0


@dataclass(slots=True)
class Outcome:
    """What came of a chaos.

    Attributes:
        findings: What is wrong.
        kills: How many processes were killed.
        ops: How many verbs were called, by name and outcome.
        killed_in: In how many of which the process was killed.
        tasks: How many tasks there were, by tube, and how many were left.
        warnings: What the package warned of, and how often.
        left: Files that killed processes have left, by kind.
        longest: The longest that an acknowledged verb took, in seconds, by name.
    """

    findings: list[str]
    kills: int
    ops: Counter[str] = field(default_factory=Counter)
    killed_in: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    warnings: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)


class _Native:
    """A place for native processes, one after the other."""

    def __init__(self, location: str, directory: Path, number: int) -> None:
        # Each begins with everything imported, as half of its life would go by for that.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.chaos.worker"])
        self._location, self._directory = location, directory
        self._name, self._single = f"native{number}", number == 0
        # Threads of a process share their commits; a single taker is one.
        self._threads = 2 if number % 4 == 3 else 1
        self._lives = 0
        self._process: multiprocessing.process.BaseProcess | None = None

    def start(self) -> None:
        self._lives += 1
        name = f"{self._name}-{self._lives}"
        journal = str(self._directory / f"{name}.journal")
        self._process = self._context.Process(
            target=work, args=(self._location, journal, name, self._single, self._threads)
        )
        self._process.start()

    def kill(self) -> bool:
        """Kill it; False: it had ended by itself."""
        if self._process is None:
            return False
        is_alive = self._process.is_alive()
        self._process.kill()
        self._process.join()
        return is_alive


class _SparkJob:
    """A place for Spark jobs, one after the other."""

    def __init__(self, location: str, directory: Path) -> None:
        self._location, self._directory = location, directory
        self._lives = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._journal = directory

    def start(self) -> None:
        self._lives += 1
        name = f"spark-{self._lives}"
        self._journal = self._directory / f"{name}.journal"
        with (self._directory / f"{name}.err").open("wb") as errors:
            self._started.append(
                subprocess.Popen(
                    [*_SPARK_JOB, self._location, str(self._journal), name],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            )

    def lines(self) -> int:
        """How much it has done, as its journal says."""
        return self._journal.read_bytes().count(b"\n") if self._journal.exists() else 0

    def wait(self) -> None:
        """Wait until it works, or has ended."""
        while not self.lines() and self._started[-1].poll() is None:
            time.sleep(0.1)

    def kill(self) -> bool:
        """Kill its Python; its JVM notices that by itself."""
        process = self._started[-1]
        is_alive = process.poll() is None
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return is_alive

    def end(self) -> None:
        """Wait for the JVMs, and end those that do not."""
        until = time.monotonic() + _JVM_ENDS
        for process in self._started:
            while time.monotonic() < until and _is_group(process.pid):
                time.sleep(0.1)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _is_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Chaos:
    """One run."""

    def __init__(self, directory: Path, seed: int, workers: int, *, spark: bool) -> None:
        """Prepare it.

        Args:
            directory: Where the queue and the journals go.
            seed: What its decisions hang on; the moments are those of the machine.
            workers: How many native processes, >= 2.
            spark: Whether there is a Spark job, too.
        """
        self._journals = directory / "journals"
        self._journals.mkdir(parents=True)
        self._location = str(directory / "queue")
        self._random = random.Random(seed)
        self._natives = [
            _Native(self._location, self._journals, number) for number in range(workers)
        ]
        self._spark = _SparkJob(self._location, self._journals) if spark else None

    def run(self, seconds: float, every: float) -> Outcome:
        """Let it go on for some seconds, then look what came of it.

        Args:
            seconds: How long.
            every: Seconds from one kill to the next, on the average.
        """
        with open_queue(self._location) as queue:
            for tube in TUBES:
                queue.create_tube(tube.name, **tube.options)
        wrong: list[str] = []
        kills = 0
        places: list[_Native | _SparkJob] = [*self._natives]
        if self._spark is not None:
            places.append(self._spark)
        try:
            for place in reversed(places):
                place.start()
                if isinstance(place, _SparkJob):
                    place.wait()
            kills = self._kill_on(seconds, every, wrong)
        finally:
            for place in places:
                kills += place.kill()
            if self._spark is not None:
                self._spark.end()
        drained, counted = drain(self._location, Journal(self._journals / "drain.journal"))
        lives = lives_of(self._journals)
        history = History(lives)
        outcome = Outcome([*wrong, *counted, *findings(history, drained)], kills)
        _measure(outcome, lives, history, drained)
        outcome.left = _left_in(Path(self._location))
        return outcome

    def _kill_on(self, seconds: float, every: float, wrong: list[str]) -> int:
        until = time.monotonic() + seconds
        kills = 0
        spark_dies = self._random.randint(*_SPARK_LINES)
        while time.monotonic() < until:
            time.sleep(self._random.uniform(0, 2 * every))
            place: _Native | _SparkJob = self._random.choice(self._natives)
            if self._spark is not None and self._spark.lines() >= spark_dies:
                place, spark_dies = self._spark, self._random.randint(*_SPARK_LINES)
            if place.kill():
                kills += 1
            else:
                wrong.append("a process ended by itself")
            place.start()
        return kills


def _measure(
    outcome: Outcome, lives: Iterable[Life], history: History, drained: dict[str, set[int]]
) -> None:
    for op in history.ops:
        came = "killed" if op.end is None else op.error or "done"
        outcome.ops[f"{op.verb} {came}"] += 1
        if op.end is None:
            outcome.killed_in[op.verb] += 1
        else:
            longest = outcome.longest.get(op.verb, 0.0)
            outcome.longest[op.verb] = max(longest, op.end - op.begin)
    for life in lives:
        outcome.warnings.update(entry["warning"][:100] for entry in life.told if "warning" in entry)
    for tube, items in history.tube_items():
        outcome.tasks[tube.name] = (len(items), len(drained[tube.name]))


def _left_in(location: Path) -> Counter[str]:
    """Files that are no part of a table, nor of what the queue works with."""
    left: Counter[str] = Counter()
    for note in location.glob("_tubeq_locks/*.committing"):
        left["notes of commits"] += bool(note.stat().st_size)
    for file in location.glob("*/_delta_log/**/*"):
        if "#" in file.name or file.name.endswith(".tmp"):
            left["temporary files of a log"] += 1
    return left
