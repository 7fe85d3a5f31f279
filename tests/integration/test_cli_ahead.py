"""What a call of `tubeq` spares: a second look at the tubes, and waiting for reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.beside import beside_spark
from tubeq_spark import Queue, TubeNotFoundError
from tubeq_spark.cli.ahead import QueueOfOneCall, read_ahead
from tubeq_spark.storage.location import SESSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TUBE = "mail"


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A queue with one tube."""
    location = str(tmp_path / "q")
    with beside_spark(location) as queue:
        queue.create_tube(TUBE)
    return location


@pytest.mark.thorough
def test_first_verb_when_a_queue_is_for_one_call_sees_the_tubes_that_were_there_when_it_was_opened(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as other, QueueOfOneCall(spark, location) as queue:
        other.create_tube("late")

        assert queue.tubes() == [TUBE]
        assert queue.tubes() == ["late", TUBE]


@pytest.mark.thorough
def test_tube_when_it_was_dropped_after_the_only_look_is_not_found_by_its_first_verb(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as other, QueueOfOneCall(spark, location) as queue:
        other[TUBE].drop()

        with pytest.raises(TubeNotFoundError, match=TUBE):
            queue[TUBE].put("a")


@pytest.mark.thorough
def test_read_ahead_of_tables_that_are_not_there_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    read_ahead(spark, str(tmp_path / "q"), SESSIONS, TUBE).join()

    assert list(tmp_path.iterdir()) == []
