"""The verbs of a tube as the benchmark calls them; `floor` has the bare statements beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from tubeq_spark import Batch, Task, Tube

__all__ = ["QueueFrames", "QueueMany", "Subject", "latest_version", "payload", "payload_column"]


class Subject(Protocol):
    """Something whose put, take and ack are measured; each returns how many tasks it was for."""

    def prepare(self) -> None:
        """Make what the next put is given; not measured."""
        ...

    def put(self) -> int:
        """Add a batch."""
        ...

    def take(self) -> int:
        """Take it."""
        ...

    def ack(self) -> int:
        """Remove what was taken."""
        ...

    def version(self) -> int:
        """The latest version of the table."""
        ...


class QueueMany:
    """put_many, take_many, ack_many."""

    def __init__(self, spark: SparkSession, tube: Tube, table: str, batch: int) -> None:
        """Measure a tube.

        Args:
            spark: The session.
            tube: An empty tube.
            table: SQL name of its table.
            batch: Tasks in a batch.
        """
        self._spark = spark
        self._tube = tube
        self._table = table
        self._batch = batch
        self._items: list[Any] = []
        self._taken: Sequence[Task] = ()

    def prepare(self) -> None:
        """Make the payloads."""
        self._items = [payload(number) for number in range(self._batch)]

    def put(self) -> int:
        """Add a batch."""
        return len(self._tube.put_many(self._items))

    def take(self) -> int:
        """Take it."""
        self._taken = self._tube.take_many(self._batch)
        return len(self._taken)

    def ack(self) -> int:
        """Remove what was taken."""
        return len(self._tube.ack_many([task.task_id for task in self._taken]))

    def version(self) -> int:
        """The latest version of the tube's table."""
        return latest_version(self._spark, self._table)


class QueueFrames:
    """put_df, take_df, Batch.ack."""

    def __init__(self, spark: SparkSession, tube: Tube, table: str, batch: int) -> None:
        """Measure a tube; arguments as of `QueueMany`."""
        self._spark = spark
        self._tube = tube
        self._table = table
        self._size = batch
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

    def version(self) -> int:
        """The latest version of the tube's table."""
        return latest_version(self._spark, self._table)


def payload(number: int) -> dict[str, Any]:
    """What a task carries."""
    return {"url": f"http://example.org/page/{number}", "depth": 3}


def payload_column(number: str) -> Column:
    """`payload` as JSON text, in Spark."""
    url = F.concat(F.lit("http://example.org/page/"), F.col(number))
    return F.concat(F.lit('{"url":"'), url, F.lit('","depth":3}'))


def latest_version(spark: SparkSession, table: str) -> int:
    """The latest version of a Delta table."""
    return int(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])
