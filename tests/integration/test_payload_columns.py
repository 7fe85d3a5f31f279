"""Without Spark the columns of a payload are read as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T

from tests.beside import beside_spark
from tests.native.test_typed_tubes import SCHEMA
from tubeq_spark import InvalidOptionError, Queue
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.types import delta_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        assert task is not None
        assert (task.data["n"], task.data["big"]) == (1, 2)
        queue["typed"].ack(task.task_id)
        queue["typed"].put({"n": 3, "big": 4})
        assert queue["typed"].take_df(1).df.select("n", "big").collect() == [(3, 4)]
        queue["typed"].release_all()
        queue["typed"].drop()
        queue.create_tube("typed", "fifottl", schema=SCHEMA).put({"n": 5, "big": 6})
    with beside_spark(location) as queue:
        task = queue["typed"].take(0)
        assert task is not None
        assert task.data["n"] == 5


@pytest.mark.thorough
@pytest.mark.parametrize("type_name", ["limfifottl", "utubettl"])
def test_tube_when_its_payload_must_have_values_works_and_refuses_rows_without(
    spark: SparkSession, location: str, type_name: str
) -> None:
    """What is no task has no payload: the sequence of a capacity, gates, tombstones."""
    schema = (
        "n INT NOT NULL, inner STRUCT<a: STRING NOT NULL>, parts ARRAY<STRUCT<b: INT NOT NULL>>"
    )
    options = {"capacity": 9} if type_name == "limfifottl" else {}
    bad = (
        "SELECT CAST(NULL AS INT) AS n, NULL AS inner, NULL AS parts",
        "SELECT 1 AS n, named_struct('a', CAST(NULL AS STRING)) AS inner, NULL AS parts",
        "SELECT 1 AS n, NULL AS inner, array(named_struct('b', CAST(NULL AS INT))) AS parts",
    )
    frames = [
        spark.sql(
            f"SELECT n, CAST(inner AS STRUCT<a: STRING>) AS inner, "
            f"CAST(parts AS ARRAY<STRUCT<b: INT>>) AS parts FROM ({query})"
        )
        for query in bad
    ]
    with Queue(spark, location, engine="spark") as queue:
        tube = queue.create_tube("needs", type_name, schema=schema, **options)
        for frame in frames:
            with pytest.raises(InvalidOptionError, match="NOT NULL"):
                tube.put_df(frame)
        for data in ({}, {"n": None}, {"n": 1, "inner": {}}, {"n": 1, "parts": [{"b": None}]}):
            with pytest.raises(InvalidOptionError, match="data"):
                tube.put(data)
        good = spark.sql(
            "SELECT 1 AS n, CAST(NULL AS STRUCT<a: STRING>) AS inner, "
            "array(CAST(NULL AS STRUCT<b: INT>)) AS parts"
        )
        assert tube.put_df(good).count == 1
        tube.put({"n": 2, "inner": {"a": "x"}, "parts": [{"b": 1}]})
        first, second = tube.take_many(1), tube.take_many(1)
        taken = [task.data["n"] for task in (*first, *second)]
        assert taken == ([1, 2] if type_name == "limfifottl" else [1])
        tube.release_all()
        tube.drop()
        queue.create_tube("needs", type_name, schema=schema, **options).put({"n": 3})
        queue["needs"].drop()
