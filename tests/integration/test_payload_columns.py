"""The package reads the columns of a payload without Spark as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T

from tests.beside import beside_spark
from tubeq_spark import Queue
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.types import delta_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "n INT, big BIGINT NOT NULL COMMENT 'it''s big', f FLOAT, price DECIMAL(10, 2), day DATE, at TIMESTAMP, raw BINARY, "
    "tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, `inner` STRUCT<a: INT, b: ARRAY<STRUCT<at TIMESTAMP>>>"
)
DDLS = (
    SCHEMA,
    "a INTEGER, b LONG, c SHORT, d BYTE, e REAL, f DEC, g NUMERIC(5), h DECIMAL(5,0), i TIMESTAMP_LTZ",
    "a: int, b: struct<x int comment 'c', y: array<map<int, string>> not null>",
    "`a``b` INT, 1a STRING, date DATE\n, timestamp TIMESTAMP",
)


@pytest.mark.thorough
def test_columns_in_ddl_are_those_that_spark_reads(spark: SparkSession, location: str) -> None:
    for ddl in DDLS:
        kinds = T.StructType.fromDDL(ddl)
        assert delta_type(columns_of(ddl)) == kinds.jsonValue()
    with beside_spark(location) as queue:
        queue.create_tube("typed", "fifottl", schema=SCHEMA).put({"n": 1, "big": 2})
    with Queue(spark, location, engine="spark") as queue:
        task = queue["typed"].take(0)
        assert (task.data["n"], task.data["big"]) == (1, 2)
        queue["typed"].ack(task.task_id)
        queue["typed"].put({"n": 3, "big": 4})
        assert queue["typed"].take_df(1).df.select("n", "big").collect() == [(3, 4)]
        queue["typed"].release_all()
        queue["typed"].drop()
        queue.create_tube("typed", "fifottl", schema=SCHEMA).put({"n": 5, "big": 6})
    with beside_spark(location) as queue:
        task = queue["typed"].take(0)
        assert task.data["n"] == 5
