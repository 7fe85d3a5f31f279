"""Where a queue can live, and what its tables look like there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tubeq_spark import InvalidOptionError, Queue, StoreError, TubeNotFoundError
from tubeq_spark.storage.tables.schema import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.thorough
def test_queue_in_a_catalog_schema_works_and_leaves_dropped_tables_empty(
    spark: SparkSession, schema: str
) -> None:
    with Queue(spark, schema) as queue:
        tube = queue.create_tube("crawl")
        put = tube.put({"n": 1})
        taken = tube.take(0)

        assert put is not None
        assert taken is not None
        assert taken.task_id == put.task_id
        tube.ack(taken.task_id)
        assert spark.table(f"{schema}.crawl").count() == 0
        tube.drop()
        assert queue.tubes() == []
        assert spark.table(f"{schema}.crawl").where("segment <> 0").count() == 0


@pytest.mark.thorough
def test_tube_in_a_catalog_schema_has_a_view_of_its_taken_utubes(
    spark: SparkSession, schema: str
) -> None:
    with Queue(spark, schema) as queue:
        queue.create_tube("mail", "fifo")
        tube = queue.create_tube("Crawl", "utube")
        tube.put({"n": 1}, utube="a")
        tube.put({"n": 2}, utube="b")
        taken = tube.take(0)

        assert taken is not None
        view = spark.table(f"{schema}.Crawl_taken_utubes")
        assert [tuple(row) for row in view.select("utube", "taken").collect()] == [("a", 1)]
        assert [row["utube"] for row in tube.taken_utubes().to_pylist()] == ["a"]
        tube.ack(taken.task_id)
        assert view.count() == 0
        assert not spark.catalog.tableExists(f"{schema}.mail_taken_utubes")


def test_queue_when_the_schema_does_not_exist_is_refused_with_one_sentence(
    spark: SparkSession,
) -> None:
    with pytest.raises(StoreError, match=r"spark_catalog\.nowhere"):
        Queue(spark, "spark_catalog.nowhere")


@pytest.mark.thorough
def test_tube_when_something_else_is_in_its_place_is_refused_and_left_alone(
    spark: SparkSession, location: str
) -> None:
    other = Path(location, "mail")
    with Queue(spark, location) as queue:
        other.mkdir()
        other.joinpath("letter.txt").write_text("mine")

        with pytest.raises(StoreError, match="something else in its place"):
            queue.create_tube("mail")

    assert [path.name for path in other.iterdir()] == ["letter.txt"]


@pytest.mark.thorough
def test_queue_when_its_path_has_odd_characters_works(spark: SparkSession, location: str) -> None:
    name = "b`t per%cent qu'te# and blank"
    with Queue(spark, f"{location}/{name}") as queue:
        tube = queue.create_tube("t")
        tube.put(1)
        task = tube.take(0)

    assert task is not None
    assert task.data == 1
    assert Path(location, name, "_tubeq_locks", "t.lock").exists()


@pytest.mark.thorough
def test_queue_by_path_and_by_uri_when_the_same_place_shares_tubes(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as one, Queue(spark, f"file://{location}") as other:
        one.create_tube("t").put("x")

        task = other.tube("t").take(0)

        assert task is not None
        assert task.data == "x"


@pytest.mark.parametrize("text", ["", "   ", None, 7, "a\nb"])
def test_queue_when_the_location_is_none_is_refused(spark: SparkSession, text: object) -> None:
    with pytest.raises(InvalidOptionError, match="location"):
        Queue(spark, text)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_queue_when_the_format_is_another_is_refused(spark: SparkSession, location: str) -> None:
    Queue(spark, location).close()
    spark.sql(f"ALTER TABLE delta.`{location}/_tubeq_tubes` SET TBLPROPERTIES ('{FORMAT}' = '0')")

    with pytest.raises(StoreError, match="make a new queue at another place"):
        Queue(spark, location, engine="spark")


@pytest.mark.thorough
def test_tube_table_when_created_has_the_columns_and_a_short_log(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue:
        queue.create_tube("t", "fifottl", change_feed=True)

    table = spark.read.format("delta").load(f"{location}/t")
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{location}/t`").collect()[0]
    assert {"state", "pri", "next_event", "segment", "task_id", "data"} <= set(table.columns)
    assert detail["partitionColumns"] == ["segment"]
    assert detail["properties"]["delta.enableChangeDataFeed"] == "true"
    assert detail["properties"]["delta.deletedFileRetentionDuration"] == "interval 2 hours"


def test_typed_tube_when_put_and_taken_keeps_types_and_refuses_others(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue:
        tube = queue.create_tube("t", schema="url STRING, depth INT")
        tube.put({"url": "http://x/", "depth": 3})
        frame = spark.createDataFrame([("http://y/", 4)], "url STRING, depth INT")
        tube.put_df(frame)
        with pytest.raises(InvalidOptionError, match="data"):
            tube.put({"url": "http://x/", "deep": 3})
        with pytest.raises(InvalidOptionError, match="data"):
            tube.put({"url": 5, "depth": "three"})

        first = tube.take(0)
        with tube.take_df(5) as batch:
            rows = [row.asDict() for row in batch.df.select("url", "depth").collect()]

    assert first is not None
    assert first.data == {"url": "http://x/", "depth": 3}
    assert rows == [{"url": "http://y/", "depth": 4}]


@pytest.mark.thorough
def test_typed_tube_takes_arrays_whatever_their_type_says_of_nulls(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue:
        tube = queue.create_tube("t", schema="tags ARRAY<STRING>, inner STRUCT<n: INT>")
        inner = F.struct(F.lit(1).alias("n"))
        tube.put_df(spark.range(1).select(F.array(F.lit("a")).alias("tags"), inner.alias("inner")))

        task = tube.take(0)

    assert task is not None
    assert task.data == {"tags": ["a"], "inner": {"n": 1}}


@pytest.mark.thorough
def test_handle_of_a_dropped_tube_when_another_has_its_name_touches_nothing(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue, Queue(spark, location) as other:
        stale = other.create_tube("t")
        queue.tube("t").drop()
        fresh = queue.create_tube("t")
        fresh.put("new")

        with pytest.raises(TubeNotFoundError):
            stale.put("old")
        with pytest.raises(TubeNotFoundError):
            stale.take(0)

        task = fresh.take(0)
        assert task is not None
        assert task.data == "new"
        assert fresh.take(0) is None
