"""A sweep on Spark removes the files that no version needs, once all of `vacuum_hours` have passed."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import FOR_EVER, put_and_take
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
