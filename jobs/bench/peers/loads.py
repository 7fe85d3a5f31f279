"""The loads that all queues get, by turns in each round."""

from __future__ import annotations

import itertools
import multiprocessing
import queue
import signal
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.measure import VERBS, BenchError
from bench.peers.peer import Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from multiprocessing.queues import Queue as Answers
    from multiprocessing.synchronize import Barrier

    from bench.peers.peer import Hand, Peer, Until

__all__ = [
    "CONSUMERS",
    "LOADS",
    "PROCESSES",
    "PUTTERS",
    "WORKERS",
    "Batches",
    "Done",
    "Load",
    "Rates",
    "Sizes",
    "Takes",
]

#: Calls that are not counted: code is compiled on the way.
_WARM_UP = 3
#: The fewest tasks that a load can have.
_LEAST = 100
#: What the processes need, whatever queue it is.
_IMPORTED = ["tubeq_spark.queue", "tubeq_spark.programs", "deltalake", "bench.peers.choosing"]
#: Seconds for all processes to have started.
_START = 120.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        seconds: Of a load that is given a time.
        tasks: Waiting tasks of such a load; it ends when there are none left.
        batch: Tasks of a batch.
        few: Waiting tasks beside which a take is measured.
        many: The same, when they are many.
    """

    seconds: float
    tasks: int
    batch: int
    few: int
    many: int

    def at_most(self, tasks: int | None) -> Sizes:
        """These, with so many tasks at most, but never fewer than can be measured."""
        if tasks is None:
            return self
        most = max(tasks, _LEAST)
        return Sizes(
            self.seconds,
            min(self.tasks, most),
            min(self.batch, most),
            min(self.few, most // 2),
            min(self.many, most),
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Threads that call one queue for some seconds.

    Attributes:
        verb: What they do.
        threads: In each process.
        processes: How many.
        times: How many times as long as others it lasts. A worker takes the more ahead the longer it
            has worked, and processes that wait for each other need several seconds for that.
    """

    verb: Verb
    threads: int
    processes: int = 1
    times: int = 1

    def __str__(self) -> str:
        if self.processes == 1:
            return f"{self.verb}, {self.threads} threads"
        return f"{self.verb}, {self.processes} processes of {self.threads} threads"


WORKERS = Load(Verb.WORK, 8, times=5)
PROCESSES = Load(Verb.WORK, 8, 8, times=5)
CONSUMERS = Load(Verb.CONSUME, 64)
PUTTERS = Load(Verb.PUT, 32)
LOADS = (WORKERS, PROCESSES, CONSUMERS, PUTTERS)


@dataclass(frozen=True, slots=True)
class Done:
    """What a load got done.

    Attributes:
        tasks: How many.
        seconds: From the beginning to the end of the last call.
        commits: To the table.
    """

    tasks: int
    seconds: float
    commits: int


@dataclass(slots=True)
class Rates:
    """Rounds of one load: by queue, and by whether it was told how many tasks share a commit."""

    load: Load
    rounds: dict[tuple[str, bool], list[Done]] = field(default_factory=dict)

    def measure(self, peers: Sequence[Peer], sizes: Sizes, rounds: Iterable[int]) -> None:
        """Measure all queues in turns, this one first: it tells the size of the others' batches.

        Raises:
            BenchError: One did nothing, or a process of it failed.
        """
        for _ in rounds:
            first = self._add(peers[0], sizes, 1, in_batches=False)
            for peer in peers[1:]:
                self._add(peer, sizes, 1, in_batches=False)
            batch = max(2, round(first.tasks / max(first.commits, 1)))
            for peer in peers:
                if self.load.verb in peer.shares:
                    self._add(peer, sizes, batch, in_batches=True)

    def _add(self, peer: Peer, sizes: Sizes, batch: int, *, in_batches: bool) -> Done:
        peer.renew(0 if self.load.verb is Verb.PUT else sizes.tasks)
        measure = _alone if self.load.processes == 1 else _together
        seconds = sizes.seconds * self.load.times
        done = measure(peer, self.load, batch, seconds)
        if not done.tasks:
            msg = f"{self.load}: {peer.name} did nothing in {seconds} s"
            raise BenchError(msg)
        self.rounds.setdefault((peer.name, in_batches), []).append(done)
        return done


@dataclass(slots=True)
class Batches:
    """Seconds of put, take and ack of a large batch in a commit each, by queue and verb."""

    batch: int
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def measure(self, peers: Sequence[Peer], rounds: Iterable[int]) -> None:
        """Measure all queues in turns.

        Raises:
            BenchError: A verb was not for all tasks of a batch.
        """
        with ExitStack() as stack:
            hands = _opened(stack, dict.fromkeys(peers, 0))
            for number in itertools.chain([-1], rounds):
                for peer, hand in hands.items():
                    self._measure(peer, hand, counts=number >= 0)

    def _measure(self, peer: Peer, hand: Hand, *, counts: bool) -> None:
        # The first round is small: it warms up.
        batch = self.batch if counts else min(self.batch, 1_000)
        times, tasks = [time.perf_counter()], [hand.put(batch)]
        times.append(time.perf_counter())
        if peer.takes_batches:
            taken = hand.take(batch)
            times.append(time.perf_counter())
            tasks += [len(taken), hand.ack(taken)]
            times.append(time.perf_counter())
        if any(count != batch for count in tasks):
            msg = f"{peer.name}: put, take and ack of {batch} tasks were for {tasks}"
            raise BenchError(msg)
        if counts:
            for verb, (began, ended) in zip(VERBS, itertools.pairwise(times), strict=False):
                self.seconds.setdefault((peer.name, verb), []).append(ended - began)


@dataclass(slots=True)
class Takes:
    """Seconds of a take of one task, by queue and by how many wait."""

    seconds: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def measure(self, waiting: Mapping[int, Sequence[Peer]], rounds: Iterable[int]) -> None:
        """Measure all queues in turns.

        Args:
            waiting: The queues that get so many tasks; none is there twice.
            rounds: Counts them.

        Raises:
            BenchError: A take had no task.
        """
        with ExitStack() as stack:
            sizes = {
                peer: size
                for size, peers in waiting.items()
                for peer in peers
                if peer.takes_batches
            }
            hands = _opened(stack, sizes)
            for number in itertools.chain(range(-_WARM_UP, 0), rounds):
                for peer, hand in hands.items():
                    began = time.perf_counter()
                    taken = hand.take(1)
                    seconds = time.perf_counter() - began
                    if len(taken) != 1:
                        msg = f"{peer.name}: a take of one task had {len(taken)}"
                        raise BenchError(msg)
                    hand.ack(taken)
                    if number >= 0:
                        key = (peer.name, sizes[peer])
                        self.seconds.setdefault(key, []).append(seconds)


def _opened(stack: ExitStack, waiting: Mapping[Peer, int]) -> dict[Peer, Hand]:
    hands = {}
    for peer, count in waiting.items():
        peer.renew(count)
        hands[peer] = stack.enter_context(peer.open(1))
    return hands


def _alone(peer: Peer, load: Load, batch: int, seconds: float) -> Done:
    """Run a load in this process."""
    with peer.open(load.threads) as hand:
        run = _warm(hand, load)
        versions, counted = peer.commits(), hand.commits
        began = time.monotonic()
        tasks = run(load.threads, batch, _until(began + seconds))
        took = time.monotonic() - began
        return Done(tasks, took, _commits(peer, versions, hand.commits - counted))


def _together(peer: Peer, load: Load, batch: int, seconds: float) -> Done:
    """Run a load in processes of their own."""
    # With everything imported once, and no thread yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    begin = context.Barrier(load.processes + 1)
    answers: Answers[tuple[int, float, int]] = context.Queue()
    arguments = (peer, load, batch, seconds, begin, answers)
    started = [context.Process(target=_run, args=arguments) for _ in range(load.processes)]
    for process in started:
        process.start()
    try:
        begin.wait(_START)
        versions, began = peer.commits(), time.monotonic()
        begin.wait(_START)
        told = [answers.get(timeout=seconds + _START) for _ in started]
    except (threading.BrokenBarrierError, queue.Empty):
        msg = f"{load}: a process of {peer.name} did not start, or did not end"
        raise BenchError(msg) from None
    for process in started:
        process.join()
    tasks, ends, counted = zip(*told, strict=True)
    return Done(sum(tasks), max(ends) - began, _commits(peer, versions, sum(counted)))


def _run(
    peer: Peer,
    load: Load,
    batch: int,
    seconds: float,
    begin: Barrier,
    answers: Answers[tuple[int, float, int]],
) -> None:
    # A terminal's Ctrl-C is for whoever waits for the answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with peer.open(load.threads) as hand:
        run = _warm(hand, load)
        counted = hand.commits
        begin.wait(_START)  # all are ready
        begin.wait(_START)  # the commits until now are known
        tasks = run(load.threads, batch, _until(time.monotonic() + seconds))
        ended = time.monotonic()
    answers.put((tasks, ended, hand.commits - counted))


def _warm(hand: Hand, load: Load) -> Callable[[int, int, Until], int]:
    """What a load calls, after some calls."""
    runs = {Verb.WORK: hand.work, Verb.CONSUME: hand.consume, Verb.PUT: hand.put_by}
    calls = itertools.count(1)
    runs[load.verb](1, 1, lambda: next(calls) >= _WARM_UP)
    return runs[load.verb]


def _until(end: float) -> Until:
    return lambda: time.monotonic() >= end


def _commits(peer: Peer, before: int | None, counted: int) -> int:
    """Commits since the table had a version, or those that were counted where it has none."""
    now = peer.commits()
    return counted if now is None or before is None else now - before
