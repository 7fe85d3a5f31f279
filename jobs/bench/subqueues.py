"""Measures how fast consumers empty a tube with sub-queues, by the loads that Tarantool's queue has."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.measure import BenchError
from bench.plan import Engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.sides import Side
    from tubeq_spark import Tube

__all__ = ["KINDS", "Drained", "Load", "as_dict", "loads", "measure"]

#: Types and storage modes that are measured.
KINDS = tuple(
    (kind, mode) for kind in ("utube", "utubettl") for mode in ("default", "ready_buffer")
)
#: Most tasks that a consumer takes at once.
_BATCH = 150_000


@dataclass(frozen=True, slots=True)
class Load:
    """Sub-queues, and tasks in each of them.

    Attributes:
        utubes: How many sub-queues.
        each: Tasks in each.
        published: What the reference's README says of take + ack (ready buffer), in seconds.
        logged: What it takes with its write-ahead log on two cores, where that was measured.
        wanted: What take + ack shall take at most on two idle cores, by the engine.
    """

    utubes: int
    each: int
    published: float | None = None
    logged: float | None = None
    wanted: Mapping[Engine, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.utubes:,} x {self.each:,}"

    @property
    def tasks(self) -> int:
        """All tasks."""
        return self.utubes * self.each

    @property
    def consumers(self) -> int:
        """One for each sub-queue that has work for one; tasks of their own go as one batch."""
        return self.utubes if self.each > 1 else 1

    @property
    def take(self) -> tuple[int, int]:
        """How many tasks a consumer takes at once, and how many of one sub-queue."""
        if self.each == 1:
            return min(self.utubes, _BATCH), 1
        return min(self.each, _BATCH), min(self.each, _BATCH)


_LOADS = (
    Load(30_000, 1, published=1.7, wanted={Engine.SPARK: 6.0, Engine.NATIVE: 2.0}),
    Load(10, 1_000, published=0.45),
    Load(10, 10_000, published=4.7, logged=5.4),
    Load(10, 50_000, published=26.0),
    Load(10, 150_000, published=72.0, wanted={Engine.SPARK: 45.0, Engine.NATIVE: 12.0}),
)
_QUICK = (Load(500, 1), Load(4, 1_000))


def loads(most: int | None, *, quick: bool) -> tuple[Load, ...]:
    """What is measured: those of the reference's README, with at most so many tasks."""
    return tuple(
        load for load in (_QUICK if quick else _LOADS) if most is None or load.tasks <= most
    )


@dataclass(slots=True)
class Drained:
    """What one load took: seconds of each round."""

    engine: Engine
    load: Load
    type: str
    mode: str
    put: list[float] = field(default_factory=list)
    drain: list[float] = field(default_factory=list)


def measure(side: Side, tube: Tube, drained: Drained, rounds: Iterable[int]) -> None:
    """Fill a tube and let its consumers empty it, some rounds.

    Raises:
        BenchError: Not every task was put, or taken and acked, once.
    """
    load = drained.load
    fill = side.filling(tube, load)
    for _ in rounds:
        began = time.perf_counter()
        count = fill()
        put = time.perf_counter()
        with ThreadPoolExecutor(load.consumers) as pool:
            consumers = [
                pool.submit(_consume, side, tube, *load.take) for _ in range(load.consumers)
            ]
            done = sum(consumer.result() for consumer in consumers)
        ended = time.perf_counter()
        if (count, done) != (load.tasks, load.tasks):
            msg = f"of {load.tasks} tasks {count} were put and {done} acked"
            raise BenchError(msg)
        drained.put.append(put - began)
        drained.drain.append(ended - put)


def _consume(side: Side, tube: Tube, n: int, per_utube: int) -> int:
    done = 0
    while (batch := side.take(tube, n, per_utube)).count:
        done += batch.ack()
    return done


def as_dict(found: Drained) -> dict[str, Any]:
    """Everything about one load, for JSON."""
    load = found.load
    return {
        "engine": found.engine.value,
        "type": found.type,
        "storage_mode": found.mode,
        "utubes": load.utubes,
        "tasks_each": load.each,
        "consumers": load.consumers,
        "take": load.take[0],
        "per_utube": load.take[1],
        "put_s": [round(seconds, 3) for seconds in found.put],
        "take_ack_s": [round(seconds, 3) for seconds in found.drain],
        "published_s": load.published,
        "logged_s": load.logged,
        "wanted_s": load.wanted.get(found.engine),
    }
