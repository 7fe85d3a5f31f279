"""The tables of the programs in `jobs/`: on local files other processes are kept out while they write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout
from pyspark.sql import functions as F

from tests.concurrency.support import WAIT
from tubeq_spark import StoreError
from tubeq_spark.jobs.consumer.results import ResultTable
from tubeq_spark.jobs.crawler.tables import FETCH_COLUMNS, PageTable
from tubeq_spark.storage.locks import committer
from tubeq_spark.storage.locks.committer import Committer, JvmNote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOCKS = "_tubeq_locks"


def try_lock(path: Path) -> Column:
    """What another process meets that tries a lock file while a frame is evaluated."""
    text = str(path)

    def tried(_number: int) -> str:
        try:
            FileLock(text, timeout=0).acquire().lock.release()
        except Timeout:
            return "held"
        return "free"

    # Hints of types would make Spark look for a function of pandas in it.
    return F.udf(lambda number: tried(number), "string").asNondeterministic()("id")  # noqa: PLW0108


def fetches(spark: SparkSession, error: Column) -> DataFrame:
    """One row of the page table, with an error that is made while it is written."""
    names = [column.split()[0] for column in FETCH_COLUMNS.split(", ")]
    columns = {column.split()[0]: column.split()[1] for column in FETCH_COLUMNS.split(", ")}
    rows = spark.range(1).withColumn("error", error)
    for name in names:
        if name != "error":
            rows = rows.withColumn(name, F.lit(None).cast(columns[name]))
    return rows.select(names)


@pytest.mark.thorough
def test_page_table_when_it_appends_on_local_files_keeps_other_processes_out(
    spark: SparkSession, location: str
) -> None:
    pages = PageTable(spark, location)

    pages.append(
        fetches(spark, try_lock(Path(location, LOCKS, "_crawl_pages.lock"))),
        consumer="a",
        batch="1",
    )

    assert [row["error"] for row in pages.fetches().collect()] == ["held"]


@pytest.mark.thorough
def test_page_table_when_two_threads_append_lets_them_go_on_side_by_side(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    pages = PageTable(spark, location)
    marks = str(tmp_path)

    def meet(_number: int) -> str:
        import time  # noqa: PLC0415  (travels with the function)
        from pathlib import Path as Marks  # noqa: PLC0415

        Marks(marks, f"mark{_number}").touch()
        for _ in range(1_200):
            if len(list(Marks(marks).glob("mark*"))) == 2:
                return "met"
            time.sleep(0.05)
        return "alone"

    def append(number: int) -> None:
        met = F.udf(lambda one: meet(one), "string").asNondeterministic()(F.lit(number))  # noqa: PLW0108
        pages.append(fetches(spark, met), consumer=str(number), batch=str(number))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, range(2), timeout=WAIT))

    assert [row["error"] for row in pages.fetches().collect()] == ["met", "met"]


@pytest.mark.thorough
def test_result_table_when_it_adds_on_local_files_keeps_other_processes_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    results = ResultTable(spark, str(tmp_path / "results"))
    said = try_lock(tmp_path / LOCKS / "results.lock")

    assert results.add(spark.range(1).select(F.col("id").alias("task_id"), said.alias("said"))) == 1

    stored = spark.read.format("delta").load(str(tmp_path / "results")).collect()
    assert [row["said"] for row in stored] == ["held"]


@pytest.mark.thorough
def test_result_table_when_another_jvm_may_be_committing_is_not_created(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "_PATIENCE", 0.0)
    # As a process leaves it that was killed while its JVM, on a host of its own, was committing.
    (tmp_path / LOCKS).mkdir()
    JvmNote(tmp_path / LOCKS / "results.lock").write(Committer(started="another"))
    results = ResultTable(spark, str(tmp_path / "results"))

    with pytest.raises(StoreError, match="may still be committing"):
        results.add(spark.range(1).select(F.col("id").alias("task_id")))

    assert not (tmp_path / "results").exists()
