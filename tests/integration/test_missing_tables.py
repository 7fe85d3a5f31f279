"""A verb on Spark tells apart whether the table of its tube is missing, or a table of the program."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, TubeNotFoundError, TubeqError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def gone(spark: SparkSession, path: Path, column: str) -> DataFrame:
    """A frame over files that are deleted before anybody reads them."""
    spark.sql(f"SELECT {column}").write.parquet(str(path))
    frame = spark.read.parquet(str(path))
    shutil.rmtree(path)
    return frame


@pytest.mark.thorough
def test_verb_when_files_of_the_program_are_gone_raises_the_error_that_names_it(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    with Queue(spark, location) as queue:
        tube = queue.create_tube("t")
        tube.put_many([1, 2])
        batch = tube.take_df(2)

        rows = gone(spark, tmp_path / "my_rows", "'1' AS data")
        ids = gone(spark, tmp_path / "my_ids", "1L AS task_id")

        with pytest.raises(Exception, match="my_rows") as put:
            tube.put_df(rows)
        with pytest.raises(Exception, match="my_ids") as acked:
            batch.ack(ids)

        assert not isinstance(put.value, TubeqError)
        assert not isinstance(acked.value, TubeqError)

        assert batch.ack() == 2
        assert tube.put(3).data == 3


@pytest.mark.thorough
def test_verb_when_the_table_of_the_tube_is_gone_says_that_it_was_dropped(
    spark: SparkSession, location: str
) -> None:
    queue = Queue(spark, location)
    tube = queue.create_tube("t")
    task_id = tube.put(1).task_id
    queue._context.session.stop()
    shutil.rmtree(f"{location}/t")

    with pytest.raises(TubeNotFoundError, match="dropped"):
        tube.peek(task_id)
