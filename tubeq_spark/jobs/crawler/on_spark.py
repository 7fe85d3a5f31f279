"""A crawl whose tube and page table are DataFrames, and whose fetches run on the executors."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import functions as F

from tubeq_spark.jobs import crawler
from tubeq_spark.jobs.crawler.fetch import Outcome, fetcher
from tubeq_spark.jobs.crawler.frontier import Frontier, origins_of, urls_of
from tubeq_spark.jobs.crawler.tables import FETCH_COLUMNS, PageTable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession

    from tubeq_spark import Batch, Queue
    from tubeq_spark.jobs.crawler.parts import Look
    from tubeq_spark.jobs.crawler.settings import Settings
    from tubeq_spark.jobs.crawler.urls import Scope


class SparkStorage:
    """`parts.Storage` by Spark."""

    def __init__(self, spark: SparkSession, location: str, settings: Settings) -> None:
        """Open the page table, or create it."""
        self._spark, self._settings = spark, settings
        self.pages = PageTable(spark, location)
        # Executors cannot import modules beside the main program, so their code is sent with the task. Unlike
        # --py-files and artifacts this needs no settings of the session.
        register_pickle_by_value(crawler)  # type: ignore[no-untyped-call]

    def frontier(self, queue: Queue, adding: threading.Lock) -> SparkFrontier:
        """As of `parts.Storage`."""
        tube = Frontier(queue, self.pages, adding)
        return SparkFrontier(self._spark, tube, self.pages, self._settings, str(queue.session_uuid))

    def interrupt(self) -> None:
        """Cancel all jobs of the session, because Spark has tags only in the thread that has set them."""
        self._spark.interruptAll()


class SparkFrontier:
    """`parts.Frontier` by Spark."""

    def __init__(
        self,
        spark: SparkSession,
        tube: Frontier,
        pages: PageTable,
        settings: Settings,
        consumer: str,
    ) -> None:
        """Use a tube for a consumer."""
        self._spark, self._tube, self._pages = spark, tube, pages
        self._settings, self._consumer = settings, consumer

    def look(self) -> Look:
        """As `parts.Frontier`, by one query."""
        return self._tube.look()

    def take(self, count: int) -> SparkBatch | None:
        """As of `parts.Frontier`."""
        batch = self._tube.take(count)
        if not batch.count:
            return None
        return SparkBatch(batch, self._tube, self._pages, self._settings, self._consumer)

    def kick(self) -> int:
        """As of `parts.Frontier`."""
        return self._tube.kick()

    def add_seeds(self, urls: Sequence[str]) -> int:
        """As of `parts.Frontier`. Commits: 1 to the tube, or none."""
        rows = [(url, 0) for url in urls]
        return self._tube.add(self._spark.createDataFrame(rows, "url STRING, depth INT"))

    def origins(self) -> Iterable[str]:
        """As of `parts.Frontier`."""
        return origins_of(self._tube.seen())


class SparkBatch:
    """`parts.InHand` by Spark."""

    def __init__(
        self, batch: Batch, tube: Frontier, pages: PageTable, settings: Settings, consumer: str
    ) -> None:
        """Process a batch."""
        self._batch, self._tube, self._pages = batch, tube, pages
        self._settings, self._consumer = settings, consumer
        self._name = str(uuid.uuid4())
        self._leased = urls_of(batch.df, "task_id", F.col("attempts").alias("attempt"))
        self._had_stored_pages = False
        self.count = batch.count

    def __enter__(self) -> Self:
        self._batch.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._batch.__exit__(kind, error, trace)

    def fetch(self, scope: Scope, _given_up: Callable[[], bool]) -> dict[str, int]:
        """Fetch, by the only evaluation of the DataFrame, and store the batch in one commit."""
        stored = self._pages.settled().select("url")
        # Tasks without a URL, which other programs have put, must not count as duplicates of each other.
        apart = F.coalesce("url", F.col("task_id").cast("string"))
        leased = self._leased.withColumn("apart", apart)
        missing = leased.join(stored, "url", "left_anti").dropDuplicates(["apart"]).drop("apart")
        # The missing URLs are evaluated first: an append that reads its own table would conflict with other appends,
        # and all its fetches would be lost.
        spread = missing.localCheckpoint().repartition(self._settings.partitions)
        fetched = spread.mapInArrow(fetcher(scope, self._settings.limits), FETCH_COLUMNS)
        self._pages.append(fetched, consumer=self._consumer, batch=self._name)
        outcomes = self._pages.outcomes_of(self._name)
        self._had_stored_pages = self.count > sum(outcomes.values())
        return outcomes

    def put_links(self) -> None:
        """As of `parts.InHand`; everything after the fetch reads the table."""
        pages = self._pages.of_batch(self._name)
        if self._had_stored_pages:
            pages = self._pages.settled().join(self._leased.select("url"), "url", "left_semi")
        links = pages.select(F.explode("links").alias("url"), (F.col("depth") + 1).alias("depth"))
        nearest = links.groupBy("url").agg(F.min("depth").alias("depth"))
        self._tube.add(nearest, key=f"links of {self._name}")

    def release_failures(self, delay: float) -> Iterable[str]:
        """As of `parts.InHand`."""
        batch = self._pages.of_batch(self._name)
        failed = batch.where(F.col("outcome") == F.lit(Outcome.FAILED.value))
        error = F.coalesce("error", "outcome").alias("error")
        self._batch.release(failed.select("task_id", error), delay=delay)
        return origins_of(failed)

    def ack(self) -> None:
        """As of `parts.InHand`."""
        self._batch.ack()
