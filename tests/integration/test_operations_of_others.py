"""A queue loses no task when Spark statements of other programs change the table of its tube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue

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


@pytest.mark.parametrize(
    ("engine", "operation"),
    [*(("native", name) for name in OPERATIONS), *(("spark", name) for name in BY_SPARK)],
)
def test_queue_when_spark_changes_its_table_goes_on(
    spark: SparkSession, tmp_path: Path, engine: str, operation: str
) -> None:
    with Queue(spark, str(tmp_path), engine=engine) as queue:
        tube, held = begun(queue)
        run(spark, tmp_path, (OPERATIONS | BY_SPARK)[operation])
        assert_goes_on(queue, tube, held)
        if operation == "CLONE":
            copied = spark.read.format("delta").load(str(tmp_path / "copy"))
            assert copied.where("tube > 0").count() == len(HOSTS)
