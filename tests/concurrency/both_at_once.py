"""Queues of both engines at one location, in one process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.meetings import seated
from tests.concurrency.support import FOR_EVER, Probe, end_heartbeat
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.concurrency.meetings import Kind, Table
    from tubeq_spark import Tube
    from tubeq_spark.testing import ManualClock

ENGINES = ("spark", "native")
#: Names of tubes; each has one of its own.
NAMES = (f"mixed_{number}" for number in itertools.count())


def new_tube(queue: Queue, kind: Kind) -> Tube:
    """A tube to meet at."""
    return queue.create_tube(next(NAMES), kind.type, **kind.options)


@dataclass
class Both:
    """A queue of either engine at one location, each observed.

    Attributes:
        place: The location.
        clock: Of both.
        queues: By their engines.
        probes: Theirs.
    """

    place: str
    clock: ManualClock
    queues: dict[str, Queue]
    probes: dict[str, Probe]

    def table(self, mine: str, kind: Kind) -> Table:
        """A new tube, as a session of one engine and a rival of the other see it."""
        queue, rivals = self.queues[mine], self.queues[other(mine)]
        tube = new_tube(self.queues["native"], kind)
        return seated(self.clock, (queue, queue[tube.name]), (rivals, rivals[tube.name]), kind)


def other(engine: str) -> str:
    return ENGINES[1 - ENGINES.index(engine)]


def opened(spark: Any, place: str, clock: ManualClock, engine: str, **options: Any) -> Queue:
    config = QueueConfig(backoff_first=0, backoff_most=0, vacuum_hours=0, **options)
    session = None if engine == "native" else spark
    queue = Queue(session, place, clock=clock, engine=engine, config=config)
    queue.cfg(ttr=FOR_EVER)
    end_heartbeat(queue)
    return queue


@pytest.fixture(scope="module")
def both(spark: SparkSession, place: str, clock: ManualClock) -> Both:
    """Both engines at the module's location; each has its lease and its numbers."""
    probes = {engine: Probe() for engine in ENGINES}
    queues = {
        engine: opened(
            spark, place, clock, engine, observer=probes[engine], number_horizon=FOR_EVER
        )
        for engine in ENGINES
    }
    queues["spark"].create_tube("first").put_many([1, 2])
    for queue in queues.values():
        assert queue["first"].take(0) is not None
        queue["first"].put(3)
    return Both(place, clock, queues, probes)


def native_side(table: Table) -> Any:
    """The side that puts the tasks: it is the faster one."""
    sides = (table.mine, table.rival)
    return next(side for side in sides if side.queue.engine == "native")
