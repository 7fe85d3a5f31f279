"""Many threads that call a queue one by one, and workers, in one process and in eight."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from bench.measure import BenchError, by_turns
from bench.peers import peers
from bench.processes import memory_mb, together

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.measure import Round, Sizes
    from bench.peer import Peer
    from bench.processes import Start
    from bench.report import Page

__all__ = ["WORKER", "Done", "Load", "Verb", "measure", "run"]

#: Calls that are not counted: code is loaded and compiled on the way.
_WARM_UP = 3


class Verb(StrEnum):
    """What the threads of a load do."""

    WORK = "work"
    CONSUME = "take and ack"
    PUT = "put"


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


WORKER = Load(Verb.WORK, 8, times=5)
_LOADS = (WORKER, Load(Verb.WORK, 8, 8, times=5), Load(Verb.CONSUME, 64), Load(Verb.PUT, 32))


@dataclass(frozen=True, slots=True)
class Done:
    """What a process got done.

    Attributes:
        tasks: How many tasks.
        ended: When its last call returned.
        memory_mb: The most memory that it has had.
    """

    tasks: int
    ended: float
    memory_mb: float


def measure(page: Page, place: Path, sizes: Sizes) -> None:
    """Measure, and add a table to the page."""
    samples = page.compare("Threads", "tasks/s", ["Postgres", "SQLite"])
    with ExitStack() as stack:
        queues = peers(page, place, stack)
        for load in _LOADS:
            subjects: list[tuple[str, Round]] = [
                (peer.name, partial(_rate, peer, load, sizes)) for peer in queues
            ]
            by_turns(str(load), subjects, sizes.rounds, samples, warm_up=0)


def _rate(peer: Peer, load: Load, sizes: Sizes) -> Mapping[str, float]:
    peer.renew(0 if load.verb is Verb.PUT else sizes.tasks)
    seconds = sizes.seconds * load.times
    began, told = together(run, load.processes, peer, load, seconds, seconds=seconds)
    tasks = sum(done.tasks for done in told)
    if not tasks:
        msg = f"{load}: {peer.name} did nothing in {seconds} s"
        raise BenchError(msg)
    return {str(load): tasks / (max(done.ended for done in told) - began)}


def run(start: Start, peer: Peer, load: Load, seconds: float) -> Done:
    """Run a load in this process."""
    with peer.open(load.threads) as hand:
        loops = {Verb.WORK: hand.work, Verb.CONSUME: hand.consume, Verb.PUT: hand.put_all}
        loop, calls = loops[load.verb], itertools.count()
        loop(1, lambda: next(calls) >= _WARM_UP)
        until = start.wait() + seconds
        tasks = loop(load.threads, lambda: time.monotonic() >= until)
        return Done(tasks, time.monotonic(), memory_mb())
