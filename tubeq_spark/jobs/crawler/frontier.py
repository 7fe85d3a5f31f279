"""The URLs to visit, on Spark: the tube as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tubeq_spark import TaskState
from tubeq_spark.jobs.crawler.parts import Look, tube_of

if TYPE_CHECKING:
    import threading

    from pyspark.sql import Column, DataFrame

    from tubeq_spark import Batch, Queue
    from tubeq_spark.jobs.crawler.tables import PageTable

#: The most hosts of a crawl. With more hosts another design would be better, without a filter of links by host.
HOSTS_LIMIT = 10_000


_STATES = {state.name.lower(): state for state in TaskState if state is not TaskState.DONE}


class Frontier:
    """The tube as one consumer sees it."""

    def __init__(self, queue: Queue, pages: PageTable, adding: threading.Lock) -> None:
        """Open the tube, or create it.

        Args:
            queue: The consumer's own session.
            pages: The page table.
            adding: A lock that all threads of this process hold while they add URLs.

        Raises:
            TubeExistsError: A tube of another type has the name.
        """
        self._tube = tube_of(queue)
        self._pages, self._adding = pages, adding

    def look(self) -> Look:
        """Read the state of the crawl, in one query."""
        counts = [
            F.count_if(F.col("state") == F.lit(state.value)).alias(name)
            for name, state in _STATES.items()
        ]
        ready = F.col("state") == F.lit(TaskState.READY.value)
        # The order of a take: hosts by their first tasks.
        head = F.min(F.when(ready, F.struct("pri", "task_id"))).alias("head")
        hosts = self._tube.df().groupBy("utube").agg(*counts, head)
        free_head = F.when(F.col("taken") == 0, F.col("head"))
        [row] = hosts.agg(
            *[F.sum(name).alias(name) for name in _STATES],
            F.min_by("ready", free_head).alias("next"),
        ).collect()
        return Look({name: row[name] or 0 for name in _STATES}, row["next"] or 0)

    def take(self, count: int) -> Batch:
        """Take up to `count` tasks, all of one host if its next tasks are as many."""
        return self._tube.take_df(count, per_utube=count)

    def kick(self) -> int:
        """Give all buried tasks another `MAX_ATTEMPTS` tries; return their number."""
        return self._tube.kick(None)

    def add(self, urls: DataFrame, key: str | None = None) -> int:
        """Queue those of some URLs that were never seen, each once; return their number.

        Two consumers may find the same link at the same moment. So only one at a time searches for unseen URLs
        and queues them. The next one sees them in the tube, or in the page table, because a page is stored before its
        task is acked. Crawlers in several processes can queue a URL twice, but both tasks have the same host. The
        consumer that takes the second task finds the stored page, and does not fetch it again.

        Args:
            urls: The columns `url` and `depth`, without duplicate URLs.
            key: The identity of this put.

        Commits: 1 to the tube, or none.
        """
        data = F.to_json(F.struct("url", "depth")).alias("data")
        with self._adding:
            # The unseen URLs are evaluated first, because a put that reads the tube would conflict with every take.
            unseen = urls.join(self.seen(), "url", "left_anti").localCheckpoint()
            return self._tube.put_df(unseen.select(data, host_of_url()), key=key).count

    def seen(self) -> DataFrame:
        """Every URL that was ever queued and not deleted."""
        queued = urls_of(self._tube.df()).select("url")
        return queued.unionByName(self._pages.fetches().select("url"))


def origins_of(urls: DataFrame) -> list[str]:
    """The distinct origins (scheme and host) of URLs."""
    origin = F.regexp_extract("url", "^https?://[^/?]+", 0).alias("origin")
    rows = urls.select(origin).distinct().limit(HOSTS_LIMIT).collect()
    return [row["origin"] for row in rows if row["origin"]]


def urls_of(tasks: DataFrame, *more: Column | str) -> DataFrame:
    """The `url` and `depth` of tasks, and more of their columns."""
    payload = F.from_json("data", "url STRING, depth INT")
    depth = F.coalesce(payload["depth"], F.lit(0)).alias("depth")
    return tasks.select(*more, payload["url"].alias("url"), depth)


def host_of_url() -> Column:
    """`urls.host_of` of the normalised URLs in the column `url`, as the column `utube`."""
    return F.regexp_extract("url", "^https?://([^/?]+)", 1).alias("utube")
