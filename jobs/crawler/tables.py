"""The Delta table of what was fetched: `_crawl_pages`, beside the queue's own tables.

One row is one fetch, appended with all others of its batch in one commit and never changed. A URL
that was fetched, or refused for good, is fetched no more; so it has one such row, after however
many rows of failed attempts. Two crawlers that shared a location and both held a task, because the
lease of one ran out in the middle, could leave two: `pages` shows one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from crawler.fetch import Outcome

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession

__all__ = ["FETCH_COLUMNS", "PageTable"]

NAME = "_crawl_pages"

#: What a fetch returns, as `fetch.PAGE_SCHEMA`.
FETCH_COLUMNS = (
    "task_id BIGINT, url STRING, host STRING, depth INT, attempt INT, outcome STRING, "
    "status INT, content_type STRING, bytes BIGINT, truncated BOOLEAN, links ARRAY<STRING>, "
    "error STRING, seconds DOUBLE, fetched_at TIMESTAMP"
)


class PageTable:
    """The pages of the crawl at a location."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Open the table, or create it empty.

        Args:
            spark: A session with Delta.
            location: The queue's: a path, a URI, or `catalog.schema`.
        """
        self._spark = spark
        self._in_catalog = "." in location and "/" not in location and ":" not in location
        if self._in_catalog:
            self._name = ".".join(f"`{part}`" for part in [*location.split("."), NAME])
        else:
            self._name = f"{location.rstrip('/')}/{NAME}"
        empty = spark.createDataFrame([], f"{FETCH_COLUMNS}, batch STRING")
        # Checkpoints at Delta's own pace would make later batches read a hundred commits.
        self._write(empty.write.option("delta.checkpointInterval", "10"), "ignore")

    def append(self, fetches: DataFrame, batch: str) -> None:
        """Store the fetches of a batch, in one commit; runs the fetching, once."""
        rows = fetches.withColumn("batch", F.lit(batch))
        self._write(rows.write, "append")

    def _write(self, writer: DataFrameWriter, mode: str) -> None:
        writer = writer.format("delta").mode(mode)
        if self._in_catalog:
            writer.saveAsTable(self._name)
        else:
            writer.save(self._name)

    def fetches(self) -> DataFrame:
        """Every fetch, as of now."""
        if self._in_catalog:
            return self._spark.read.table(self._name)
        return self._spark.read.format("delta").load(self._name)

    def of_batch(self, batch: str) -> DataFrame:
        """The fetches of one batch; the files of others are skipped by their statistics."""
        return self.fetches().where(F.col("batch") == F.lit(batch))

    def settled(self) -> DataFrame:
        """The fetches after which a URL is fetched no more."""
        return self.fetches().where(~_is(Outcome.FAILED))

    def pages(self) -> DataFrame:
        """One row a URL: the page, or else the last that was seen of it."""
        last_word = Window.partitionBy("url").orderBy(
            _is(Outcome.FAILED), F.col("fetched_at").desc(), "batch", "task_id"
        )
        ranked = self.fetches().withColumn("rank", F.row_number().over(last_word))
        return ranked.where(F.col("rank") == 1).drop("rank")

    def fetched_count(self) -> int:
        """How many pages there are."""
        fetched = self.settled().where(_is(Outcome.FETCHED))
        return int(fetched.agg(F.count_distinct("url")).collect()[0][0])

    def by_host(self, since: dt.datetime, limit: int = 50) -> DataFrame:
        """The hosts with most pages: `host, pages, bytes, refusals, failures, recent`.

        Args:
            since: From when a fetch is recent.
            limit: How many hosts.
        """
        fetched = _is(Outcome.FETCHED)
        hosts = self.fetches().groupBy("host")
        return (
            hosts.agg(
                F.count_distinct(F.when(fetched, F.col("url"))).alias("pages"),
                F.sum(F.when(fetched, F.col("bytes")).otherwise(0)).alias("bytes"),
                F.count_if(_is(Outcome.REFUSED)).alias("refusals"),
                F.count_if(_is(Outcome.FAILED)).alias("failures"),
                F.count_if(F.col("fetched_at") >= F.lit(since)).alias("recent"),
            )
            .orderBy(F.desc("pages"), "host")
            .limit(limit)
        )


def _is(outcome: Outcome) -> Column:
    return F.col("outcome") == F.lit(outcome.value)
