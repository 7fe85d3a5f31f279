"""The result tables of `jobs/` keep other processes out while a program writes them on local files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from consume import Results
from filelock import FileLock, Timeout
from pyspark.sql import functions as F

from tubeq_spark import StoreError
from tubeq_spark.storage.locks import committer
from tubeq_spark.storage.locks.committer import Committer, JvmNote

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, SparkSession

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


@pytest.mark.thorough
def test_result_table_when_it_adds_on_local_files_keeps_other_processes_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    results = Results(spark, str(tmp_path / "results"))
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
    results = Results(spark, str(tmp_path / "results"))

    with pytest.raises(StoreError, match="may still be committing"):
        results.add(spark.range(1).select(F.col("id").alias("task_id")))

    assert not (tmp_path / "results").exists()
