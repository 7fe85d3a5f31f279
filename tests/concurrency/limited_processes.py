"""Processes that take from a tube with limits and are killed at random: what its commits say was taken, and when it began.

A program, too: `python -m tests.concurrency.limited_processes --processes 8 --subqueues 1000 --seconds 60`. Some
sub-queues, the hot ones, have so many tasks that only their limits keep these from being taken. The others have a few tasks
each. All commits of the tube are read afterwards, from its log and its files, and not by the code that wrote them.
It fails if a commit shows more taken tasks than may be, if more leases began in a period than may, or if less than
`LEAST` of what the rate of the hot sub-queues allows was done, in the time in which `parallel` allows it. Those who work do it without Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tests.native.logs import versions
from tubeq_spark import NotTakenError, PutItem, Queue, QueueConfig, Rate
from tubeq_spark.model.times import US

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.process import BaseProcess

    from tubeq_spark import Tube

__all__ = ["LEAST", "Load", "Outcome", "main", "run"]

#: The part of what the limits allow that must have been done.
LEAST = 0.8
NAME = "limited"
#: The limits of each sub-queue.
PARALLEL, RATE = 3, Rate(5, 1.0)
#: Seconds of a lease, and of the lease of a session.
TTR = 2
#: Tasks of each sub-queue that is not hot.
FEW = 3
#: Seconds after which somebody must have committed.
SILENCE = 120
#: The most tasks that a take from all sub-queues asks for.
MANY = 20
#: The part of the acts that is about all sub-queues.
OF_ALL = 0.25
#: Kinds of acts; each next one is chosen at random.
ACTS = ("ack", "ack", "exchange", "release", "batch")
#: What those who work import, once for all of them: half of a short life would go by for that.
PRELOADED = ("tubeq_spark.queue", "tubeq_spark.storage.native.engine", "pyarrow.parquet")
CONFIG = QueueConfig(retention_hours=24, session_check=0.5, durability="none")


@dataclass(frozen=True)
class Load:
    """What is done.

    Attributes:
        processes: How many work at a time.
        subqueues: How many sub-queues have a few tasks each.
        seconds: How long it goes on, at least.
        commits: How many commits there are, at least.
        hot: How many sub-queues have more tasks than may begin.
        every: Seconds from one kill to the next, on the average.
        hold: The most seconds that a task is held.
        options: The limits of the tube.
        seed: What the decisions of those who work hang on; the moments are those of the machine.
    """

    processes: int = 8
    subqueues: int = 1_000
    seconds: float = 60.0
    commits: int = 0
    hot: int = 2
    every: float = 2.0
    hold: float = 0.3
    options: Mapping[str, Any] = field(default_factory=lambda: {"parallel": PARALLEL, "rate": RATE})
    seed: int = 7

    @property
    def parallel(self) -> int:
        """How many tasks of a sub-queue may be taken at a time."""
        most: int = self.options.get("parallel", 1)
        return most

    @property
    def hot_names(self) -> list[str]:
        """The hot sub-queues."""
        return [f"hot{number}" for number in range(self.hot)]


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        kills: How many processes were killed.
        commits: How many commits of the tube were read.
        findings: Where limits were exceeded.
        most_taken: The most tasks of a sub-queue that were taken at a time.
        most_begun: The most leases of a sub-queue that began in a period of the rate.
        begun: Leases of hot sub-queues, and of the others.
        again: How many of them were not the first one of their task.
        free: The part of the time in which fewer tasks of a hot sub-queue were taken than may be. The others, a killed
            process may have held them.
        of_rate: The part of what the rate allows in that time that began.
        of_most: The part of `most_taken` that was taken, on the average.
    """

    kills: int = 0
    commits: int = 0
    findings: list[str] = field(default_factory=list)
    most_taken: int = 0
    most_begun: int = 0
    begun: tuple[int, int] = (0, 0)
    again: int = 0
    free: float = 0.0
    of_rate: float | None = None
    of_most: float | None = None

    @property
    def used(self) -> float:
        """The least part of a limit that was used."""
        return min(part for part in (self.of_rate, self.of_most) if part is not None)


@dataclass(frozen=True)
class Leased:
    """A taken task in a commit."""

    utube: str
    task_id: int
    attempts: int
    taken_us: int


def run(load: Load, location: Path) -> Outcome:
    """Let processes work and kill them at random; then look at all commits."""
    outcome = Outcome()
    with Queue(None, location, engine="native", config=CONFIG) as queue:
        tube = queue.create_tube(NAME, "utubettl", ttr=60, **load.options)
        # More than can begin: the rate, or what a process gets done.
        many = _most_begun(load)
        tube.put_many([PutItem(n, utube=name) for n in range(many) for name in load.hot_names])
        cold = [f"cold{number}" for number in range(load.subqueues)]
        tube.put_many([PutItem(n, utube=name) for n in range(FEW) for name in cold])
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))

        def started() -> BaseProcess:
            process = context.Process(target=work, args=(str(location), load, chance.random()))
            process.start()
            return process

        chance = random.Random(load.seed)
        log = location / NAME / "_delta_log"
        known = len(versions(log))

        def wait_for_commit() -> int:
            # A busy machine kills less often: else nobody would come to a commit.
            end = time.time() + SILENCE
            while (count := len(versions(log))) == known:
                assert time.time() < end, f"no commit in {SILENCE} s: {queue.statistics(NAME)}"
                time.sleep(0.05)
            return count

        working = [started() for _ in range(load.processes)]
        known = wait_for_commit()
        began = time.time()
        try:
            while time.time() < began + load.seconds or known < load.commits:
                time.sleep(chance.uniform(0, 2 * load.every))
                known = wait_for_commit()
                place = chance.randrange(load.processes)
                if not _killed(working[place]):
                    outcome.findings.append("a process ended by itself")
                outcome.kills += 1
                working[place] = started()
        finally:
            ended = time.time()
            for process in working:
                _killed(process)
        _look(outcome, load, location / NAME, began, ended)
    return outcome


def work(location: str, load: Load, seed: float) -> None:
    """Take and settle tasks until killed: those of hot sub-queues, and now and then those of all."""
    queue = Queue(None, location, engine="native", config=CONFIG)
    queue.cfg(ttr=TTR)
    chance = random.Random(seed)
    while True:
        names = None if chance.random() < OF_ALL else load.hot_names
        with contextlib.suppress(NotTakenError):
            _act(queue[NAME], names, load, chance)


def _act(tube: Tube, names: Sequence[str] | None, load: Load, chance: random.Random) -> None:
    act = chance.choice(ACTS)
    each = chance.choice((1, load.parallel))
    count = MANY if names is None else len(names) * each
    if act == "batch":
        batch = tube.take_arrow(count, timeout=5, per_utube=each, utube=names)
        time.sleep(chance.uniform(0, load.hold))
        batch.ack()
        return
    tasks = tube.take_many(count, timeout=5, per_utube=each, utube=names)
    time.sleep(chance.uniform(0, load.hold))
    ids = [task.task_id for task in tasks]
    if act == "exchange" and ids:
        more = tube.exchange(ack=ids, take=count, per_utube=each, utube=names)
        ids = [task.task_id for task in more]
    if act == "release":
        back, ids = ids[:1], ids[1:]
        tube.release_many(back)
    tube.ack_many(ids)


def _most_begun(load: Load) -> int:
    """More tasks than can begin in a sub-queue, in its time or in the commits that it asks for."""
    rate: Rate | None = load.options.get("rate")
    a_second = 50.0 if rate is None else rate.tasks / rate.seconds
    return max(round(a_second * (load.seconds + 10)), load.commits * load.parallel)


def _killed(process: BaseProcess) -> bool:
    """End a process at once; False: it had ended by itself."""
    is_alive = process.is_alive()
    process.kill()
    process.join()
    return is_alive


def _look(outcome: Outcome, load: Load, table: Path, began: float, ended: float) -> None:
    """Look what the limits say to the commits of a table; what counts as done was done between two times."""
    rate: Rate | None = load.options.get("rate")
    most: int | None = load.options.get("most_taken")
    begun: dict[str, set[Leased]] = defaultdict(set)
    held, full = 0.0, Counter[str]()
    last, by_utube = began, Counter[str]()
    commits = list(_taken(table))
    outcome.commits = len(commits)
    for at, taken in [*commits, (ended, [])]:
        span = max(0.0, min(at, ended) - last)
        held += by_utube.total() * span
        full.update({u: span for u, count in by_utube.items() if count >= load.parallel})
        last, by_utube = max(last, at), Counter(each.utube for each in taken)
        _look_at_once(outcome, load, by_utube)
        for each in taken:
            begun[each.utube].add(each)
    hot = {utube: len(begun[utube]) for utube in load.hot_names}
    outcome.begun = sum(hot.values()), sum(map(len, begun.values())) - sum(hot.values())
    outcome.again = sum(each.attempts > 1 for leases in begun.values() for each in leases)
    if most is not None:
        outcome.of_most = held / most / (ended - began)
    if rate is not None:
        moments = {u: sorted(each.taken_us for each in leases) for u, leases in begun.items()}
        _look_at_rate(outcome, rate, moments)
        done = sum(began <= us / US < ended for utube in hot for us in moments[utube])
        free = sum(ended - began - full[utube] for utube in hot)
        outcome.free = free / (ended - began) / load.hot
        outcome.of_rate = done / (free * rate.tasks / rate.seconds)


def _look_at_once(outcome: Outcome, load: Load, by_utube: Counter[str]) -> None:
    """Look how many tasks are taken after a commit."""
    most: int | None = load.options.get("most_taken")
    in_one = max(by_utube.values(), default=0)
    outcome.most_taken = max(outcome.most_taken, in_one)
    if in_one > load.parallel or (most is not None and by_utube.total() > most):
        outcome.findings.append(f"taken are {by_utube}")


def _look_at_rate(outcome: Outcome, rate: Rate, moments: Mapping[str, Sequence[int]]) -> None:
    """Look how many leases of each sub-queue began in a period."""
    for utube, begun in moments.items():
        first = 0
        for number, moment in enumerate(begun):
            while begun[first] <= moment - rate.period_us:
                first += 1
            count = number - first + 1
            outcome.most_begun = max(outcome.most_begun, count)
            if count > rate.tasks:
                outcome.findings.append(f"{count} of {utube} began in the period until {moment}")


def _taken(table: Path) -> Iterator[tuple[float, list[Leased]]]:
    """The taken tasks after each commit of a table, and its time in seconds.

    Raises:
        ValueError: A commit is missing.
    """
    log = table / "_delta_log"
    files: dict[str, list[Leased]] = {}
    found = versions(log)
    if found != list(range(len(found))):
        raise ValueError(found)
    for version in found:
        at = 0.0
        for line in (log / f"{version:020}.json").read_text().splitlines():
            action = json.loads(line)
            if "commitInfo" in action:
                at = action["commitInfo"]["timestamp"] / 1_000
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
            elif "add" in action and (leased := _leased(table, action["add"])):
                files[action["add"]["path"]] = leased
        yield at, [each for leased in files.values() for each in leased]


def _leased(table: Path, added: Mapping[str, Any]) -> list[Leased]:
    """The taken tasks in a data file."""
    told = json.loads(added.get("stats") or "{}")
    least = told.get("minValues", {}).get("state", "")
    greatest = told.get("maxValues", {}).get("state", "~")
    if not least <= "t" <= greatest:
        return []
    columns = ["state", "utube", "task_id", "attempts", "taken_at"]
    file = pq.ParquetFile(table / added["path"])
    if "taken_at" not in file.schema_arrow.names:  # A column of only NULLs is not in the file.
        return []
    rows = file.read(columns)
    rows = rows.set_column(4, "taken_at", rows.column("taken_at").cast("int64"))
    return [
        Leased(*row) for state, *row in zip(*rows.to_pydict().values(), strict=True) if state == "t"
    ]


def main() -> int:
    """Do it once and say what came of it."""
    usual = Load()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=usual.processes)
    parser.add_argument("--subqueues", type=int, default=usual.subqueues)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--hot", type=int, default=usual.hot, help="sub-queues with many tasks")
    parser.add_argument("--every", type=float, default=usual.every, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=usual.seed, help="what the decisions hang on")
    load = Load(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="tubeq-limits-") as directory:
        outcome = run(load, Path(directory) / "queue")
    for name, value in vars(outcome).items():
        print(f"{name}: {value}")
    return int(bool(outcome.findings) or outcome.used < LEAST)


if __name__ == "__main__":
    sys.exit(main())
