"""`put_df` at a native location lets Spark write files, and one commit of ours adds all of them or none."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.concurrency.support import Stop, end_heartbeat
from tests.thorough import thorough
from tubeq_spark import Queue, QueueConfig, StoreError, TubeNotFoundError
from tubeq_spark.admin.dead_files import _vacuum
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.native.tables import PutDirectories
from tubeq_spark.storage.spark.put_frame_rows import PutFiles
from tubeq_spark.storage.tables.schema import FENCE
from tubeq_spark.verbs import put_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube
    from tubeq_spark.storage.statement import WrittenRows

ROWS = 40
_UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


@pytest.fixture(scope="module")
def queue(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue with a session, where commits are native."""
    location = f"file:{tmp_path_factory.mktemp('native')}"
    config = QueueConfig(vacuum_hours=1, backoff_first=0.0, backoff_most=0.0)
    with Queue(spark, location, engine="native", config=config) as queue:
        end_heartbeat(queue)
        yield queue


@pytest.fixture
def tube(queue: Queue, request: pytest.FixtureRequest) -> Tube:
    """A tube of the test's own."""
    options: dict[str, Any] = getattr(request, "param", {})
    name = f"t{abs(hash(request.node.name))}"
    return queue.create_tube(name, **{"type": "fifottl", **options})


def of_tube(**options: Any) -> pytest.MarkDecorator:
    """Options of the tube of a test."""
    return pytest.mark.parametrize("tube", [options], indirect=True, ids=[""])


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return numbers(spark, ROWS)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows with the numbers from 0 on as payloads."""
    return spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS data")


def place(tube: Tube) -> Path:
    """The directory of its table."""
    path = path_of(tube._ctx.table.name)
    return Path(path.removeprefix("file:"))


def puts(tube: Tube) -> list[Path]:
    """The directories of its puts."""
    return sorted(place(tube).glob("put-*"))


def log_of(tube: Tube) -> list[list[dict[str, Any]]]:
    """The actions of the commits to its table."""
    found = sorted(place(tube).glob("_delta_log/*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in found]


def stored(spark: SparkSession, tube: Tube) -> list[str]:
    """The payloads, which three readers agree on."""
    by_us = sorted(json.dumps(task.data) for task in taken(tube))
    by_spark = sorted(row.data.strip() for row in tube.df().select("data").collect())
    table = DeltaTable(str(place(tube))).to_pyarrow_table(columns=["data", "tube", "task_id"])
    by_library = sorted(
        row["data"].strip() for row in table.to_pylist() if row["tube"] == tube._ctx.table.id
    )
    assert by_us == by_spark == by_library
    return by_us


def taken(tube: Tube) -> list[Any]:
    """All tasks, which stay as they are."""
    tasks = tube.take_many(10 * ROWS)
    for task in tasks:
        tube.release(task.task_id)
    return tasks


ALL = sorted(map(str, range(ROWS)))


@contextmanager
def meanwhile(act: Callable[[], object], times: int = 1) -> Iterator[list[WrittenRows]]:
    """Do something whenever files were written and are not committed yet, at first."""
    plain, found = PutFiles.write, list[Any]()

    def write(self: PutFiles, *args: Any) -> WrittenRows:
        written = plain(self, *args)
        found.append(written)
        if len(found) <= times:
            act()
        return written

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PutFiles, "write", write)
        yield found


@contextmanager
def stopped_at(name: str) -> Iterator[None]:
    """Let a put be stopped before a step of its directory."""

    def stop(*_: object) -> None:
        raise Stop

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PutDirectories, name, stop)
        with pytest.raises(Stop):
            yield


def test_put_df_when_spark_must_not_commit_adds_the_files_of_spark_in_one_commit(
    queue: Queue, spark: SparkSession, tube: Tube, rows: DataFrame
) -> None:
    before = len(log_of(tube))

    result = tube.put_df(rows)

    commit = log_of(tube)[-1]
    assert len(log_of(tube)) == before + 1
    added = [action["add"] for action in commit if "add" in action]
    (directory,) = puts(tube)
    assert {add["path"].split("/")[0] for add in added} == {directory.name}
    assert sum(json.loads(add["stats"])["numRecords"] for add in added) == ROWS
    assert [path.name for path in directory.iterdir() if "segment=" not in path.name] == []
    assert "operation=put" in commit[0]["commitInfo"]["userMetadata"]
    assert f"changed={ROWS}/0/0" in commit[0]["commitInfo"]["userMetadata"]
    assert result.count == ROWS
    assert stored(spark, tube) == ALL
    tasks = tube.take_many(ROWS)
    assert [str(task.data) for task in tasks] == list(map(str, range(ROWS)))
    assert (tasks[0].task_id, tasks[-1].task_id) == (result.first_task_id, result.last_task_id)
    tube.ack_many([task.task_id for task in tasks])
    assert queue.statistics(tube.name)["tasks"]["total"] == 0


@of_tube(type="limfifottl", capacity=ROWS + 10)
def test_put_df_into_a_capacity_when_spark_must_not_commit_fits_or_writes_no_file(
    spark: SparkSession, tube: Tube, rows: DataFrame
) -> None:
    assert tube.put_df(rows, key="a").count == ROWS
    before = puts(tube)

    assert tube.put_df(rows, key="b").count == 0
    assert puts(tube) == before
    with meanwhile(lambda: tube.put("rival")) as written:
        assert tube.put_df(numbers(spark, 5), key="b").count == 5
    assert len(written) == 1
    assert tube.put_df(rows, key="a").count == 0
    with meanwhile(lambda: tube.put_many(["rival", "rival"])):
        assert tube.put_df(numbers(spark, 4)).count == 0
    assert len(puts(tube)) == len(before) + 1
    assert len(stored(spark, tube)) == ROWS + 8


def test_put_df_of_keys_when_a_rival_puts_one_meanwhile_writes_the_others_anew(
    spark: SparkSession, tube: Tube, rows: DataFrame
) -> None:
    keyed = rows.selectExpr("data", "data AS unique")
    tube.put(0, unique="0")

    with meanwhile(lambda: tube.put(1, unique="1")) as written:
        assert tube.put_df(keyed, key="k").count == ROWS - 2

    assert [each.size for each in written] == [ROWS - 1, ROWS - 2]
    assert [path.name for path in puts(tube)] == [written[-1].directory]
    assert tube.put_df(keyed, key="k").count == 0
    assert tube.put_df(keyed).count == 0
    assert stored(spark, tube) == ALL


def test_put_df_when_the_tube_is_dropped_meanwhile_puts_nothing_and_leaves_no_files(
    queue: Queue, spark: SparkSession, tube: Tube, rows: DataFrame
) -> None:
    with meanwhile(tube.drop), pytest.raises(TubeNotFoundError):
        tube.put_df(rows)

    assert puts(tube) == []
    again = queue.create_tube(tube.name, "fifottl")
    assert again.put_df(rows).count == ROWS
    assert stored(spark, again) == ALL


@pytest.mark.parametrize("changed", ["fence", "files"])
def test_put_df_when_a_vacuum_may_have_removed_its_files_writes_them_anew(
    spark: SparkSession, tube: Tube, rows: DataFrame, changed: str
) -> None:
    tables = tube._ctx.queue.engine.tables

    def act() -> None:
        if changed == "fence":
            assert tables.set_property(tube._ctx.table.name, FENCE, "1")
        else:
            next(puts(tube)[0].rglob("*.parquet")).unlink()

    with meanwhile(act) as written:
        assert tube.put_df(rows, key="k").count == ROWS

    assert len(written) == 2
    assert [path.name for path in puts(tube)] == [written[1].directory]
    assert stored(spark, tube) == ALL


def make_older(tube: Tube) -> None:
    """Let all files of its puts be from three hours ago."""
    then = time.time() - 3 * 3600
    for put in puts(tube):
        for path in (*put.rglob("*"), put):
            os.utime(path, (then, then))


def vacuumed(spark: SparkSession, tube: Tube, by: str) -> None:
    """Remove dead files by Spark, by the library, or as a sweep does."""
    if by == "spark":
        spark.conf.set(_UNCHECKED, "false")
        spark.sql(f"VACUUM {tube._ctx.table.name} RETAIN 1 HOURS").collect()
        spark.conf.unset(_UNCHECKED)
    elif by == "library":
        table = DeltaTable(str(place(tube)))
        table.vacuum(1, dry_run=False, enforce_retention_duration=False, full=True)
    else:
        ctx = tube._ctx
        assert _vacuum(ctx.queue, ctx.table.name, ctx.table_lock, ctx.queue.now_us())


@pytest.mark.parametrize("by", ["sweep", *thorough("spark", "library")])
def test_vacuum_when_a_put_was_stopped_before_its_commit_removes_its_files_once_they_are_old(
    spark: SparkSession, tube: Tube, rows: DataFrame, by: str
) -> None:
    tube.put_df(rows)
    (whole,) = puts(tube)
    with meanwhile(lambda: None), stopped_at("fit"):
        tube.put_df(rows)
    (left,) = set(puts(tube)) - {whole}
    (left / "_temporary/0").mkdir(parents=True)
    vacuumed(spark, tube, by)
    assert list(left.rglob("*.parquet"))
    assert (left / "_temporary").exists()
    assert stored(spark, tube) == ALL

    make_older(tube)
    vacuumed(spark, tube, by)

    assert not list(left.rglob("*.parquet"))
    assert list(whole.rglob("*.parquet"))
    # What is removed from a directory makes it younger.
    make_older(tube)
    vacuumed(spark, tube, "sweep")
    assert puts(tube) == [whole]
    assert stored(spark, tube) == ALL


@of_tube(type="utubettl", schema="n BIGINT, text STRING, at TIMESTAMP, day DATE")
def test_put_df_writes_the_statistics_that_our_own_files_have(
    spark: SparkSession, tube: Tube
) -> None:
    frame = spark.range(0, 5, 1, 8).selectExpr(
        "id AS n",
        "repeat(CAST(id AS STRING), 100) AS text",
        "TIMESTAMP '9999-12-31 23:59:59.999999 UTC' AS at",
        "CAST(NULL AS DATE) AS day",
        "CASE WHEN id < 2 THEN repeat('u', 70) ELSE concat('v', id) END AS utube",
        "id AS pri",
        "IF(id = 3, 9000, NULL) AS ttl",
    )

    def statistics() -> dict[str, Any]:
        """Those of the one file of the last commit; of what differs from put to put, whether it is there."""
        (added,) = [action["add"] for action in log_of(tube)[-1] if "add" in action]
        found: dict[str, Any] = json.loads(added["stats"])
        for ends in ("minValues", "maxValues"):
            for name in ("task_id", "created", "since", "next_event", "expires_at"):
                found[ends][name] = name in found[ends]
        return found

    tube.put_df(frame.repartition(1))
    by_spark = statistics()
    tube.put_arrow(frame.toArrow())

    assert by_spark["maxValues"]["next_event"]
    assert by_spark == statistics()
    # One task of each sub-queue.
    assert len(tube.take_many(10)) == 4


@pytest.mark.thorough
@pytest.mark.parametrize(("count", "written"), [(10, ROWS), (ROWS, 10)], ids=["more", "fewer"])
def test_put_df_when_the_frame_yields_other_rows_than_were_counted_puts_nothing(
    spark: SparkSession, tube: Tube, count: int, written: int
) -> None:
    counted = put_frame.count_frame(tube._ctx, numbers(spark, count))
    other = replace(counted, df=numbers(spark, written))
    with pytest.raises(StoreError, match="other rows when written"):
        put_frame.put_frame(tube._ctx, other, None)
    assert puts(tube) == []
    assert stored(spark, tube) == []
