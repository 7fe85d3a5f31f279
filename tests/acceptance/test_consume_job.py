"""`jobs/consume.py` stores one result for each task."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import consume
import pytest
from consume import Consumer, Results
from pyspark.sql import functions as F

from tests.acceptance.support import counts
from tests.beside import beside_spark
from tests.programs import ROOT, started
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Task, Tube

LONG = 300
_numbers = itertools.count(1)

HANDLER = """
from pyspark.sql import functions as F
from pyspark.sql import types as T

def double(number):  # runs on the executors
    return None if number is None else 2 * number

def work(df):
    number = F.get_json_object("data", "$.n").cast("int")
    return df.select("task_id", F.udf(double, T.IntegerType())(number).alias("twice"))

def picky(df):
    if df.where("data LIKE '%3%'").count():
        raise ValueError("a three")
    return work(df)

def named(df):
    bad = "data LIKE '%3%'"
    failed = df.where(bad).select("task_id", F.lit("a three").alias("error"))
    return work(df), failed  # the results of what has failed are left out

def fail(df):
    raise RuntimeError("no such luck")

def wrong(df):
    return df.select("data")
"""


class Jobs:
    """The program in this process, on a queue and with its Spark session.

    Attributes:
        tube: The name of a tube that no other test has.
        handlers: A module of handlers, of a name of its own: a process imports a name once.
    """

    def __init__(self, queue: Queue, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.queue, self._capsys, self._folder = queue, capsys, folder
        number = next(_numbers)
        self.tube, self.handlers = f"tube_{number}", f"handlers_{number}"
        (folder / f"{self.handlers}.py").write_text(HANDLER)

    def make(self, type_name: str = "fifo", **options: Any) -> Tube:
        """The tube, made natively: that takes a third of the time."""
        with beside_spark(self.queue.location) as maker:
            maker.create_tube(self.tube, type_name, **options)
        return self.queue[self.tube]

    def file(self, name: str, text: str) -> str:
        """Write a file; returns its path."""
        (self._folder / name).write_text(text)
        return str(self._folder / name)

    def consume(self, *arguments: str) -> tuple[int, str, str]:
        """`jobs/consume.py --once`."""
        self._capsys.readouterr()
        to = () if any(a.startswith("--tube=") for a in arguments) else (f"--tube={self.tube}",)
        common = ("--location", self.queue.location, "--once", "--path", str(self._folder))
        return consume.main([*common, *to, *arguments]), *self._capsys.readouterr()


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """The module's queue, in real time as that of the programs."""
    with Queue(spark, str(tmp_path_factory.mktemp("jobs"))) as queue:
        yield queue


@pytest.fixture
def jobs(place: Queue, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Jobs:
    """The program."""
    return Jobs(place, capsys, tmp_path)


def ready(tube: Tube) -> list[Task]:
    return sorted(tube.tasks_by_state("r"), key=lambda task: task.task_id)


def twice_of(spark: SparkSession, results: str) -> dict[int, int]:
    """What the handler has stored of each task, once each."""
    rows = spark.read.format("delta").load(results).collect()
    found = {row["task_id"]: row["twice"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("handler", ["work", "picky", "named"])
def test_once_does_all_tasks_but_bad_ones_and_stores_what_the_handler_returns(
    jobs: Jobs, spark: SparkSession, tmp_path: Path, handler: str
) -> None:
    tube, results = jobs.make("fifottl", max_attempts=1), str(tmp_path / "results")
    ids = [task.task_id for task in tube.put_many([{"n": n} for n in range(5)])]
    is_bad = int(handler != "work")

    strict = ("--strict", f"--results={results}", f"{jobs.handlers}:{handler}")
    code, said, log = jobs.consume(*strict)

    assert code == (4 if is_bad else 0)
    assert f"{5 - is_bad} of 5 tasks done in " in log
    expected = dict(zip(ids, range(0, 10, 2), strict=True))
    if is_bad:
        assert log.endswith(" s, 4 results, 1 failed (1 buried)\n")
        assert said == "finished: 4 tasks, 0 failed batches, 1 failures of single tasks\n"
        del expected[ids[3]]
    else:
        assert said == "finished: 5 tasks, 0 failed batches\n"
    assert [task.task_id for task in tube.tasks_by_state("!")] == ids[3 : 3 + is_bad]
    assert twice_of(spark, results) == expected


@pytest.mark.thorough
def test_batches_that_fail_are_given_back_and_buried_after_their_attempts(jobs: Jobs) -> None:
    tube = jobs.make("fifottl", max_attempts=2)
    tube.put_many([{"n": 3}, {"n": 4}])

    code, said, log = jobs.consume("--max-failures=1", f"{jobs.handlers}:fail")
    assert code == 3
    assert " s, 2 failed (0 buried): no such luck\n" in log
    assert log.endswith("gave up, because call after call failed; tasks are left\n")
    assert said == "gave up: 0 tasks, 1 failed batches\n"
    assert counts(jobs.queue, tube) == {"ready": 2, "total": 2}
    code, said, _ = jobs.consume("--json", f"{jobs.handlers}:fail")
    assert (code, json.loads(said)) == (
        0,
        {
            "tube": tube.name,
            "ending": "finished",
            "done": 0,
            "failed_batches": 1,
            "failed_tasks": 0,
        },
    )
    assert counts(jobs.queue, tube) == {"buried": 2, "total": 2}


@pytest.mark.thorough
def test_consume_when_used_badly_says_why_and_gives_back_what_it_took(
    jobs: Jobs, spark: SparkSession, tmp_path: Path
) -> None:
    tube = jobs.make()
    for name, columns in {
        "fewer": "task_id BIGINT",
        "more": "task_id BIGINT, Twice INT, price INT",
    }.items():
        spark.createDataFrame([], columns).write.format("delta").save(f"{tmp_path}/{name}")
    tube.put("a")
    jobs.file("broken.py", "1 / 0")
    work = f"{jobs.handlers}:work"

    for options, said in {
        ("work",): "must be module:function",
        ("no_such_module:work",): "No module named 'no_such_module'",
        ("broken:work",): "division by zero",
        (f"{jobs.handlers}:nothing",): "has no function nothing",
        (work,): "name a table for it by --results",
        (f"--results={tmp_path}/r", f"{jobs.handlers}:wrong"): "needs a column task_id BIGINT",
        (f"--results={jobs.queue.location}/{jobs.tube}", work): "is the tube itself",
        (f"--results={tmp_path}/fewer", work): "it has no column twice",
        (f"--results={tmp_path}/more", work): "the result has no column price",
        ("--tube=nowhere", work): "no tube named 'nowhere'",
    }.items():
        code, printed, sentence = jobs.consume(*options)
        assert (code, printed) == (2, "")
        assert said in sentence

    assert [task.data for task in ready(tube)] == ["a"]


class ProcessEndError(BaseException):
    """The process ends here; nothing that follows in it is run."""


@pytest.mark.thorough
def test_consumer_that_ends_between_results_and_ack_adds_nothing_twice(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    results = Results(spark, str(tmp_path / "results"))
    ended: list[str] = []

    def observe(step: str, operation: str) -> None:
        # The heartbeat's thread cannot end this process.
        is_heart = threading.current_thread().name.startswith("tubeq-heartbeat")
        if not is_heart and (ended or operation == "ack"):
            ended.append(step)
            raise ProcessEndError

    def two_rows_a_task(df: DataFrame) -> DataFrame:
        return df.select(
            "task_id", "attempts", F.explode(F.array(F.lit(1), F.lit(2))).alias("part")
        )

    def consumer(queue: Queue) -> Consumer:
        return Consumer(
            tube=queue["work"],
            handler=two_rows_a_task,
            results=results,
            stop=lambda: False,
            once=True,
            batch_size=3,
        )

    config = QueueConfig(observer=observe)
    first = Queue(spark, location, clock=clock, config=config)
    first.create_tube("work", "fifottl", ttr=60).put_many(["a", "b", "c"])
    with pytest.raises(ProcessEndError):
        consumer(first).run()
    clock.advance(61)

    with Queue(spark, location, clock=clock) as second:
        second["work"].put("d")
        assert consumer(second).run() == "finished"
        assert counts(second, second["work"]) == {"done": 4}

    stored = spark.read.format("delta").load(str(tmp_path / "results"))
    rows = sorted((row["attempts"], row["part"]) for row in stored.collect())
    # The batch that was done twice has the rows of the first time only.
    assert rows == [(1, 1)] * 4 + [(1, 2)] * 4
    assert stored.select("task_id").distinct().count() == 4
    ended.clear()
    first.close()  # ends its heartbeat


@pytest.mark.thorough
@pytest.mark.processes
@pytest.mark.slow
def test_program_consumes_until_a_signal_comes(
    spark: SparkSession, location: str, tmp_path: Path, jobs: Jobs
) -> None:
    with Queue(spark, location) as queue:
        queue.create_tube("work", "fifo").put_many([{"n": n} for n in range(4)])
    results = str(tmp_path / "results")
    common = ["--location", location, "--tube=work"]

    handler = (f"--results={results}", f"--path={tmp_path}", f"{jobs.handlers}:work")
    with started(str(ROOT / "jobs" / "consume.py"), *common, *handler) as consumer:
        # Spark's log goes the same way.
        first = next(line for line in consumer.stderr if "work[" in line)
        consumer.send_signal(signal.SIGTERM)
        said, _ = consumer.communicate(timeout=LONG)

    assert "4 of 4 tasks done in " in first
    assert (consumer.returncode, said) == (0, "stopped: 4 tasks, 0 failed batches\n")
    assert sorted(twice_of(spark, results).values()) == [0, 2, 4, 6]
