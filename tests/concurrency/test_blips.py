"""`close` asks again when one statement does not reach Spark, and gives back what the session holds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError

from tests.concurrency.support import FOR_EVER, Tapped, end_heartbeat, ids_of
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark.testing import ManualClock


class Shaky(Tapped):
    """A session that cannot be reached at times."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        #: Whether a statement, given its text, does not get through; asked for "" by other calls.
        self.is_down: Callable[[str], bool] = lambda _text: False

    @property
    def conf(self) -> Any:
        """Its settings."""
        self._reach("")
        return self._spark.conf

    def run(self, session: SparkSession, text: str, sql: Callable[[str], DataFrame]) -> DataFrame:
        """Run a statement, if it gets through."""
        self._reach(text)
        return sql(text)

    def _reach(self, text: str) -> None:
        if self.is_down(text):
            msg = "Answer from Java side is empty"
            raise Py4JNetworkError(msg)


@pytest.fixture(scope="module")
def watcher(spark: SparkSession, place: str, clock: ManualClock) -> Queue:
    """A queue that is always reached."""
    return opened(spark, place, clock)


def opened(spark: Any, place: str, clock: ManualClock) -> Queue:
    config = QueueConfig(vacuum_hours=0, number_horizon=FOR_EVER)
    queue = Queue(spark, place, clock=clock, config=config)
    queue.cfg(ttr=FOR_EVER)
    end_heartbeat(queue)
    return queue


@pytest.fixture
def shaky(spark: SparkSession) -> Shaky:
    return Shaky(spark)


@pytest.mark.thorough
def test_close_when_one_statement_does_not_get_through_asks_again(
    shaky: Shaky, place: str, clock: ManualClock, watcher: Queue
) -> None:
    tube = watcher.create_tube("meanwhile")
    put = tube.put_many(["a", "b"])
    queue = opened(shaky, place, clock)
    brief = queue.create_tube("brief", temporary=True)
    taken = queue["meanwhile"].take_many(2)
    lost: list[str] = []

    def loses_one(text: str) -> bool:
        # The first statement that would give back a task; and the answer of who looks for it.
        if len(lost) < 2 and (lost or "MERGE" in text or "UPDATE" in text):
            lost.append(text)
            return True
        return False

    shaky.is_down = loses_one
    queue.close()

    assert len(lost) == 2
    assert ids_of(taken) == ids_of(put)
    assert ids_of(tube.take_many(2)) == ids_of(put)
    assert brief.name not in watcher


@pytest.mark.thorough
def test_close_when_spark_stays_out_of_reach_tells_what_is_left(
    shaky: Shaky, place: str, clock: ManualClock, watcher: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    watcher.create_tube("left").put("a")
    queue = opened(shaky, place, clock)
    queue.create_tube("passing", temporary=True)
    assert queue["left"].take(0) is not None
    shaky.is_down = lambda _text: True

    with caplog.at_level(logging.WARNING, "tubeq_spark"):
        queue.close()

    (told,) = [r.getMessage() for r in caplog.records if "left behind" in r.getMessage()]
    assert "what was taken from left, passing" in told
    assert "temporary tube passing" in told
