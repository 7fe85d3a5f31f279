"""A sweep on Spark removes the files that no version needs, and commits nothing when nothing is due."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import FOR_EVER, put_and_take
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.cli.settings_file import read_defaults
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubeq_spark import Tube

#: Sweeps of a job sleep on while nothing is committed.
SETTINGS = Path(__file__).parents[2] / "conf" / "databricks.toml"
TABLES = ("hosts", "_tubeq_tubes", "_tubeq_sessions")


def leave_dead_files(location: str) -> list[Path]:
    """A file of each table that a write left three hours ago when it failed."""
    then = time.time() - 3 * 3600
    files = [Path(location, table, "part-dead.parquet") for table in TABLES]
    for file in files:
        file.touch()
        os.utime(file, (then, then))
    return files


@pytest.mark.thorough
def test_sweep_removes_dead_files_of_all_tables_each_vacuum_hours_when_any_can_be_old_enough(
    spark: SparkSession, location: str
) -> None:
    # The storage dates commits by its own clock.
    clock = ManualClock(dt.datetime.now(dt.UTC))
    config = QueueConfig(vacuum_hours=1, retention_hours=2)
    with Queue(spark, location, clock=clock, config=config) as queue:
        queue.cfg(ttr=FOR_EVER)
        tube = queue.create_tube("hosts", "utube")
        tube.ack(put_and_take(tube, "a").task_id)
        dead = leave_dead_files(location)

        for hours in (0, 1):
            clock.advance(3600 * hours)
            assert queue.sweep().vacuumed == []
        assert all(file.exists() for file in dead)
        clock.advance(3 * 3600)
        assert queue.sweep().vacuumed == ["hosts", ""]
        assert not any(file.exists() for file in dead)

        leave_dead_files(location)
        for hours in (0, 2):
            # At first it is not time, and then nobody has written since.
            clock.advance(3600 * hours)
            assert queue.sweep().vacuumed == []
        assert all(file.exists() for file in dead)
        assert queue.statistics("hosts")["calls"]["ack"] == 1


def commits(spark: SparkSession, tube: Tube) -> int:
    """How many commits the tube's table has."""
    return spark.sql(f"DESCRIBE HISTORY {tube.table}").count()


@pytest.mark.thorough
def test_sweep_and_take_when_there_is_nothing_to_do_commit_nothing_to_a_tube(
    spark: SparkSession, location: str
) -> None:
    clock = ManualClock()
    config = read_defaults(SETTINGS, {}).config
    with Queue(spark, location, clock=clock, config=config) as queue:
        queue.cfg(ttr=3600)
        tubes = [queue.create_tube(name, name) for name in ("fifo", "utubettl")]
        for tube in tubes:
            tube.put_many(["done", "leased"])
            for _ in range(2):
                task = tube.take(0)
                if task.data == "done":
                    tube.ack(task.task_id)
        tubes[1].put("delayed", delay=60)
        queue.sweep()
        before = [commits(spark, tube) for tube in tubes]

        clock.advance(30)
        for _ in range(2):
            queue.sweep()
            assert [tube.take(0) for tube in tubes] == [None, None]
        assert [commits(spark, tube) for tube in tubes] == before

        clock.advance(31)
        assert queue.sweep().tubes["utubettl"].readied == 1
        assert [commits(spark, tube) for tube in tubes] == [before[0], before[1] + 1]
