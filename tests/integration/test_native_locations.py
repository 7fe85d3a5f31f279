"""A program with a Spark session commits natively at a native location, and cannot open it with another committer."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.beside import beside_spark
from tests.concurrency.support import end_heartbeat, jobs_of
from tubeq_spark import Queue, QueueConfig, StoreError
from tubeq_spark.storage.statement import MOST_NAMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tubeq_spark import Batch

NAMES = (f"work_{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="module")
def queue(spark: SparkSession, place: Path) -> Iterator[Queue]:
    """Made natively, and opened by a program that names no committer, in an environment that names Spark."""
    Queue(None, place, engine="native").close()
    with Queue(spark, str(place), config=QueueConfig(vacuum_hours=0)) as queue:
        assert queue.engine == "native"
        end_heartbeat(queue)
        yield queue


def log_of(place: Path, tube: str) -> list[Path]:
    return sorted((place / tube / "_delta_log").glob("*.json"))


def committed_by(place: Path, tube: str, verb: Callable[[], object]) -> list[str]:
    """The engines of the commits that a verb makes to a tube's table."""
    before = set(log_of(place, tube))
    verb()
    found: list[str] = []
    for commit in log_of(place, tube):
        if commit not in before:
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
            found.append("spark" if info["engineInfo"].startswith("Apache-Spark") else "native")
    return found


def files_of(place: Path) -> list[Path]:
    return sorted(file for file in place.rglob("*") if file.is_file())


def test_location_when_a_program_asks_for_the_other_committer_is_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    native, of_spark = tmp_path / "native", tmp_path / "of_spark"
    Queue(None, native, engine="native").close()
    with Queue(spark, of_spark, engine="spark") as queue:
        assert queue.engine == "spark"
    before = files_of(tmp_path)

    with pytest.raises(StoreError, match=r"are native .*: open it .* without engine='spark'"):
        Queue(spark, native, engine="spark")
    with pytest.raises(StoreError, match=r"made by Spark .*: open it .* without engine='native'"):
        Queue(spark, of_spark, engine="native")

    assert files_of(tmp_path) == before
    with Queue(spark, of_spark) as queue:
        assert queue.engine == "spark"


def test_batch_is_taken_and_settled_natively_without_a_job_of_spark(
    spark: SparkSession, place: Path, queue: Queue
) -> None:
    tube = queue.create_tube(next(NAMES), "fifottl", ttr=60)
    count = MOST_NAMED + 50
    tube.put_many([str(number) for number in range(count)])
    batches: list[Batch] = []

    assert len(jobs_of(spark, "take", lambda: batches.append(tube.take_df(count)))) == 0
    (batch,) = batches
    taken = sorted(row["task_id"] for row in batch.df.select("task_id").collect())
    assert len(taken) == batch.count == count
    named = lambda first, end: batch.df.where(  # noqa: E731
        f"task_id BETWEEN {taken[first]} AND {taken[end - 1]}"
    )
    with_errors = named(0, 3).selectExpr("task_id", "concat('why ', task_id) AS error")
    settle: tuple[Callable[[], int], ...] = (
        lambda: batch.touch(5),
        lambda: batch.release(named(3, 40)),
        lambda: batch.bury(with_errors),
        lambda: batch.ack(named(40, 90)),
        batch.ack,
    )
    for verb in settle:
        assert set(committed_by(place, tube.name, verb)) == {"native"}
    assert [task.error for task in tube.tasks_by_state("!")] == [f"why {i}" for i in taken[:3]]
    tasks = queue.statistics(tube.name)["tasks"]
    assert (tasks["ready"], tasks["buried"], tasks["done"]) == (37, 3, count - 40)


def test_put_df_and_a_stream_commit_natively(
    spark: SparkSession, place: Path, queue: Queue, tmp_path: Path
) -> None:
    tube = queue.create_tube(next(NAMES))
    frame = spark.range(4).selectExpr("CAST(id AS STRING) AS data")
    source, checkpoint = str(tmp_path / "source"), str(tmp_path / "checkpoint")
    frame.write.format("delta").save(source)

    def stream() -> None:
        read = spark.readStream.format("delta").load(source)
        query = read.writeStream.foreachBatch(tube.sink()).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    assert committed_by(place, tube.name, lambda: tube.put_df(frame, key="once")) == ["native"]
    assert committed_by(place, tube.name, lambda: tube.put_df(frame, key="once")) == []
    assert committed_by(place, tube.name, stream) == ["native"]
    assert tube.df().count() == 8


def made(place: Path, table: str) -> tuple[Any, ...]:
    """What a table was made as: columns, partitions, properties, protocol."""
    found = DeltaTable(f"{place}/{table}")
    protocol, metadata = found.protocol(), found.metadata()
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    return found.schema().to_json(), metadata.partition_columns, metadata.configuration, versions


@pytest.mark.thorough
def test_tables_of_spark_when_they_are_made_natively_are_as_spark_makes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So tests may make them natively (`tests.beside`)."""
    with Queue(spark, tmp_path / "spark", engine="spark") as by_spark:
        by_spark.create_tube("work", "utubettl")
    with beside_spark(tmp_path / "native") as natively:
        natively.create_tube("work", "utubettl")

    for table in ("_tubeq_tubes", "_tubeq_sessions", "work"):
        assert made(tmp_path / "spark", table) == made(tmp_path / "native", table)
