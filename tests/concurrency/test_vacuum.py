"""VACUUM makes a long `put_df` begin anew, or waits for it, so that no version lacks a file."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.concurrency.support import FOR_EVER, WAIT, on_another_host
from tests.waiting import until
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube
    from tubeq_spark.task import PutResult
    from tubeq_spark.testing import ManualClock

ROWS = 4
HOURS = 3600


class HeldPut:
    """A put of a frame, in a thread, that has written one of its files and not yet the other."""

    def __init__(self, spark: SparkSession, marker: Path) -> None:
        self.spark = spark
        self.marker = marker
        self.result: PutResult | None = None
        self._is_due = False
        self._thread: threading.Thread | None = None

    def observe(self, step: str, operation: str) -> None:
        """Hold the first attempt of the put, from where it has counted its rows."""
        if (step, operation) == ("decided", "put") and self._is_due:
            self._is_due = False
            self.marker.touch()

    def _frame(self) -> DataFrame:
        marker = str(self.marker)

        def passed(number: int) -> str:
            # The second half, once the marker is gone.
            while number >= ROWS // 2 and Path(marker).exists():
                time.sleep(0.05)
            return str(number)

        # Hints of types would make Spark look for a function of pandas in it.
        held = F.udf(lambda number: passed(number), "string")  # noqa: PLW0108
        return self.spark.range(0, ROWS, 1, 2).select(held("id").alias("data"))

    def begin(self, tube: Tube, directory: Path) -> list[Path]:
        """Begin it; returns the files that it has written by then."""
        before = set(directory.rglob("*.parquet"))
        self._is_due = True

        def put() -> None:
            self.result = tube.put_df(self._frame())

        self._thread = thread = threading.Thread(target=put)
        thread.start()

        def written() -> list[Path]:
            new = set(directory.rglob("*.parquet")) - before
            return [file for file in new if file.read_bytes()[-4:] == b"PAR1"]

        until(lambda: bool(written()) or not thread.is_alive())
        assert thread.is_alive()
        return written()

    def end(self) -> None:
        """Let it go on, to its end."""
        self.marker.unlink()
        assert self._thread is not None
        self._thread.join(WAIT)
        assert not self._thread.is_alive()


def make_old(*files: Path) -> None:
    """As if they had been written three hours ago; files are kept for two."""
    then = time.time() - 3 * HOURS
    for file in files:
        os.utime(file, (then, then))


@pytest.mark.thorough
def test_vacuum_when_a_put_df_has_taken_longer_than_files_are_kept_makes_it_begin_anew(
    spark: SparkSession, place: str, clock: ManualClock, tmp_path: Path
) -> None:
    held = HeldPut(spark, tmp_path / "hold")
    mine = _open(spark, place, clock, observer=held.observe)
    rivals = _open(spark, place, clock, vacuum_hours=1)
    tube = mine.create_tube("paused")
    tube.put_many(["1", "2"])
    clock.advance(2 * HOURS)
    directory = Path(place, "paused")

    make_old(*held.begin(tube, directory))
    rivals.sweep()
    held.end()

    assert held.result is not None
    assert held.result.count == ROWS
    assert mine._context.loop.conflicts() == 1
    # Whoever reads, reads all of it.
    assert len(rivals["paused"].take_many(10)) == ROWS + 2


def _open(spark: SparkSession, place: str, clock: ManualClock, **options: object) -> Queue:
    config = {"vacuum_hours": 0, "number_horizon": FOR_EVER, "fold_segments": 1_000}
    queue = Queue(spark, place, clock=clock, config=QueueConfig(**config | options))
    queue.cfg(ttr=FOR_EVER)
    return on_another_host(queue)
