"""What no version needs any more leaves the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.acceptance.support import put_and_take
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("hosts", "_tubeq_tubes", "_tubeq_sessions", "_tubeq_taken_utubes")


def leave_dead_files(location: str) -> list[Path]:
    """A file of each table that a write left three hours ago when it failed."""
    then = time.time() - 3 * 3600
    files = [Path(location, table, "part-dead.parquet") for table in TABLES]
    for file in files:
        file.touch()
        os.utime(file, (then, then))
    return files


def test_sweep_removes_dead_files_of_all_tables_each_vacuum_hours(
    spark: SparkSession, location: str
) -> None:
    clock = ManualClock()
    config = QueueConfig(vacuum_hours=1, retention_hours=2)
    with Queue(spark, location, clock=clock, config=config) as queue:
        tube = queue.create_tube("hosts", "utube")
        tube.ack(put_and_take(tube, "a").task_id)
        dead = leave_dead_files(location)

        queue.sweep()
        assert all(file.exists() for file in dead)
        clock.advance(3600)
        queue.sweep()
        assert not any(file.exists() for file in dead)

        leave_dead_files(location)
        queue.sweep()
        assert all(file.exists() for file in dead)
        assert queue.statistics("hosts")["calls"]["ack"] == 1
