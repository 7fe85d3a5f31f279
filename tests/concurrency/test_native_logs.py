"""Spark's frames stay readable while the native engine shortens the log of their table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.native.logs import aged, versions
from tubeq_spark import Queue
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_frame_when_native_verbs_go_on_is_of_its_version_and_spark_reads_what_is_left(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 10)
    monkeypatch.setattr(LocalRetention, "versions", 10)
    log = Path(location, "framed", "_delta_log")

    def commits(queue: Queue) -> None:
        for number in range(25):
            queue["framed"].put(number)
            aged(log, 2)

    with Queue(spark, location, engine="native") as queue:
        tube = queue.create_tube("framed", "fifo")
        commits(queue)
        assert versions(log)[0] > 0
        newest = versions(log)[-1]
        frame = spark.sql(f"SELECT * FROM {tube.table} VERSION AS OF {newest}")
        assert tube.df().count() == 25
        commits(queue)
        assert tube.df().count() == 50
        assert frame.count() == 25
        assert newest in versions(log)
    with Queue(None, location, engine="native") as queue:
        commits(queue)
        assert versions(log)[0] > newest
    with Queue(spark, location) as queue:
        task = queue["framed"].take(0)
        assert task is not None
        assert task.data == 0
        queue["framed"].ack(task.task_id)
        assert queue["framed"].df().count() == 74
