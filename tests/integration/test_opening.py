"""Opening a tube that is there changes nothing in it, whatever the session is like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("at TIMESTAMP", {"at": None}),
        ("n INT NOT NULL COMMENT 'a number', inner STRUCT<m: INT>", {"n": 1, "inner": {"m": 2}}),
        ("code CHAR(3), name VARCHAR(5)", {"code": "abc", "name": "de"}),
    ],
)
def test_open_when_the_session_parses_the_schema_in_its_own_way_keeps_the_tasks(
    spark: SparkSession, location: str, schema: str, data: dict[str, object]
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    other.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    with Queue(spark, location) as queue:
        task = queue.create_tube("typed", schema=schema).put(data)
    assert task is not None

    with Queue(other, location) as queue:
        queue.sweep()
    with Queue(spark, location) as queue:
        assert queue["typed"].peek(task.task_id).data == data


def test_create_tube_when_a_dropped_one_had_another_payload_has_its_own(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue:
        first = queue.create_tube("reused", schema="n INT")
        first.put({"n": 1})
        first.drop()
        second = queue.create_tube("reused")
        task = second.put(["any", "JSON"])
        assert task is not None
        assert second.peek(task.task_id).data == ["any", "JSON"]
        assert second.df().count() == 1
