"""Streams into a tube, out of it, and of its changes: each task once, through crashes and restarts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.acceptance.support import take
from tubeq_spark import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.acceptance.support import NewTube
    from tubeq_spark import Tube


class Source:
    """A directory that a stream reads, a file a micro-batch; and the stream's checkpoint."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self._spark = spark
        self._files = place / "files"
        self._files.mkdir(parents=True)
        self.checkpoint = place / "checkpoint"

    def add(self, *payloads: Any) -> None:
        """Add a file of payloads."""
        number = len(list(self._files.iterdir()))
        lines = "".join(json.dumps(payload) + "\n" for payload in payloads)
        (self._files / f"{number}.txt").write_text(lines)

    def run(self, function: Callable[[DataFrame, int], None]) -> None:
        """Run the stream over all that is there."""
        stream = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        writer = stream.selectExpr("value AS data").writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.foreachBatch(function).start()
        query.awaitTermination()

    def lose_the_last_batch(self) -> None:
        """Forget that the last micro-batch was done, as a crash right before it would."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "source")


def data_in(tube: Tube) -> list[Any]:
    return sorted(json.loads(row["data"]) for row in tube.df().select("data").collect())


# -- sink -------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["fifo", "limfifottl"])
def test_sink_when_a_batch_is_replayed_adds_nothing(
    new_tube: NewTube, source: Source, type_name: str
) -> None:
    tube = new_tube(type_name, capacity=4 if type_name == "limfifottl" else None)
    source.add("a", "b")
    source.add("c")
    source.run(tube.sink())
    source.lose_the_last_batch()
    source.add("d")

    source.run(tube.sink())

    assert data_in(tube) == ["a", "b", "c", "d"]


def test_sink_when_the_stream_dies_after_the_commit_adds_each_row_once(
    new_tube: NewTube, source: Source
) -> None:
    tube = new_tube("fifo")
    sink = tube.sink()

    def dies(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        msg = "the power is out"
        raise RuntimeError(msg)

    source.add("a", "b")
    with pytest.raises(StreamingQueryException, match="the power is out"):
        source.run(dies)

    source.run(tube.sink())

    assert data_in(tube) == ["a", "b"]


def test_sinks_of_several_streams_when_their_batches_bear_the_same_numbers_shadow_nothing(
    spark: SparkSession, new_tube: NewTube, source: Source, tmp_path: Path
) -> None:
    tube = new_tube("fifo")
    left, right = tube.sink(), tube.sink("right half")
    source.add("a")
    source.run(lambda batch, number: (left(batch, number), right(batch, number)))
    another = Source(spark, tmp_path / "another")
    another.add("b")

    another.run(tube.sink())

    assert data_in(tube) == ["a", "a", "b"]


def test_sink_when_a_batch_finds_no_room_fails_and_drops_nothing(
    new_tube: NewTube, source: Source
) -> None:
    tube = new_tube("limfifottl", capacity=2)
    tube.put_many(["x", "y"])
    source.add("a")
    with pytest.raises(StreamingQueryException, match="stayed full for 0"):
        source.run(tube.sink("s", timeout=0))
    tube.ack(take(tube).task_id)

    source.run(tube.sink("s", timeout=0))

    assert data_in(tube) == ["a", "y"]
    source.add("b", "c", "d")
    with pytest.raises(StreamingQueryException, match="3 rows never fits"):
        source.run(tube.sink("s"))


def test_sink_when_no_stream_runs_needs_a_name(spark: SparkSession, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    rows = spark.createDataFrame([('"a"',)], "data STRING")

    with pytest.raises(InvalidOptionError, match="name=None"):
        tube.sink()(rows, 0)
    for number in (0, 1, 0):
        tube.sink("mine")(rows, number)

    assert data_in(tube) == ["a", "a"]
