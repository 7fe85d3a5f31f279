"""A Spark session that may read old snapshots (`stalenessLimit`) decides nothing by them.

Delta keeps the snapshot of a path for all of a JVM. So the second queue goes by another name of the
same place, a link: what the first one commits it does not know, as in a process of its own.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import FOR_EVER, end_heartbeat, names
from tubeq_spark import Queue, QueueConfig, TubeBusyError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

LIMIT = "spark.databricks.delta.stalenessLimit"


@contextmanager
def old_snapshots(queue: Queue) -> Iterator[None]:
    """As where a queue has no session of its own, and the program's reads old snapshots."""
    conf = queue._context.engine.own.conf
    conf.set(LIMIT, "1h")
    try:
        yield
    finally:
        conf.set(LIMIT, "0")


class Places:
    """One place by two names, and queues on it that share a clock."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.clock = spark, ManualClock()
        self.place, self.link = directory / "queue", directory / "link"
        self.near = self.open()
        self.link.symlink_to(self.place)
        self.far = self.open(far=True)

    def open(self, *, far: bool = False) -> Queue:
        config = QueueConfig(vacuum_hours=0, number_horizon=FOR_EVER)
        place = str(self.link if far else self.place)
        queue = Queue(self.spark, place, clock=self.clock, config=config)
        queue.cfg(ttr=FOR_EVER)
        end_heartbeat(queue)
        return queue


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(spark, tmp_path_factory.mktemp("stale"))


def look_at(queue: Queue, name: str) -> None:
    """Commit to a tube and to the sessions: their newest snapshots are known from now on."""
    tube = queue[name]
    tube.put("look")
    assert names(tube.take_many(1)) == "look"
    tube.release_all()
    tube.truncate()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "look"),
    # Without sub-queues and with them: whose tasks a dead session holds is looked up in no other way.
    [
        ("fifottl", "take"),
        ("utubettl", "take"),
        ("fifottl", "sweep"),
        ("fifottl", "drop"),
    ],
)
def test_look_when_its_snapshot_does_not_know_a_living_session_leaves_its_tasks(
    places: Places, kind: str, look: str
) -> None:
    name = f"{kind}_{look}"
    tube = places.near.create_tube(name, kind)
    look_at(places.far, name)
    with old_snapshots(places.far):
        places.far.sweep()
        holder = places.open()
        tube.put("a")
        (held,) = holder[name].take_many(1)
        # The tube's snapshot is a new one by this commit, that of the sessions is not.
        far = places.far[name]
        far.delete(far.put("b").task_id)
        places.clock.advance(60)

        if look == "sweep":
            assert places.far.sweep().tubes[name].released == 0
        elif look == "take":
            assert far.take(0) is None
        else:
            with pytest.raises(TubeBusyError):
                far.drop()

    assert holder[name].ack(held.task_id).data == "a"
    holder.close()
