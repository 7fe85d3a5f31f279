"""The page table of a crawl on Spark, beside the queue's own tables; see `parts.Pages`.

On local files a lock excludes other processes while it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from tubeq_spark.jobs.crawler.fetch import Outcome
from tubeq_spark.jobs.crawler.parts import PAGES, Exclusivity
from tubeq_spark.tables import OwnTable

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FETCH_COLUMNS", "Exclusivity", "PageTable", "overlapping"]

#: The columns of a fetch, as in `fetch.PAGE_SCHEMA`.
FETCH_COLUMNS = (
    "task_id BIGINT, url STRING, host STRING, depth INT, attempt INT, outcome STRING, "
    "status INT, content_type STRING, bytes BIGINT, truncated BOOLEAN, links ARRAY<STRING>, "
    "error STRING, started_at TIMESTAMP, ended_at TIMESTAMP"
)


class PageTable:
    """The pages of the crawl at a location."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Open the table, or create it empty.

        Args:
            spark: A session with Delta.
            location: The location of the queue: a path, a URI, or `catalog.schema`.
        """
        self._spark = spark
        self._table = OwnTable.beside(spark, location, PAGES)
        empty = spark.createDataFrame([], f"{FETCH_COLUMNS}, consumer STRING, batch STRING")
        # With Delta's default interval of checkpoints later batches would read a hundred commits.
        writer = empty.write.option("delta.checkpointInterval", "10")
        self._table.save(writer.format("delta").mode("ignore"))

    def append(self, fetches: DataFrame, *, consumer: str, batch: str) -> None:
        """Store a consumer's fetches of a batch in one commit, which runs the fetches once.

        An append conflicts only with a change of the table's definition, which no program makes.
        """
        rows = fetches.withColumns({"consumer": F.lit(consumer), "batch": F.lit(batch)})
        self._table.save(rows.write.format("delta").mode("append"))

    def fetches(self) -> DataFrame:
        """Every fetch, as of now."""
        if self._table.in_catalog:
            return self._spark.read.table(self._table.name)
        return self._spark.read.format("delta").load(self._table.text)

    def of_batch(self, batch: str) -> DataFrame:
        """The fetches of one batch. File statistics skip the files of other batches."""
        return self.fetches().where(F.col("batch") == F.lit(batch))

    def outcomes_of(self, batch: str) -> dict[str, int]:
        """The number of fetches of a batch by outcome."""
        counts = self.of_batch(batch).groupBy("outcome").count()
        return {row["outcome"]: row["count"] for row in counts.limit(len(Outcome)).collect()}

    def settled(self) -> DataFrame:
        """The fetches after which a URL needs no further fetch."""
        return self.fetches().where(~_is(Outcome.FAILED))

    def pages(self) -> DataFrame:
        """One row for each URL: the page, or else the last fetch."""
        last_word = Window.partitionBy("url").orderBy(
            _is(Outcome.FAILED), F.col("started_at").desc(), "batch", "task_id"
        )
        ranked = self.fetches().withColumn("rank", F.row_number().over(last_word))
        return ranked.where(F.col("rank") == 1).drop("rank")

    def fetched_count(self) -> int:
        """The number of pages."""
        fetched = self.settled().where(_is(Outcome.FETCHED))
        return int(fetched.agg(F.count_distinct("url")).collect()[0][0])

    def by_host(self, since: dt.datetime, limit: int = 50) -> list[dict[str, Any]]:
        """As of `Pages`."""
        fetched = _is(Outcome.FETCHED)
        hosts = self.fetches().groupBy("host")
        found = (
            hosts.agg(
                F.count_distinct(F.when(fetched, F.col("url"))).alias("pages"),
                F.sum(F.when(fetched, F.col("bytes")).otherwise(0)).alias("bytes"),
                F.count_if(_is(Outcome.REFUSED)).alias("refusals"),
                F.count_if(_is(Outcome.FAILED)).alias("failures"),
                F.count_if(F.col("started_at") >= F.lit(since)).alias("recent"),
            )
            .orderBy(F.desc("pages"), "host")
            .limit(limit)
        )
        return [row.asDict() for row in found.collect()]

    def exclusivity(self) -> Exclusivity:
        """Whether no host was ever fetched by two consumers at once."""
        fetches = self.fetches()
        [all_of_them] = fetches.agg(
            F.count("*").alias("fetches"), F.count_distinct("consumer").alias("consumers")
        ).collect()
        [wrong] = (
            overlapping(fetches)
            .agg(F.count_distinct("host").alias("hosts"), F.count("*").alias("overlaps"))
            .collect()
        )
        return Exclusivity(**all_of_them.asDict(), **wrong.asDict())


def overlapping(fetches: DataFrame) -> DataFrame:
    """The fetches that began while another consumer was fetching from the same host.

    If two began at the same moment, both are included. A fetch that began at the moment at which another ended is
    not. Moments of several executors can only be compared as far as their clocks agree.

    Args:
        fetches: Columns `host`, `consumer`, `started_at` and `ended_at`.

    Returns:
        One row for each fetch: `host`, `consumer`, `started_at`, and `others`, the number of running fetches of other
        consumers.
    """
    start = F.struct(F.col("started_at").alias("at"), F.lit(1).alias("change"))
    end = F.struct(F.col("ended_at").alias("at"), F.lit(-1).alias("change"))
    events = fetches.select("host", "consumer", F.inline(F.array(start, end)))

    def going_on(*of: str) -> Column:
        # Ends are sorted before starts of the same moment, and all starts of a moment count each other.
        window = Window.partitionBy(*of).orderBy("at", "change")
        so_far = window.rangeBetween(Window.unboundedPreceding, Window.currentRow)
        return F.sum("change").over(so_far)

    counted = events.withColumn("others", going_on("host") - going_on("host", "consumer"))
    begun = counted.where((F.col("change") == 1) & (F.col("others") > 0))
    return begun.select("host", "consumer", F.col("at").alias("started_at"), "others")


def _is(outcome: Outcome) -> Column:
    return F.col("outcome") == F.lit(outcome.value)
