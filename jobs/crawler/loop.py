"""The crawl: take a batch, fetch it, store it, queue what it links to, give it back.

The order of the commits is what makes the crawl safe to kill at any moment:

1. `take_df` claims a batch. Its URLs whose pages are stored already are not fetched again.
2. The others are fetched on the executors while their rows are appended to the page table: one
   commit for the batch, and the only evaluation of the DataFrame that fetches. Everything
   after it reads the table.
3. Unseen links go into the tube by one keyed `put_df`. Unseen is what neither the tube nor the
   page table holds: there is no third table of seen URLs that could disagree with them.
4. Failures are released with a delay; the tube buries them after `MAX_ATTEMPTS`.
5. The rest is acked.

A crash after 1 or during 2 leaves claimed tasks: once the lease of the dead session has run out
they are taken again, and fetched as if for the first time (some servers were asked twice).
After 2 the pages are stored but their links are not queued: the tasks come back, are not fetched
again, and step 3 takes the links from the stored rows. After 3 the same, and it finds no unseen
links. After 4 the failures wait as they should; the others come back and are acked unfetched.
So nothing is lost, and a page is stored once. A task that a crash interrupted has used up one of
its attempts, though: that is how the tube counts.

Steps 1 and 3 read the page table and the tube whole, if only the URLs: for some millions of pages.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import crawler
from crawler.fetch import Limits, Outcome, fetcher, load_robots
from crawler.tables import FETCH_COLUMNS, PageTable
from crawler.urls import Scope, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from urllib.robotparser import RobotFileParser

    from tubeq_spark import Batch, PutResult, Queue

__all__ = ["MAX_ATTEMPTS", "TUBE", "Crawler", "Ending", "Progress", "Settings", "Watcher"]

TUBE = "crawl"
MAX_ATTEMPTS = 3
#: A crawl of more hosts than this is one for another design: its links would need no host filter.
HOSTS_LIMIT = 10_000
#: Seconds that a take waits for tasks; a request to stop is seen as often.
_WAIT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to crawl.

    Attributes:
        max_pages: How many pages the location may have in the end; `None` is unlimited.
        max_depth: How many links away from the seeds it goes; `None` is unlimited.
        batch_size: Tasks in a batch, >= 1; commits are per batch, so fewer and larger are faster.
        partitions: Parts of a batch that are fetched at the same time, >= 1.
        retry_delay: Seconds before a failure is tried again, >= 0.
        agent: The name by which the crawler introduces itself.
        limits: What one fetch may cost.
    """

    max_pages: int | None = None
    max_depth: int | None = None
    batch_size: int = 400
    partitions: int = 4
    retry_delay: float = 30.0
    agent: str = "tubeq-crawl/1"
    limits: Limits = field(default_factory=Limits)


class Ending(StrEnum):
    """Why a crawl ended."""

    FINISHED = "finished"
    LIMIT = "limit"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Progress:
    """Where a crawl stands: pages in all, failed fetches of this run, tasks by state."""

    pages: int
    failures: int
    tasks: Mapping[str, int]


class Watcher(Protocol):
    """Is told what the crawl does."""

    def step(self, name: str) -> None:
        """It now does `name`."""

    def progress(self, progress: Progress) -> None:
        """It has done a batch."""


class Crawler:
    """A crawl at a location; the same one goes on whenever it is made for that location."""

    def __init__(
        self,
        spark: SparkSession,
        queue: Queue,
        settings: Settings,
        watcher: Watcher,
        stopping: Callable[[], bool],
    ) -> None:
        """Open the crawl's tube and page table, or create them.

        Args:
            spark: A session with Delta.
            queue: Where the tasks are; the pages lie beside them.
            settings: How to crawl.
            watcher: Is told of each step.
            stopping: Asked between batches: whether to stop.
        """
        self._spark, self._queue, self._settings = spark, queue, settings
        self._watcher, self._stopping = watcher, stopping
        self.pages = PageTable(spark, queue.location)
        self._tube = queue.create_tube(
            TUBE, "fifottl", if_not_exists=True, max_attempts=MAX_ATTEMPTS
        )
        self._origins: dict[str, str] = {}
        self._robots: dict[str, RobotFileParser | None] = {}
        self._failures = 0
        # Executors cannot import what lies beside the main program; so the code that they run
        # travels with the task. Unlike --py-files and artifacts this needs nothing of the session.
        register_pickle_by_value(crawler)  # type: ignore[no-untyped-call]

    def add_seeds(self, urls: Sequence[str]) -> int:
        """Queue normalised URLs that were never seen here.

        Returns:
            How many.

        Commits: 1 to the tube, or none.
        """
        seeds = self._spark.createDataFrame([(url, 0) for url in urls], "url STRING, depth INT")
        return self._put_unseen(seeds, key=None).count

    def kick(self) -> int:
        """Give everything that was buried another `MAX_ATTEMPTS` tries; return how many."""
        buried = self._queue.statistics(TUBE)["tasks"]["buried"]
        return self._tube.kick(buried)

    def run(self) -> Ending:
        """Crawl until nothing is left, the limit is reached, or it shall stop."""
        self._learn_origins(self._seen())
        stored = self.pages.fetched_count()
        tasks = self._report(stored)
        while tasks["ready"] + tasks["delayed"] + tasks["taken"]:
            room = self._room(stored)
            if room < 1:
                return Ending.LIMIT
            if self._stopping():
                return Ending.STOPPED
            stored += self._crawl_batch(room)
            tasks = self._report(stored)
        return Ending.FINISHED

    def _room(self, stored: int) -> int:
        settings = self._settings
        if settings.max_pages is None:
            return settings.batch_size
        return min(settings.batch_size, settings.max_pages - stored)

    def _report(self, stored: int) -> Mapping[str, int]:
        tasks: Mapping[str, int] = self._queue.statistics(TUBE)["tasks"]
        self._watcher.progress(Progress(stored, self._failures, tasks))
        return tasks

    def _crawl_batch(self, room: int) -> int:
        """Do the steps of the module's docstring once; return how many pages that made."""
        self._watcher.step("taking")
        with self._tube.take_df(room, timeout=_WAIT_S) as batch:
            if not batch.count:
                return 0
            name = str(uuid.uuid4())
            claimed = _urls_of(batch.df, "task_id", F.col("attempts").alias("attempt"))
            self._watcher.step(f"fetching {batch.count}")
            self._fetch(claimed, name, self._scope())
            outcomes = self._outcomes(name)
            self._watcher.step("linking")
            unfetched = batch.count - sum(outcomes.values())
            self._put_links(claimed, name, had_stored_pages=unfetched > 0)
            self._watcher.step("acking")
            if outcomes.get(Outcome.FAILED):
                self._release_failures(batch, name)
            batch.ack()
        self._failures += outcomes.get(Outcome.FAILED, 0)
        return outcomes.get(Outcome.FETCHED, 0)

    def _fetch(self, claimed: DataFrame, name: str, scope: Scope) -> None:
        """Step 2."""
        stored = self.pages.settled().select("url")
        missing = claimed.join(stored, "url", "left_anti").dropDuplicates(["url"])
        fetch = fetcher(scope, self._settings.limits)
        spread = missing.repartition(self._settings.partitions)
        self.pages.append(spread.mapInArrow(fetch, FETCH_COLUMNS), name)

    def _outcomes(self, name: str) -> dict[str, int]:
        counts = self.pages.of_batch(name).groupBy("outcome").count()
        return {row["outcome"]: row["count"] for row in counts.limit(len(Outcome)).collect()}

    def _put_links(self, claimed: DataFrame, name: str, *, had_stored_pages: bool) -> None:
        """Step 3."""
        pages = self.pages.of_batch(name)
        if had_stored_pages:
            pages = self.pages.settled().join(claimed.select("url"), "url", "left_semi")
        links = pages.select(F.explode("links").alias("url"), (F.col("depth") + 1).alias("depth"))
        nearest = links.groupBy("url").agg(F.min("depth").alias("depth"))
        self._put_unseen(nearest, key=f"links of {name}")

    def _release_failures(self, batch: Batch, name: str) -> None:
        """Step 4. A second task of the same URL is acked with the rest: one is enough to retry."""
        failed = self.pages.of_batch(name).where(F.col("outcome") == F.lit(Outcome.FAILED.value))
        batch.release(failed.select("task_id"), delay=self._settings.retry_delay)
        # Perhaps another crawler was given seeds of new hosts since this one has looked.
        self._learn_origins(failed)

    def _put_unseen(self, urls: DataFrame, key: str | None) -> PutResult:
        unseen = urls.join(self._seen(), "url", "left_anti")
        return self._tube.put_df(
            unseen.select(F.to_json(F.struct("url", "depth")).alias("data")), key=key
        )

    def _seen(self) -> DataFrame:
        """Every URL that was ever queued and not deleted."""
        # The tube is looked at first: a page is stored before its task is acked, so what leaves
        # the tube between the two looks is in the other.
        queued = _urls_of(self._tube.df()).select("url")
        return queued.unionByName(self.pages.fetches().select("url"))

    def _learn_origins(self, urls: DataFrame) -> None:
        """Note the hosts of URLs that were queued: those of all seeds ever given."""
        origin = F.regexp_extract("url", "^https?://[^/?]+", 0).alias("origin")
        rows = urls.select(origin).distinct().limit(HOSTS_LIMIT).collect()
        found = [row["origin"] for row in rows if row["origin"]]
        self._origins |= {host_of(origin): f"{origin}/" for origin in found}

    def _scope(self) -> Scope:
        settings = self._settings
        unknown = {host: url for host, url in self._origins.items() if not self._robots.get(host)}
        if unknown:
            self._robots |= load_robots(unknown, settings.agent, settings.limits)
        return Scope(self._robots, settings.agent, settings.max_depth)


def _urls_of(tasks: DataFrame, *more: Column | str) -> DataFrame:
    """The `url` and `depth` of tasks, and more of their columns."""
    payload = F.from_json("data", "url STRING, depth INT")
    return tasks.select(*more, payload["url"].alias("url"), payload["depth"].alias("depth"))
