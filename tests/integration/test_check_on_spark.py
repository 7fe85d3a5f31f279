"""`Queue.check` accepts tables that Spark has written, and finds the damage that a test does to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.native.damage import data_file
from tubeq_spark import PutItem, Queue, QueueConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubeq_spark import Tube


def _use(spark: SparkSession, tube: Tube, plain: Tube) -> None:
    """Have Spark write commits of all kinds."""
    tube.put_many([PutItem(number, utube=str(number % 2), ttl=3600) for number in range(6)])
    frame = spark.createDataFrame([(json.dumps(n),) for n in range(4)], "data string")
    plain.put_df(frame, key="once")
    plain.put_df(frame.where("data < '0'"), key="empty")
    for _ in range(3):
        held, other = tube.take(), plain.take()
        tube.touch(held.task_id, 60)
        tube.release(held.task_id)
        plain.bury(other.task_id)
    plain.kick(2)
    plain.ack_many([task.task_id for task in plain.take_many(3)])
    spark.sql(f"OPTIMIZE {plain.table}")
    spark.sql(f"ALTER TABLE {plain.table} SET TBLPROPERTIES ('note' = 'x')")


@pytest.mark.thorough
def test_check_of_what_spark_has_written_is_sound_until_it_is_damaged(
    spark: SparkSession, location: str
) -> None:
    config = QueueConfig(vacuum_hours=0)
    with Queue(spark, location, config=config, engine="spark") as queue:
        plain = queue.create_tube("plain", "fifo")
        _use(spark, queue.create_tube("work", "utubettl", change_feed=True), plain)
        queue.sweep()
        plain.put("left")

        report = queue.check()
        assert report.problems == []
        assert {"work", "plain", "_tubeq_tubes", "_tubeq_sessions"} <= {*report.tables}

        place = Path(location)
        newest = max((place / "plain" / "_delta_log").glob("[0-9]*.json"))
        gone = data_file(place / "plain", int(newest.stem))
        gone.unlink()

        found = {(problem.kind, problem.path) for problem in queue.check().problems}

        assert ("file", str(gone)) in found
        assert not queue.check(repair=True).sound
        report = queue.check(repair=True, accept_loss=True)
        assert report.sound
        assert [id for problem in report.problems if problem.kind == "file" for id in problem.tasks]

    with Queue(spark, location, config=config, engine="spark") as queue:
        assert queue.check().problems == []
        assert queue.statistics("plain")["tasks"]["total"] == 1
        queue["plain"].put("new")
        assert queue["work"].take() is not None
