"""Provides the fixtures of this folder: each module gets a location, a clock and two sessions.

They run on Spark and, but for what is about Spark, on the native engine, too (`tests.both_engines`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.both_engines import engine, pytest_collection_modifyitems, pytest_generate_tests
from tests.concurrency.s3_store import Store, served
from tests.concurrency.support import (
    FOR_EVER,
    TTR,
    Probe,
    World,
    end_heartbeat,
)
from tubeq_spark import QueueConfig
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue

__all__ = ["engine", "pytest_collection_modifyitems", "pytest_generate_tests"]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """An S3 for the tests of a module."""
    pytest.importorskip("moto", reason="the emulated S3")
    with served() as found:
        yield found


@pytest.fixture(scope="module")
def place(engine: OnSpark, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where all queues of a module live, on each engine elsewhere."""
    return str(tmp_path_factory.mktemp("queue"))


@pytest.fixture(scope="module")
def clock(engine: OnSpark) -> ManualClock:
    """The clock of the module's queues on an engine: it moves only when a test says so."""
    return ManualClock()


@pytest.fixture(scope="module")
def open_queue(engine: OnSpark, place: str, clock: ManualClock) -> OpenQueue:
    """Opens queues without heartbeats of their own time; none is closed."""

    shared = clock

    def open_one(
        *, ttr: float = FOR_EVER, clock: ManualClock | None = None, **options: Any
    ) -> Queue:
        # Waits after a conflict are real time that no test needs.
        config: dict[str, Any] = {
            "attempts": 6,
            "backoff_first": 0.0,
            "backoff_most": 0.0,
            "vacuum_hours": 0,
        }
        # However far the tests move the clock, no lease of numbers ends in the middle of one.
        config["number_horizon"] = FOR_EVER
        config |= options
        queue = engine.open(place, clock=clock or shared, config=QueueConfig(**config))
        queue.cfg(ttr=ttr)
        end_heartbeat(queue)
        return queue

    return open_one


@pytest.fixture(scope="module")
def pair(engine: OnSpark, place: str, clock: ManualClock, open_queue: OpenQueue) -> World:
    """The module's tube and its two sessions."""
    probe = Probe()
    mine = open_queue(observer=probe, fold_segments=1)
    rivals = open_queue()
    tube = engine.create_tube(mine, "shared", "fifottl", ttr=TTR)
    rival = rivals["shared"]
    # Stopped right after one of its leases, it would lease again, for ever: tests of their own.
    # And only a session that has taken writes its counters down (`World.told`).
    tube.put_many(["a", "b"])
    tube.take(0)
    rival.take(0)
    engine.empty(mine, "shared")
    return World(engine.spark, place, clock, probe, mine, rivals, tube, rival, open_queue)


@pytest.fixture
def world(engine: OnSpark, pair: World) -> Iterator[World]:
    """The module's tube, empty at the start of each test."""
    yield pair
    engine.empty(pair.rivals, pair.rival.name)
