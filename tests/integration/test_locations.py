"""A queue on Spark works in a catalog schema, keeps typed payloads, and refuses a place that it cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import InvalidOptionError, Queue, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Tubes by their names: a schema, and a payload.
TYPED: dict[str, tuple[str, dict[str, object]]] = {
    "moments": ("at TIMESTAMP", {"at": None}),
    "comments": (
        "n INT NOT NULL COMMENT 'a number', inner STRUCT<m: INT>",
        {"n": 1, "inner": {"m": 2}},
    ),
}


@pytest.mark.thorough
def test_queue_in_a_catalog_schema_works_and_leaves_dropped_tables_empty(
    spark: SparkSession, schema: str
) -> None:
    with Queue(spark, schema) as queue:
        tube = queue.create_tube("crawl")
        put = tube.put({"n": 1})
        taken = tube.take(0)

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

    assert first.data == {"url": "http://x/", "depth": 3}
    assert rows == [{"url": "http://y/", "depth": 4}]


@pytest.mark.thorough
def test_open_when_the_session_parses_the_schema_in_its_own_way_keeps_the_tasks(
    spark: SparkSession, location: str
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    other.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    with Queue(spark, location) as queue:
        put = {
            name: queue.create_tube(name, schema=schema).put(data).task_id
            for name, (schema, data) in TYPED.items()
        }

    with Queue(other, location) as queue:
        assert [swept.error for swept in queue.sweep().tubes.values()] == [None] * len(TYPED)
    with Queue(spark, location) as queue:
        found = {name: queue[name].peek(task_id).data for name, task_id in put.items()}
    assert found == {name: data for name, (_, data) in TYPED.items()}
