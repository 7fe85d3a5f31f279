"""`put_df` numbers the rows of a sorted frame in order, also when Spark moves rows between partitions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tubeq_spark import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.acceptance.support import NewTube
    from tubeq_spark import Tube

pytestmark = pytest.mark.frames

#: More than Spark's sample of a partition, by which a sort chooses its bounds.
ROWS = 6_000


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Numbers in no order, with a payload, in files."""
    path = str(tmp_path_factory.mktemp("source") / "numbers")
    number = ((F.col("id") * 7_919) % ROWS).alias("n")
    spark.range(0, ROWS, 1, 3).select(number).write.parquet(path)
    return spark.read.parquet(path).withColumn("data", F.col("n").cast("string"))


def in_order_of_ids(tube: Tube) -> list[int]:
    """The numbers that a tube has, by task id."""
    return [int(row["data"]) for row in tube.df().orderBy("task_id").select("data").collect()]


@contextmanager
def adaptive(spark: SparkSession, value: str) -> Iterator[None]:
    """Spark's adaptive execution, on or off."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


SHAPES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "orderBy": lambda df: df.orderBy("n"),
    "groupBy and orderBy": lambda df: (
        df.groupBy("n").agg(F.first("data").alias("data")).orderBy("n")
    ),
    "orderBy and coalesce": lambda df: df.orderBy("n").coalesce(1),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "adaptive_enabled"), [("orderBy", "false"), *((name, "true") for name in SHAPES)]
)
def test_put_df_of_a_sorted_frame_numbers_its_rows_in_that_order(
    spark: SparkSession, numbers: DataFrame, new_tube: NewTube, name: str, adaptive_enabled: str
) -> None:
    tube = new_tube("fifo")

    with adaptive(spark, adaptive_enabled):
        put = tube.put_df(SHAPES[name](numbers).select("data"))

    assert put.count == ROWS
    assert in_order_of_ids(tube) == list(range(ROWS))
    ids = tube.df().agg(F.min("task_id"), F.max("task_id")).collect()[0]
    assert tuple(ids) == (put.first_task_id, put.last_task_id)


@pytest.mark.thorough
def test_put_df_of_a_sorted_frame_when_it_is_repeated_or_there_is_no_room_adds_nothing(
    numbers: DataFrame, new_tube: NewTube
) -> None:
    tube = new_tube("limfifottl", capacity=ROWS, schema="n BIGINT")
    frame = numbers.select("n").orderBy(F.desc("n"))
    sink = tube.sink("numbers")

    for _ in range(2):
        sink(frame, 0)
    assert tube.put_df(frame, key="other").count == 0

    rows = tube.df().orderBy("task_id").select("data.n").collect()
    assert [row["n"] for row in rows] == list(reversed(range(ROWS)))


@pytest.mark.thorough
def test_put_df_of_a_sorted_frame_with_sub_queues_gives_each_its_order(
    numbers: DataFrame, new_tube: NewTube
) -> None:
    tube = new_tube("utube")
    frame = numbers.withColumn("utube", (F.col("n") % 3).cast("string")).orderBy("utube", "n")

    assert tube.put_df(frame.drop("n")).count == ROWS

    rows = tube.df().orderBy("task_id").select("utube", "data").collect()
    found = [(row["utube"], int(row["data"])) for row in rows]
    assert found == sorted((str(n % 3), n) for n in range(ROWS))
    assert [(t.utube, t.data) for t in tube.take_many(3)] == [("0", 0), ("1", 1), ("2", 2)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "count"),
    [
        (lambda df: df.where("n < 0").orderBy("n"), 0),
        (lambda df: df.limit(10), 10),
        (lambda df: df.where("n < 5"), 5),
        (lambda df: df.repartition(4), ROWS),
    ],
    ids=["none", "limit", "empty partitions", "shuffled"],
)
def test_put_df_of_a_frame_with_empty_partitions_puts_each_row_once(
    numbers: DataFrame, new_tube: NewTube, shape: Callable[[DataFrame], DataFrame], count: int
) -> None:
    tube = new_tube("fifo")

    put = tube.put_df(shape(numbers).select("data"))

    assert put.count == count
    found = in_order_of_ids(tube)
    assert len(found) == len(set(found)) == count


@pytest.mark.thorough
@pytest.mark.parametrize("is_sorted", [False, True])
def test_put_df_of_rows_drawn_anew_at_each_reading_is_refused_or_consistent(
    spark: SparkSession, new_tube: NewTube, *, is_sorted: bool
) -> None:
    tube = new_tube("fifo")
    drawn = spark.range(0, ROWS, 1, 3).where("reflect('java.lang.Math', 'random') < '0.5'")
    rows = drawn.selectExpr("CAST(id AS STRING) AS data")

    count, refusals = 0, []
    for _ in range(3):
        try:
            count += tube.put_df(rows.orderBy("data") if is_sorted else rows).count
        except StoreError as error:
            refusals.append(str(error))

    assert all("other rows when written than when counted" in text for text in refusals)
    found = tube.df().agg(F.count("*"), F.countDistinct("task_id")).collect()[0]
    assert tuple(found) == (count, count)
    if is_sorted:
        assert refusals == []
        assert count > ROWS


@pytest.mark.thorough
def test_put_df_when_the_frame_itself_fails_says_nothing_of_copies(
    numbers: DataFrame, fifo: Tube
) -> None:
    bad = numbers.orderBy("n").select(F.raise_error(F.lit("no such row")).alias("data"))

    with pytest.raises(PySparkException, match="no such row"):
        fifo.put_df(bad.select(F.col("data").cast("string").alias("data")))
