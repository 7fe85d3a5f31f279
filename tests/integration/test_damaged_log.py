"""Verbs on Spark name the cause and the file of a damaged log, and looks and sweeps go on with other tubes."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import CommitUnknownError, PutItem, Queue, QueueConfig, StoreError, TubeqError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tubeq_spark import Tube

CAUSE = "ChecksumException"


def damage(table: Path) -> str:
    """Add a commit to a log that does not fit its checksum; the name of its file."""
    log = table / "_delta_log"
    last = max(path for path in log.glob("*.json") if path.stem.isdigit())
    name = f"{int(last.stem) + 1:020}.json"
    (log / name).write_text(last.read_text().replace("a", "b"))
    shutil.copy(log / f".{last.name}.crc", log / f".{name}.crc")
    return name


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def queue(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, clock: ManualClock
) -> Iterator[Queue]:
    """A queue with two tubes, of which the log of one is damaged."""
    place = tmp_path_factory.mktemp("queue")
    opened = Queue(spark, str(place), clock=clock, config=QueueConfig(vacuum_hours=0))
    for name in ("broken", "sound"):
        opened.create_tube(name, "utubettl").put_many([PutItem("a", ttl=60), PutItem("b")])
    damage(place / "broken")
    yield opened
    opened._context.session.stop()


@pytest.fixture
def broken(queue: Queue) -> Tube:
    return queue["broken"]


@pytest.mark.thorough
def test_verbs_when_the_log_is_damaged_name_the_cause_and_the_file(broken: Tube) -> None:
    verbs = {
        "peek": lambda: broken.peek(1),
        "take": lambda: broken.take(0),
        "put": lambda: broken.put("c"),
        "delete": lambda: broken.delete(1),
    }

    said = {}
    for name, verb in verbs.items():
        with pytest.raises(TubeqError) as caught:
            verb()
        assert type(caught.value) in (StoreError, CommitUnknownError)
        said[name] = str(caught.value)

    for text in said.values():
        assert CAUSE in text
        assert ".json" in text
        assert "An error occurred while calling" not in text


@pytest.mark.thorough
def test_looks_and_sweeps_when_the_log_of_a_tube_is_damaged_name_it_and_go_on_with_the_others(
    queue: Queue, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    found = [problem for problem in queue.health().problems if problem.kind == "unreadable"]
    with caplog.at_level(logging.WARNING, "tubeq_spark"):
        measured, counted = queue.metrics().tubes, queue.statistics()
    clock.advance(61)
    report = queue.sweep()

    assert [problem.tube for problem in found] == ["broken"]
    assert CAUSE in found[0].message
    assert set(measured) == set(counted) == {"sound"}
    assert any("broken" in text and CAUSE in text for text in caplog.messages)
    with pytest.raises(StoreError, match=CAUSE):
        queue.statistics("broken")
    assert (report.tubes["sound"].expired, report.tubes["sound"].error) == (1, None)
    assert CAUSE in (report.tubes["broken"].error or "")
