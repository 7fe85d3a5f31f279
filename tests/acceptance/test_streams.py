"""Streams put, process and report each task once, also through crashes and restarts."""

from __future__ import annotations

import datetime as dt
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.acceptance.support import WAIT, counts, data_of, take
from tubeq_spark import InvalidOptionError, PutItem, Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.acceptance.support import InBackground, NewTube
    from tubeq_spark import Tube
    from tubeq_spark.testing import ManualClock

pytestmark = pytest.mark.frames


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


def test_sink_when_a_batch_is_replayed_adds_nothing(new_tube: NewTube, source: Source) -> None:
    tube = new_tube("fifo")
    source.add("a", "b")
    source.add("c")
    source.run(tube.sink())
    source.lose_the_last_batch()
    source.add("d")

    source.run(tube.sink())

    assert data_in(tube) == ["a", "b", "c", "d"]


@pytest.mark.thorough
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


# -- process ----------------------------------------------------------------------------------


class Handler:
    """Keeps the payloads of each batch; raises as often as it is told to."""

    def __init__(self, *, failures: int = 0, calls: int = 1) -> None:
        self.batches: list[list[Any]] = []
        self._failures = failures
        self._calls = calls
        self._called = threading.Event()

    def __call__(self, batch: DataFrame) -> None:
        rows = batch.select("data").orderBy("task_id").collect()
        self.batches.append([json.loads(row["data"]) for row in rows])
        if len(self.batches) == self._calls:
            self._called.set()
        if len(self.batches) <= self._failures:
            msg = "cannot work"
            raise RuntimeError(msg)

    def wait(self) -> None:
        """Wait until it was called often enough."""
        assert self._called.wait(WAIT)


def test_process_when_it_runs_once_works_off_what_is_ready(queue: Queue, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many(["a", "b", "c"])
    handler = Handler()

    tube.process(handler, batch_size=2, trigger=None).awaitTermination()

    assert handler.batches == [["a", "b"], ["c"]]
    assert counts(queue, tube) == {"done": 3}


@pytest.mark.thorough
def test_process_when_its_handler_raises_gives_back_and_goes_on(
    queue: Queue, new_tube: NewTube, caplog: pytest.LogCaptureFixture
) -> None:
    tube = new_tube("fifottl", max_attempts=3)
    tube.put("a")
    handler = Handler(failures=1, calls=2)

    query = tube.process(handler, batch_size=10, trigger="100 milliseconds")
    handler.wait()
    query.stop()

    assert handler.batches == [["a"], ["a"]]
    assert counts(queue, tube) == {"done": 1}
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [
        ("cannot work",)
    ]


@pytest.mark.thorough
def test_process_when_single_tasks_fail_acks_the_rest_and_goes_on(
    queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("fifottl", max_attempts=2)
    tube.put_many([1, 2, 3, 4, 5])

    def work(batch: DataFrame) -> DataFrame:
        # One is named, and of the others one breaks the call that it is in.
        broken = F.raise_error(F.lit("broken")).cast("string")
        error = F.when(F.col("data") == "4", broken).when(F.col("data") == "2", F.lit("named"))
        return batch.select("task_id", error.alias("error"))

    tube.process(work, batch_size=4, trigger=None).awaitTermination()

    assert data_of(tube.tasks_by_state("!")) == [2, 4]
    assert counts(queue, tube) == {"buried": 2, "done": 3, "total": 2}


@pytest.mark.thorough
def test_process_when_it_is_stopped_finishes_its_batch_and_takes_no_other(
    queue: Queue, new_tube: NewTube, in_background: InBackground
) -> None:
    tube = new_tube("fifo")
    tube.put_many(["a", "b"])
    began, stopped = threading.Event(), threading.Event()

    def work(batch: DataFrame) -> None:
        began.set()
        assert stopped.wait(WAIT)
        assert batch.count() == 1

    query = tube.process(work, batch_size=1)
    assert began.wait(WAIT)
    stopping = in_background(query.stop)
    while query.isActive:
        stopping.done()
    stopped.set()
    stopping.result(WAIT)

    assert counts(queue, tube) == {"ready": 1, "done": 1, "total": 1}


def test_process_when_an_argument_is_bad_starts_nothing(
    spark: SparkSession, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    for bad in (
        {"batch_size": 0},
        {"batch_size": 1, "per_utube": 2},
        {"batch_size": 1, "utube": "a"},
        {"batch_size": 1, "trigger": "now and then"},
    ):
        with pytest.raises(InvalidOptionError):
            tube.process(print, **bad)

    assert spark.streams.active == []


# -- changes ----------------------------------------------------------------------------------


class Listener:
    """Keeps what a stream of changes tells, through restarts of the stream."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.rows: list[Any] = []

    def listen(self, changes: DataFrame) -> list[tuple[str, Any, str]]:
        """Run the stream over all that is there; returns change, payload and state, in order."""
        self.rows.clear()
        writer = changes.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        writer.foreachBatch(
            lambda batch, _: self.rows.extend(batch.collect())
        ).start().awaitTermination()
        self.rows.sort(key=lambda row: (row["version"], row["task_id"], row["step"]))
        return [(row["change"], json.loads(row["data"]), row["state"]) for row in self.rows]


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    return Listener(tmp_path / "listener")


@pytest.fixture(params=["spark", "native"])
def feeding(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, clock: ManualClock
) -> Iterator[Queue]:
    """A queue whose commits are Spark's, or native."""
    location = tmp_path / "queue"
    with Queue(spark, location, engine=request.param, clock=clock) as queue:
        yield queue


@pytest.mark.thorough
def test_changes_when_a_verb_changes_tasks_tell_exactly_these(
    feeding: Queue, clock: ManualClock, listener: Listener
) -> None:
    tube = feeding.create_tube("fed", "fifottl", ttr=60, change_feed=True)
    a, b, c = tube.put_many(["a", "b", "c"])
    tube.take_many(3)
    tube.ack(a.task_id)
    tube.touch(b.task_id, 10)
    tube.release(b.task_id)
    tube.bury(c.task_id)
    tube.kick()
    tube.delete(c.task_id)
    tube.put("d", delay=10)
    clock.advance(10)
    tube.take_many(9)
    tube.put("e", ttl=5)
    clock.advance(100)
    tube.take_many(9)
    tube.truncate()

    told = listener.listen(tube.changes(starting=0))

    assert told == [
        *[("put", data, "r") for data in "abc"],
        *[("take", data, "t") for data in "abc"],
        ("ack", "a", "-"),
        ("touch", "b", "t"),
        ("release", "b", "r"),
        ("bury", "c", "!"),
        ("kick", "c", "r"),
        ("delete", "c", "-"),
        ("put", "d", "~"),
        *[("take", "b", "t"), ("delay", "d", "r"), ("take", "d", "t")],
        ("put", "e", "r"),
        *[("ttr", "b", "r"), ("ttr", "d", "r"), ("ttl", "e", "-")],
        *[("take", "b", "t"), ("take", "d", "t")],
    ]
    assert {row["task_id"] for row in listener.rows[:3]} == {a.task_id, b.task_id, c.task_id}
    assert [row["attempts"] for row in listener.rows if row["change"] == "take"][-1] == 2


@pytest.mark.thorough
def test_changes_when_a_batch_is_settled_in_pieces_tell_each_piece(
    feeding: Queue, clock: ManualClock, listener: Listener
) -> None:
    tube = feeding.create_tube("fed", "utubettl", ttr=60, max_attempts=1, change_feed=True)
    tube.put_many([PutItem(data, utube=data[0]) for data in ("a1", "a2", "b1", "c1")])
    changes = tube.changes()
    with tube.take_df(9) as batch:
        batch.release(batch.df.where("utube = 'a'"))
        batch.bury(batch.df.where("utube = 'b'"))
    second = take(tube)
    clock.advance(60)
    tube.delete(second.task_id)
    tube.drop()

    told = listener.listen(changes)

    assert told == [
        *[("take", data, "t") for data in ("a1", "b1", "c1")],
        *[("bury", "a1", "!"), ("release", "a1", "!")],
        ("bury", "b1", "!"),
        ("ack", "c1", "-"),
        ("take", "a2", "t"),
        *[("ttr", "a2", "r"), ("bury", "a2", "!"), ("delete", "a2", "-")],
    ]


@pytest.mark.thorough
def test_changes_when_segments_are_compacted_and_tombstones_removed_tell_nothing(
    spark: SparkSession, location: str, listener: Listener
) -> None:
    config = QueueConfig(fold_segments=1)
    with Queue(spark, location, config=config) as queue:
        tube = queue.create_tube("feed", change_feed=True)
        tasks = [tube.put(number) for number in range(8)]
        tube.delete(tasks[0].task_id)
        changes = tube.changes()

        report = queue.sweep()

        assert report.tubes["feed"].folded > 1
        assert listener.listen(changes) == []
        left = spark.read.format("delta").load(f"{location}/feed")
        assert left.where("state = '-'").count() == 0


@pytest.mark.nightly
def test_changes_when_the_stream_starts_anew_go_on_where_it_was(
    new_tube: NewTube, listener: Listener, tmp_path: Path
) -> None:
    tube = new_tube("fifo", change_feed=True)
    tube.put("before")
    changes = tube.changes()
    tube.put("first")
    assert listener.listen(changes) == [("put", "first", "r")]
    first = listener.rows[0]
    tube.put("second")

    assert listener.listen(tube.changes(first["version"])) == [("put", "second", "r")]
    for number, starting in enumerate((first["version"], first["at"].astimezone(dt.UTC))):
        told = Listener(tmp_path / str(number)).listen(tube.changes(starting))
        assert told == [("put", "first", "r"), ("put", "second", "r")]


@pytest.mark.thorough
def test_changes_when_there_is_no_feed_or_no_such_start_are_refused(new_tube: NewTube) -> None:
    with pytest.raises(InvalidOptionError, match="change_feed=True"):
        new_tube("fifo").changes()
    tube = new_tube("fifo", change_feed=True)
    for bad in (-1, True, 10_000, "now", dt.datetime(2026, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidOptionError, match="starting"):
            tube.changes(bad)
