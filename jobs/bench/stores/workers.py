"""What processes and threads that share a tube on a store get done together."""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from bench.measure import BenchError
from bench.stores.proxy import Requests
from bench.subjects import payload
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.queues import Queue as Answers
    from multiprocessing.synchronize import Barrier

    from tubeq_spark import Tube

__all__ = ["How", "Together", "measure"]

_TUBE = "work"
#: Puts before a load, each of so many tasks: as many segments.
_PUTS, _TASKS = 60, 200
_EXCHANGED = 20
#: Seconds for all processes to have started.
_START = 120.0


class How(StrEnum):
    """What each worker does."""

    ONE_BY_ONE = "take and ack"
    EXCHANGE = "exchange of 20"
    THREADS = "64 threads, take and ack"


_THREADS = 64


@dataclass(frozen=True, slots=True)
class Together:
    """What some processes got done.

    Attributes:
        how: What each did.
        processes: How many.
        per_second: Tasks taken and acked in a second.
        least: Those of the process that did the fewest, in all.
        most: Those of the one that did the most.
        conflicts: Conflicts that they lost, for each commit to the tube's table.
        requests: Requests for each task.
        median_s: Seconds of one round of a worker: a take and its ack, or an exchange.
        longest_s: Seconds of the longest round of any.
    """

    how: How
    processes: int
    per_second: float
    least: int
    most: int
    conflicts: float
    requests: float
    median_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class _Done:
    """What a process has told.

    Attributes:
        tasks: How many tasks it took and acked.
        conflicts: Conflicts that it lost.
        rounds: Seconds of each of its rounds.
    """

    tasks: int
    conflicts: int
    rounds: Sequence[float]


def measure(
    location: str, url: str, options: Mapping[str, str], how: How, processes: int, seconds: float
) -> Together:
    """Let processes empty a new tube for some seconds.

    Args:
        location: For a new queue.
        url: The proxy.
        options: Of the storage.
        how: What each does.
        processes: How many.
        seconds: How long.

    Raises:
        BenchError: It was empty before.
    """
    with Queue(None, location, engine="native", storage_options=options) as queue:
        tube = queue.create_tube(_TUBE, "fifottl")
        for first in range(_PUTS):
            tube.put_many([payload(first * _TASKS + n) for n in range(_TASKS)])
        context = multiprocessing.get_context("spawn")
        begin, answers = context.Barrier(processes + 1), context.Queue()
        arguments = (location, dict(options), how, seconds, begin, answers)
        started = [context.Process(target=_work, args=arguments) for _ in range(processes)]
        for process in started:
            process.start()
        before = _version(location, options)
        begin.wait(_START)
        Requests.since(url)
        told = [answers.get(timeout=seconds + _START) for _ in started]
        requests = Requests.since(url).count
        commits = _version(location, options) - before
        for process in started:
            process.join()
    counts = [each.tasks for each in told]
    rounds = [seconds for each in told for seconds in each.rounds]
    done = sum(counts)
    if not done or done >= _PUTS * _TASKS:
        msg = f"{processes} processes did {counts} tasks in {seconds} s: not to be compared"
        raise BenchError(msg)
    return Together(
        how,
        processes,
        done / seconds,
        min(counts),
        max(counts),
        sum(each.conflicts for each in told) / max(commits, 1),
        requests / done,
        statistics.median(rounds),
        max(rounds),
    )


def _version(location: str, options: Mapping[str, str]) -> int:
    return DeltaTable(f"{location}/{_TUBE}", storage_options=dict(options)).version()


def _work(
    location: str,
    options: Mapping[str, str],
    how: How,
    seconds: float,
    begin: Barrier,
    answers: Answers[_Done],
) -> None:
    # A terminal's Ctrl-C is for whoever waits for the answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Queue(None, location, engine="native", storage_options=options) as queue:
        tube = queue[_TUBE]
        for task in tube.take_many(1):
            tube.ack(task.task_id)
        begin.wait(_START)
        until = time.monotonic() + seconds
        rounds: list[float] = []
        tasks = _DO[how](tube, until, rounds)
        answers.put(_Done(tasks, queue.metrics().tubes[_TUBE].conflicts, rounds))


def _one_by_one(tube: Tube, until: float, rounds: list[float]) -> int:
    done, began = 0, time.monotonic()
    while began < until and (task := tube.take(0)) is not None:
        tube.ack(task.task_id)
        done += 1
        began = _noted(rounds, began)
    return done


def _exchange(tube: Tube, until: float, rounds: list[float]) -> int:
    done, held, began = 0, list[int](), time.monotonic()
    while began < until:
        tasks = tube.exchange(ack=held, take=_EXCHANGED)
        done += len(held)
        held = [task.task_id for task in tasks]
        began = _noted(rounds, began)
    tube.ack_many(held)
    return done + len(held)


def _noted(rounds: list[float], began: float) -> float:
    """Note the end of a round, which is the beginning of the next."""
    now = time.monotonic()
    rounds.append(now - began)
    return now


def _threads(tube: Tube, until: float, rounds: list[float]) -> int:
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(_one_by_one(tube, until, rounds)))
        for _ in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


_DO = {How.ONE_BY_ONE: _one_by_one, How.EXCHANGE: _exchange, How.THREADS: _threads}
