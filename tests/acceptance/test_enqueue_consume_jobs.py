"""`jobs/enqueue.py` and `jobs/consume.py`: from files and tables to tasks, from tasks to results."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

import consume
import enqueue
import pytest
from pyspark.sql import functions as F

from tests.acceptance.support import counts
from tests.beside import beside_spark
from tests.programs import ROOT, environment
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.jobs.consumer.loop import Consumer, Ending, Settings
from tubeq_spark.jobs.consumer.results import ResultTable
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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

def only_named(df):
    return named(df)[1]

def fail(df):
    raise RuntimeError("no such luck")

def wrong(df):
    return df.select("data")
"""


class Program(Protocol):
    """Runs a program on the module's queue; returns its exit code, and what it printed and said."""

    def __call__(self, *arguments: str) -> tuple[int, str, str]: ...


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """The module's queue, in real time as that of the programs."""
    with Queue(spark, str(tmp_path_factory.mktemp("jobs"))) as queue:
        yield queue


@pytest.fixture
def tube_name() -> str:
    """A name that no other test has."""
    return f"tube_{next(_numbers)}"


def made(place: Queue, name: str, type_name: str, **options: Any) -> Tube:
    """A tube, made natively: that takes a third of the time."""
    with beside_spark(place.location) as maker:
        maker.create_tube(name, type_name, **options)
    return place[name]


def running(main: Callable[[list[str]], int], queue: Queue, capsys: Any) -> Program:
    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["--location", queue.location, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def put_rows(place: Queue, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Program:
    """`jobs/enqueue.py` in this process, with its Spark session."""
    return running(enqueue.main, place, capsys)


@pytest.fixture
def handlers(tmp_path: Path) -> str:
    """A module of handlers, of a name of its own: a process imports a name once."""
    name = f"handlers_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(HANDLER)
    return name


@pytest.fixture
def do_tasks(place: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    """`jobs/consume.py --once` in this process."""
    run = running(consume.main, place, capsys)
    return lambda *arguments: run("--once", "--path", str(tmp_path), *arguments)


def ready(tube: Tube) -> list[Task]:
    return list(tube.tasks_by_state("r"))


# -- enqueue ----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_json_lines_become_tasks_as_they_are_and_once_for_a_key(
    put_rows: Program, place: Queue, tube_name: str, tmp_path: Path
) -> None:
    lines = tmp_path / "tasks.jsonl"
    lines.write_text('{"b": 1.0, "a": null}\n\n"text"\n[1, 12345678901234567890]\n')
    options = (str(lines), f"--tube={tube_name}", "--create=fifo", "--key=one")

    code, said, _ = put_rows(*options)
    again = put_rows(*options)

    assert code == 0
    assert said.startswith(f"put 3 tasks into {tube_name}: ")
    assert [task.data for task in ready(place.tube(tube_name))] == [
        {"b": 1.0, "a": None},
        "text",
        [1, 12345678901234567890],
    ]
    assert again[:2] == (
        0,
        f"put nothing into {tube_name}: there are no rows or the key 'one' was used before\n",
    )


@pytest.mark.thorough
def test_fields_of_rows_become_payloads_and_options_by_expressions(
    put_rows: Program, place: Queue, tube_name: str, tmp_path: Path
) -> None:
    lines = tmp_path / "orders.json"
    lines.write_text('{"id": 1, "who": "ann", "n": 2}\n{"id": 2, "who": null, "n": 9}\n')
    csv = tmp_path / "orders.csv"
    csv.write_text("id;who\n007;bob\n008;\n")
    tube = made(place, tube_name, "utubettl")
    to = f"--tube={tube_name}"

    codes = [
        put_rows(str(lines), to, "--where=n < 5", "--utube=who", "--pri=n + 1")[0],
        put_rows(str(lines), to, "--data=who", "--ttl=60 * n", "--where=n > 5")[0],
        put_rows(str(csv), to, "--option=sep=;", "--select=id", "--select=upper(who) AS who")[0],
    ]

    assert codes == [0, 0, 0]
    found = sorted(ready(tube), key=lambda task: task.task_id)
    assert [(task.data, task.utube, task.pri, task.ttl) for task in found] == [
        ({"id": 1, "who": "ann", "n": 2}, "ann", 3, None),
        (None, None, 0, 540),
        ({"id": "007", "who": "BOB"}, None, 0, None),
        ({"id": "008", "who": None}, None, 0, None),
    ]


@pytest.mark.thorough
def test_tables_and_parquet_become_tasks_typed_where_the_tube_is(
    put_rows: Program, place: Queue, spark: SparkSession, tube_name: str, tmp_path: Path
) -> None:
    tube = made(place, tube_name, "fifo", schema="n BIGINT, twice BIGINT")
    spark.range(3).write.parquet(str(tmp_path / "three.parquet"))
    spark.range(10, 12).write.format("delta").save(str(tmp_path / "two"))
    fields = ("--select=id AS n", "--select=2 * id AS twice", f"--tube={tube_name}")

    assert put_rows(str(tmp_path / "three.parquet"), *fields)[0] == 0
    assert put_rows(str(tmp_path / "two"), *fields)[0] == 0

    found = sorted(
        task.data["n"] for task in ready(tube) if task.data["twice"] == 2 * task.data["n"]
    )
    assert found == [0, 1, 2, 10, 11]


@pytest.mark.thorough
def test_enqueue_when_used_badly_says_why_and_puts_nothing(
    put_rows: Program, place: Queue, tube_name: str, tmp_path: Path
) -> None:
    tube = made(place, tube_name, "fifo")
    lines = tmp_path / "tasks.jsonl"
    lines.write_text('{"n": 1}\n{bad\n')
    to = f"--tube={tube_name}"

    for options, said in {
        (str(lines), to): "1 bad rows",
        (str(lines), "--tube=nowhere"): "no tube named 'nowhere'",
        (str(tmp_path / "none.jsonl"), to, "--data=n"): "cannot be read as json",
        (str(tmp_path / "none"), to): "cannot be read as delta",
        (str(lines), to, "--data=m"): "the columns are: ",
        (str(lines), to, "--data=n +"): "the columns are: ",
        (str(lines), to, "--pri=n", "--where=n = 1"): "a fifo",
        (str(lines), "--tube=new", "--create=fifo", "--data=m"): "the columns are: ",
    }.items():
        code, printed, sentence = put_rows(*options)
        assert (code, printed) == (2, "")
        # Spark's own log goes the same way.
        lines_of_ours = [line for line in sentence.splitlines() if not line.startswith("{")]
        assert len(lines_of_ours) == 1
        assert said in lines_of_ours[0]

    for bad in (("--option=x",), ("--data=n", "--select=n")):
        with pytest.raises(SystemExit, match=r"^2$"):
            put_rows(str(lines), to, *bad)
    assert ready(tube) == []
    assert "new" not in place


@pytest.mark.thorough
def test_enqueue_when_a_row_cannot_be_read_puts_nothing_and_names_it(
    put_rows: Program, place: Queue, tube_name: str, tmp_path: Path
) -> None:
    tube = made(place, tube_name, "utubettl")
    file = tmp_path / "rows"
    cut, as_json = '{"n": 1}\n{"n": 2, "s"\n', "--format=json"

    for text, options, said in [
        (cut, [as_json, "--select=n"], 'no object of JSON: {"n": 2, "s" ('),
        (cut, [as_json, "--where=n = 1"], 'no object of JSON: {"n": 2, "s" ('),
        ('{"n": 1}\n7\n', [as_json, "--utube=n"], "no object of JSON: 7 ("),
        ('[{"n": 1}]\n{"n": 3}\n', [as_json, "--data=n"], 'no object of JSON: [{"n": 1}] ('),
        ('{"n": 1} {"n": 2}\n', [as_json, "--select=n"], 'no object of JSON: {"n": 1} {"n": 2} ('),
        ("id,who\n1,ann\n2\n", ["--format=csv", "--select=id"], "Malformed CSV record: 2 ("),
        ('id,who\n1,"a\nb"\n', ["--format=csv"], 'Malformed CSV record: b" ('),
    ]:
        file.write_text(text)
        code, printed, sentence = put_rows(str(file), f"--tube={tube_name}", *options)
        assert (code, printed) == (2, "")
        assert f"nothing was put: {file} cannot be read as " in sentence
        assert said in sentence

    assert ready(tube) == []
    # Whoever wants such rows as Spark reads them can have them.
    file.write_text(cut)
    lenient = put_rows(
        str(file), f"--tube={tube_name}", as_json, "--select=n", "--option=mode=PERMISSIVE"
    )
    assert lenient[0] == 0
    assert [task.data for task in ready(tube)] == [{"n": 1}, {"n": None}]


@pytest.mark.thorough
def test_enqueue_when_files_of_a_folder_have_other_columns_mixes_none_up(
    put_rows: Program, place: Queue, spark: SparkSession, tube_name: str, tmp_path: Path
) -> None:
    tube = made(place, tube_name, "fifo")
    to = f"--tube={tube_name}"
    tables, parts = tmp_path / "tables", tmp_path / "parts"
    tables.mkdir()
    (tables / "a.csv").write_text("id,who\n1,ann\n")
    (tables / "b.csv").write_text("who,id\nbob,2\n")
    spark.range(1).write.parquet(str(parts))
    spark.range(1, 2).selectExpr("id", "'bob' AS who").write.mode("append").parquet(str(parts))

    refused = put_rows(str(tables), to, "--format=csv")
    put = put_rows(str(parts), to, "--format=parquet")

    assert refused[:2] == (2, "")
    assert "CSV header does not conform to the schema" in refused[2]
    assert put[0] == 0
    found = sorted((task.data for task in ready(tube)), key=lambda data: data["id"])
    assert found == [{"id": 0, "who": None}, {"id": 1, "who": "bob"}]


@pytest.mark.thorough
def test_enqueue_when_no_field_is_asked_for_puts_lines_that_are_no_objects(
    put_rows: Program, place: Queue, tube_name: str, tmp_path: Path
) -> None:
    tube = made(place, tube_name, "fifottl")
    lines = tmp_path / "tasks.jsonl"
    lines.write_text('[1, 2]\n7\n{"n": 1}\n')

    assert put_rows(str(lines), f"--tube={tube_name}", "--ttl=60")[0] == 0

    assert [task.data for task in ready(tube)] == [[1, 2], 7, {"n": 1}]


# -- consume ----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_once_does_all_tasks_and_stores_what_the_handler_returns(
    do_tasks: Program,
    place: Queue,
    spark: SparkSession,
    tube_name: str,
    tmp_path: Path,
    handlers: str,
) -> None:
    tube = made(place, tube_name, "fifo")
    ids = [task.task_id for task in tube.put_many([{"n": n} for n in range(5)])]
    results = str(tmp_path / "results")
    options = (f"--tube={tube_name}", f"--results={results}", "--batch-size=3", f"{handlers}:work")

    code, log, said = do_tasks(*options)
    assert (code, len(log.splitlines())) == (0, 2)
    assert said == "consume.py: finished: 5 tasks, 0 failed batches\n"
    stored = spark.read.format("delta").load(results).collect()
    assert {row["task_id"]: row["twice"] for row in stored} == dict(
        zip(ids, range(0, 10, 2), strict=True)
    )
    assert len(stored) == 5
    assert counts(place, tube) == {"done": 5}


@pytest.mark.thorough
def test_batches_that_fail_are_given_back_and_buried_after_their_attempts(
    do_tasks: Program, place: Queue, tube_name: str, handlers: str
) -> None:
    tube = made(place, tube_name, "fifottl")
    tube.put_many(["a", "b"])
    to = f"--tube={tube_name}"

    code, log, said = do_tasks(to, "--max-failures=1", f"{handlers}:fail")
    assert code == 3
    assert log.endswith("a batch of 2 failed, 2 tasks released, 0 buried: no such luck\n")
    assert said == "consume.py: gave up: 0 tasks, 1 failed batches\n"
    assert counts(place, tube) == {"ready": 2, "total": 2}
    code, _, said = do_tasks(to, "--max-attempts=2", f"{handlers}:fail")
    assert (code, said) == (3, "consume.py: finished: 0 tasks, 1 failed batches\n")
    assert counts(place, tube) == {"buried": 2, "total": 2}


@pytest.mark.thorough
@pytest.mark.parametrize("handler", ["picky", "named"])
def test_bad_tasks_of_a_batch_are_buried_after_their_attempts_and_the_others_done(
    do_tasks: Program,
    place: Queue,
    spark: SparkSession,
    tube_name: str,
    tmp_path: Path,
    handlers: str,
    handler: str,
) -> None:
    tube = made(place, tube_name, "fifottl", max_attempts=1)
    ids = [task.task_id for task in tube.put_many([{"n": n} for n in range(5)])]
    options = (f"--tube={tube_name}", f"--results={tmp_path}/results")

    code, log, said = do_tasks(*options, f"{handlers}:{handler}")

    assert code == 3
    assert "4 tasks done: 4 in " in log
    assert log.endswith(" s, 4 results, 1 failed (1 buried)\n")
    assert said.endswith(
        "consume.py: finished: 4 tasks, 0 failed batches, 1 failures of single tasks\n"
    )
    assert [task.task_id for task in tube.tasks_by_state("!")] == [ids[3]]
    stored = spark.read.format("delta").load(f"{tmp_path}/results").collect()
    assert {row["task_id"]: row["twice"] for row in stored} == dict(
        zip(ids[:3] + ids[4:], [0, 2, 4, 8], strict=True)
    )


@pytest.mark.thorough
def test_bad_tasks_of_a_batch_alone_need_no_results_and_without_halves_all_fail(
    do_tasks: Program, place: Queue, tube_name: str, handlers: str
) -> None:
    tube = made(place, tube_name, "fifottl")
    tube.put_many([{"n": n} for n in range(2, 5)])
    to = f"--tube={tube_name}"

    code, log, _ = do_tasks(to, "--no-halves", "--max-failures=1", f"{handlers}:picky")
    assert code == 3
    assert log.endswith("a batch of 3 failed, 3 tasks released, 0 buried: a three\n")
    code, log, _ = do_tasks(to, "--max-failures=1", f"{handlers}:only_named")
    assert code == 3
    assert "2 tasks done: 2 in " in log
    assert log.endswith("a batch of 1 failed, 1 tasks released, 0 buried: the handler says so\n")
    assert counts(place, tube) == {"ready": 1, "done": 2, "total": 1}


@pytest.mark.thorough
def test_consume_when_used_badly_says_why_and_gives_back_what_it_took(
    do_tasks: Program,
    place: Queue,
    spark: SparkSession,
    tube_name: str,
    tmp_path: Path,
    handlers: str,
) -> None:
    tube = made(place, tube_name, "fifo")
    for name, columns in {
        "fewer": "task_id BIGINT",
        "more": "task_id BIGINT, Twice INT, price INT",
    }.items():
        spark.createDataFrame([], columns).write.format("delta").save(f"{tmp_path}/{name}")
    tube.put("a")
    to = f"--tube={tube_name}"
    (tmp_path / "broken.py").write_text("1 / 0")

    for options, said in {
        (to, "work"): "must be module:function",
        (to, "no_such_module:work"): "No module named 'no_such_module'",
        (to, "broken:work"): "division by zero",
        (to, f"{handlers}:nothing"): "has no function nothing",
        (to, f"{handlers}:work"): "say by --results where it shall go",
        (to, f"--results={tmp_path}/r", f"{handlers}:wrong"): "needs a column task_id BIGINT",
        (to, f"--results={place.location}/{tube_name}", f"{handlers}:work"): "is the tube itself",
        (to, f"--results={tmp_path}/fewer", f"{handlers}:work"): "it has no column twice",
        (to, f"--results={tmp_path}/more", f"{handlers}:work"): "the result has no column price",
        ("--tube=nowhere", f"{handlers}:work"): "no tube named 'nowhere'",
    }.items():
        code, printed, sentence = do_tasks(*options)
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
    results = ResultTable(spark, str(tmp_path / "results"))
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
        settings = Settings(once=True, batch_size=3)
        return Consumer(queue["work"], two_rows_a_task, results, settings, lambda: False)

    config = QueueConfig(observer=observe)
    first = Queue(spark, location, clock=clock, config=config)
    first.create_tube("work", "fifottl", ttr=60).put_many(["a", "b", "c"])
    with pytest.raises(ProcessEndError):
        consumer(first).run()
    clock.advance(61)

    with Queue(spark, location, clock=clock) as second:
        second["work"].put("d")
        assert consumer(second).run() is Ending.FINISHED
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
def test_programs_put_and_consume_until_a_signal_comes(
    spark: SparkSession, location: str, tmp_path: Path, handlers: str
) -> None:
    with Queue(spark, location) as queue:
        queue.create_tube("work", "fifo")
    lines = tmp_path / "tasks.jsonl"
    lines.write_text("".join(f"{json.dumps({'n': n})}\n" for n in range(4)))
    results = str(tmp_path / "results")
    common = ["--location", location, "--tube=work"]

    with subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "jobs" / "consume.py"), *common),
            *(f"--results={results}", f"--path={tmp_path}", f"{handlers}:work"),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as consumer:
        try:
            put = subprocess.run(
                [sys.executable, str(ROOT / "jobs" / "enqueue.py"), *common, str(lines)],
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=LONG,
            )
            assert (put.returncode, put.stderr) == (0, "")
            assert put.stdout.startswith("put 4 tasks into work: ")
            assert consumer.stdout is not None
            first = consumer.stdout.readline()
            consumer.send_signal(signal.SIGTERM)
            rest, said = consumer.communicate(timeout=LONG)
        finally:
            consumer.kill()

    assert "4 tasks done: 4 in " in first
    assert (consumer.returncode, rest) == (0, "")
    assert said.endswith("consume.py: stopped: 4 tasks, 0 failed batches\n")
    stored = spark.read.format("delta").load(results).select("twice").collect()
    assert sorted(row["twice"] for row in stored) == [0, 2, 4, 6]
