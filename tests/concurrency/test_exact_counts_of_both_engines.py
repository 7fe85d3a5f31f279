"""What either engine has ended counts once, whoever asks, sweeps, writes checkpoints or shortens the log."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.concurrency.support import FOR_EVER, end_heartbeat, ids_of
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.storage.ended import read_log
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention
from tubeq_spark.storage.spark import history
from tubeq_spark.storage.tables import counts
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubeq_spark import Tube


def opened(spark: Any, place: str, clock: ManualClock, engine: str) -> Queue:
    config = QueueConfig(backoff_first=0, backoff_most=0, vacuum_hours=0, key_days=1)
    session = None if engine == "native" else spark
    queue = Queue(session, place, clock=clock, engine=engine, config=config)
    queue.cfg(ttr=FOR_EVER)
    end_heartbeat(queue)
    return queue


def done(queue: Queue) -> int:
    count: int = queue.statistics("both")["tasks"]["done"]
    return count


def end_three_ways(tube: Tube) -> None:
    """End a lease segment, a part of one, and a batch that names no task: five tasks."""
    tube.put_many(list("abcdefg"))
    tube.ack_many(ids_of(tube.take_many(2)))
    first, *rest = ids_of(tube.take_many(2))
    tube.ack(first)
    tube.release_many(rest)
    tube.take_arrow(2).ack()
    tube.truncate()


def log_of(tube: Tube, place: str) -> Path:
    return Path(place, tube.name, "_delta_log")


@pytest.mark.thorough
def test_done_when_both_engines_end_tasks_is_the_same_to_both_through_checkpoints_and_sweeps(
    spark: SparkSession, place: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_spark, native = (opened(spark, place, clock, engine) for engine in ("spark", "native"))
    ours = native.create_tube("both", "fifottl")
    theirs = of_spark["both"]
    log = log_of(ours, place)

    end_three_ways(theirs)
    assert done(native) == done(of_spark) == 5
    end_three_ways(ours)
    assert done(native) == done(of_spark) == 10

    # The log is shortened at each chance, and keeps the notes.
    monkeypatch.setattr(tidying, "EVERY", 2)
    monkeypatch.setattr(LocalRetention, "SPARK_SECONDS", -3600.0)
    monkeypatch.setattr(LocalRetention, "versions", 1)
    end_three_ways(ours)
    DeltaTable(str(log.parent)).create_checkpoint()
    ours.put("h")
    assert done(native) == done(of_spark) == 15

    assert not native.sweep().tubes["both"].error
    end_three_ways(ours)
    assert not list(log.glob("*00.json"))
    fresh = opened(None, place, clock, "native")
    assert done(native) == done(of_spark) == done(fresh) == 20

    # What Spark adds up counts for the native engine, and is read on other storage as on this.
    theirs.delete(ids_of(theirs.put_many(["i"]))[0])
    engine, tube = of_spark._context.engine, ours._ctx.record.id
    assert done(native) == 21
    found = history.read_log(engine, ours._ctx.table.name, tube, for_sum=False)
    assert (found.native, found.told, [note.count for note in found.notes]) == (15, 5, [1])
    assert not of_spark.sweep().tubes["both"].error
    assert read_log(log, tube).told == 6
    assert done(native) == done(of_spark) == 21

    # Delta forgets after a day what Spark has written under an id; a sweep writes it anew before.
    told = read_log(log, tube)
    assert told.told_at_ms is not None
    later = ManualClock(dt.datetime.fromtimestamp(told.told_at_ms / 1_000 + 50_000, dt.UTC))
    monkeypatch.setattr(counts, "SystemClock", lambda: later)
    assert not of_spark.sweep().tubes["both"].error
    assert read_log(log, tube).told_version == told.told_version + 1
    assert done(native) == done(of_spark) == 21


@pytest.mark.thorough
def test_done_when_lives_end_in_a_tube_with_a_change_feed_counts_them(
    spark: SparkSession, place: str, clock: ManualClock
) -> None:
    queue = opened(spark, place, clock, "spark")
    tube = queue.create_tube("feed", "fifottl", change_feed=True)
    tube.put_many(["a", "b"], ttl=5)
    tube.put("c")
    clock.advance(6)
    tube.ack(ids_of(tube.take_many(1))[0])

    for _ in range(2):
        assert not queue.sweep().tubes["feed"].error
        assert queue.statistics("feed")["tasks"]["done"] == 3
