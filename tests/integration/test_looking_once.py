"""What a program that opens a queue for one thing spares: a look at the tubes, and waiting for reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, TubeNotFoundError
from tubeq_spark.cli.ahead import read_ahead
from tubeq_spark.queue import look_once
from tubeq_spark.storage.location import SESSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_first_verb_when_a_queue_looks_once_sees_the_tubes_that_were_there_when_it_was_opened(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Queue(spark, str(tmp_path / "q")) as other:
        other.create_tube("early")
        with Queue(spark, str(tmp_path / "q")) as queue:
            look_once(queue)
            other.create_tube("late")

            assert queue.tubes() == ["early"]
            assert queue.tubes() == ["early", "late"]


def test_tube_when_it_was_dropped_after_the_only_look_is_not_found_by_its_first_verb(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Queue(spark, str(tmp_path / "q")) as other:
        dropped = other.create_tube("dropped")
        with Queue(spark, str(tmp_path / "q")) as queue:
            look_once(queue)
            dropped.drop()

            with pytest.raises(TubeNotFoundError, match="dropped"):
                queue["dropped"].put("a")


def test_read_ahead_of_tables_that_are_not_there_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    read_ahead(spark, str(tmp_path / "q"), SESSIONS, "mail").join()

    assert list(tmp_path.iterdir()) == []
