"""Other programs change the table of a tube while a queue uses it: the queue loses no task and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tubeq_spark import NotTakenError, Queue, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tubeq_spark import Tube

pytestmark = pytest.mark.thorough

HOSTS = ["a", "\U00020bb7", "z" * 70, "a", "b", "b"]
UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"
#: Statements of Spark by the name of the operation; `{}` stands for the table.
OPERATIONS: dict[str, Sequence[str]] = {
    "OPTIMIZE": ["OPTIMIZE {}"],
    "ZORDER": ["OPTIMIZE {} ZORDER BY (task_id, utube)"],
    "VACUUM": ["OPTIMIZE {}", "VACUUM {} RETAIN 0 HOURS"],
    "CLONE": ["CREATE OR REPLACE TABLE delta.`{copy}` SHALLOW CLONE {}"],
    "ADD COLUMN": ["ALTER TABLE {} ADD COLUMN (extra STRING)", "UPDATE {} SET extra = 'x'"],
}
#: The same that only the Spark engine bears.
BY_SPARK: dict[str, Sequence[str]] = {
    "deletion vectors": [
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "OPTIMIZE {}",
        "UPDATE {} SET pri = 1 WHERE utube = 'b'",
    ],
    "column mapping": [
        (
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
        ),
        "ALTER TABLE {} ADD COLUMN (extra STRING)",
    ],
}
#: Features that the native engine does not read or not write, with the property that switches each on.
REFUSED = {
    "deletionVectors": "('delta.enableDeletionVectors' = 'true')",
    "columnMapping": (
        "('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
        "'delta.minWriterVersion' = '5')"
    ),
    "rowTracking": "('delta.enableRowTracking' = 'true')",
    "inCommitTimestamp": "('delta.enableInCommitTimestamps' = 'true')",
    "typeWidening": "('delta.enableTypeWidening' = 'true')",
}


def run(spark: SparkSession, place: Path, statements: Sequence[str]) -> None:
    spark.conf.set(UNCHECKED, "false")
    try:
        for statement in statements:
            table = f"delta.`{place / 'hosts'}`"
            spark.sql(statement.replace("{}", table).format(copy=place / "copy")).collect()
    finally:
        spark.conf.unset(UNCHECKED)


def begun(queue: Queue) -> tuple[Tube, int]:
    """A tube with a task of each host, and one of them that is held."""
    tube = queue.create_tube("hosts", "utubettl", ttr=3_600)
    for number, host in enumerate(HOSTS):
        tube.put(number, utube=host)
    task = tube.take(timeout=0)
    assert task is not None
    return tube, task.task_id


def assert_goes_on(queue: Queue, tube: Tube, held: int) -> None:
    """Put, take and ack all that is there; each task is delivered, the held one by its ack."""
    tube.put(len(HOSTS), utube="later")
    assert [task.data for task in tube.take_many(1)] == [1]
    tube.ack(held)
    seen = [1]
    while tasks := tube.take_many(len(HOSTS)):
        seen += [task.data for task in tasks]
        tube.ack_many([task.task_id for task in tasks])
    assert sorted(seen) == [*range(1, len(HOSTS) + 1)]
    assert queue.statistics("hosts")["tasks"]["total"] == 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_native_queue_when_spark_changes_its_table_goes_on(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    with Queue(spark, str(tmp_path), engine="native") as queue:
        tube, held = begun(queue)
        run(spark, tmp_path, OPERATIONS[operation])
        assert_goes_on(queue, tube, held)
        if operation == "CLONE":
            copied = spark.read.format("delta").load(str(tmp_path / "copy"))
            assert copied.where("task_id IS NOT NULL").count() == len(HOSTS)


@pytest.mark.parametrize("operation", BY_SPARK)
def test_queue_on_spark_when_its_table_is_changed_goes_on(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    with Queue(spark, str(tmp_path), engine="spark") as queue:
        tube, held = begun(queue)
        run(spark, tmp_path, BY_SPARK[operation])
        assert_goes_on(queue, tube, held)


@pytest.mark.parametrize("operation", ["compact", "z_order", "vacuum"])
def test_native_queue_when_the_library_changes_its_table_goes_on(
    tmp_path: Path, operation: str
) -> None:
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube, held = begun(queue)
        table = DeltaTable(tmp_path / "hosts")
        if operation == "z_order":
            table.optimize.z_order(["task_id"])
        else:
            table.optimize.compact()
        if operation == "vacuum":
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert_goes_on(queue, tube, held)


@pytest.mark.parametrize("engine", ["native", "spark"])
def test_queue_when_its_table_is_restored_goes_on_from_there(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    with Queue(spark, str(tmp_path), engine=engine) as queue:
        tube = queue.create_tube("hosts", "fifottl", ttr=3_600)
        tube.put_many(["a", "b"])
        version = DeltaTable(tmp_path / "hosts").version()
        tube.put("later")
        task = tube.take(timeout=0)
        assert task is not None
        run(spark, tmp_path, [f"RESTORE {{}} TO VERSION AS OF {version}"])
        with pytest.raises(NotTakenError):
            tube.ack(task.task_id)
        tasks = tube.take_many(5)
        assert [task.data for task in tasks] == ["a", "b"]
        tube.ack_many([task.task_id for task in tasks])
        assert queue.statistics("hosts")["tasks"]["total"] == 0


@pytest.mark.parametrize("feature", REFUSED)
def test_native_queue_when_spark_switches_a_feature_on_names_it_and_spark_still_reads(
    spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    with Queue(spark, str(tmp_path), engine="native") as queue:
        tube, held = begun(queue)
        run(spark, tmp_path, [f"ALTER TABLE {{}} SET TBLPROPERTIES {REFUSED[feature]}"])
        with pytest.raises(StoreError, match=feature):
            tube.ack(held)
        with pytest.raises(StoreError, match=feature):
            tube.put(len(HOSTS))
    tasks = spark.read.format("delta").load(f"{tmp_path}/hosts").where("tube > 0")
    assert tasks.count() == len(HOSTS)
