"""put_df, take_df and Batch.ack as the benchmark calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from tubeq_spark import Batch, Tube

__all__ = ["QueueFrames", "latest_version", "payload_column"]


class QueueFrames:
    """put_df, take_df, Batch.ack."""

    def __init__(
        self, spark: SparkSession, tube: Tube, batch: int, version: Callable[[], int]
    ) -> None:
        """Measure a tube.

        Args:
            spark: The session.
            tube: An empty tube.
            batch: Tasks in a batch.
            version: Tells the latest version of its table.
        """
        self._spark = spark
        self._tube = tube
        self._size = batch
        self.version = version
        self._df: DataFrame | None = None
        self._batch: Batch | None = None

    def prepare(self) -> None:
        """Make the DataFrame, which is evaluated by the put."""
        self._df = self._spark.range(self._size).select(payload_column("id").alias("data"))

    def put(self) -> int:
        """Add a batch."""
        return 0 if self._df is None else self._tube.put_df(self._df).count

    def take(self) -> int:
        """Take it."""
        self._batch = self._tube.take_df(self._size)
        return self._batch.count

    def ack(self) -> int:
        """Remove what was taken."""
        return 0 if self._batch is None else self._batch.ack()


def payload_column(number: str) -> Column:
    """The payload of `subjects` as JSON text, in Spark."""
    url = F.concat(F.lit("http://example.org/page/"), F.col(number))
    return F.concat(F.lit('{"url":"'), url, F.lit('","depth":3}'))


def latest_version(spark: SparkSession, table: str) -> int:
    """The latest version of a Delta table."""
    return int(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])
