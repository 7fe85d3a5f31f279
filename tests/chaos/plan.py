"""Defines the queue of a chaos: its tubes, its settings, and the length of its leases."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.concurrency.s3_store import Store
from tubeq_spark import Queue, QueueConfig, Rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DRAIN",
    "FOLDS_MOST",
    "FOLDS_SOME",
    "PAUSES",
    "SESSION_TTR",
    "STORE_URL",
    "THREADS",
    "TUBES",
    "TubePlan",
    "open_queue",
]

#: The environment variable with the address of the S3 that the queue is on; without, it is on local files.
STORE_URL = "TUBEQ_CHAOS_S3"
#: The process that takes what is left, without the limits of sub-queues.
DRAIN = "drain"
#: Seconds after its last sign of life that a dead process keeps its tasks. An emulated S3 is slow.
SESSION_TTR = 15.0 if STORE_URL in os.environ else 4.0
#: From how long to how long processes are stopped, in seconds: at times longer than any lease that
#: is not renewed. Whoever is stopped with the lock of a table holds up all others.
PAUSES = (*[(0.05, SESSION_TTR / 2)] * 3, (SESSION_TTR, 2 * SESSION_TTR))
#: `QueueConfig.fold_segments` of who compacts at puts, as soon as it may, and of who sweeps.
FOLDS_MOST, FOLDS_SOME = 0, 8
_LONG = 600.0


@dataclass(frozen=True, slots=True)
class TubePlan:
    """A tube.

    Attributes:
        name: Its name.
        type: Its type.
        ttr: Of its tasks.
        utubes: How many sub-queues it has; 0: its type has none.
        capacity: Its capacity, of a type that has one.
        parallel: How many tasks of a sub-queue may be taken at a time; 1: one holder may have several.
        rate: How many tasks of a sub-queue may begin in a period.
        single: Whether one process alone takes from it, one at a time.
    """

    name: str
    type: str
    ttr: float = _LONG
    utubes: int = 0
    capacity: int | None = None
    parallel: int = 1
    rate: Rate | None = None
    single: bool = False

    @property
    def held_for(self) -> float:
        """Seconds that a lease lasts at the least, however late in its session's lease it began."""
        return min(self.ttr, SESSION_TTR / 2)

    @property
    def timed(self) -> bool:
        """Whether its tasks have priorities, delays and a time to run."""
        return self.type not in ("fifo", "utube")

    @property
    def refused(self) -> tuple[str, ...]:
        """Verbs that its workers do not call."""
        return (*(("bury",) if self.single else ()), *(() if self.timed else ("touch",)))

    @property
    def options(self) -> dict[str, Any]:
        """What it is created with."""
        capacity = {} if self.capacity is None else {"capacity": self.capacity}
        ttr = {"ttr": self.ttr} if self.timed else {}
        limits = {"parallel": self.parallel, "rate": self.rate} if self.rate else {}
        return {"type": self.type, **ttr, **capacity, **limits}


TUBES = (
    TubePlan("work", "fifottl"),
    TubePlan("sites", "utubettl", utubes=6),
    TubePlan("hosts", "utubettl", utubes=3, parallel=3, rate=Rate(4, 1.0)),
    TubePlan("small", "limfifottl", ttr=3.0, capacity=40),
    TubePlan("single", "fifottl", single=True),
    TubePlan("plain", "fifo"),
)


#: The most threads of a loop of work.
THREADS = 3


def open_queue(
    location: str,
    spark: SparkSession | None = None,
    folds: int = FOLDS_SOME,
    durability: str | None = None,
) -> Queue:
    """Open the queue as each of its processes does; the default durability by default."""
    # Everything that is done now and then is done often.
    config = QueueConfig(
        session_check=0.5,
        fold_segments=folds,
        fold_heartbeats=20,
        vacuum_hours=0.01,
        number_horizon=20.0,
        retry_seconds=60.0,
        **({} if durability is None else {"durability": durability}),
    )
    store = Store(os.environ[STORE_URL]) if STORE_URL in os.environ else None
    # A program with a session follows the location, which is made natively.
    engine = "native" if spark is None else "auto"
    options = None if store is None else store.options
    queue = Queue(spark, location, config=config, engine=engine, storage_options=options)
    queue.cfg(ttr=SESSION_TTR)
    return queue
