"""The loop of a consumer: take a batch of one host, fetch it, store it, queue what it links to.

The order of the commits is what makes the crawl safe to kill at any moment:

1. `take_df` takes a batch, and with it the host. Its URLs whose pages are stored already are not
   fetched again.
2. The others are fetched on the executors while their rows are appended to the page table: one
   commit for the batch, and the only evaluation of the DataFrame that fetches. Everything
   after it reads the table.
3. Unseen links go into the tube by one keyed `put_df`. Unseen is what neither the tube nor the
   page table holds: there is no third table of seen URLs that could disagree with them.
4. Failures are released with a delay; the tube buries them after `MAX_ATTEMPTS`.
5. The rest is acked, and the host is free.

A crash after 1 or during 2 leaves taken tasks: once the lease of the dead session has run out
they are taken again, and fetched as if for the first time (some servers were asked twice).
After 2 the pages are stored but their links are not queued: the tasks come back, are not fetched
again, and step 3 takes the links from the stored rows. After 3 the same, and it finds no unseen
links. After 4 the failures wait as they should; the others come back and are acked unfetched.
So nothing is lost, and a page is stored once. A task that a crash interrupted has used up one of
its attempts, though: that is how the tube counts.

Several consumers, each with a session of its own, share the work by hosts. A host is fetched by one
of them at a time, as long as its session lives: one that was paused for longer than its lease goes
on for a moment, and the page table shows it (`tables.overlapping`).

Steps 1 and 3 read the page table and the tube whole, if only the URLs: for some millions of pages.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from crawler.fetch import Outcome, fetcher
from crawler.frontier import urls_of
from crawler.settings import Ending
from crawler.tables import FETCH_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from crawler.frontier import Frontier, Look
    from crawler.hosts import Hosts
    from crawler.ledger import Ledger
    from crawler.settings import Settings
    from crawler.tables import PageTable
    from crawler.urls import Scope
    from tubeq_spark import Batch, Clock

__all__ = ["Consumer", "GivenUpError", "Shared"]

#: Seconds that a consumer waits for a free host; a request to stop is seen as often.
_WAIT_S = 2.0


class GivenUpError(Exception):
    """The batch in hand shall be given back."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the consumers of a crawl share.

    Attributes:
        pages: Where pages go.
        hosts: Where the crawl may go.
        ledger: What they know of each other.
        settings: How to crawl.
        clock: How they wait.
    """

    pages: PageTable
    hosts: Hosts
    ledger: Ledger
    settings: Settings
    clock: Clock


class Consumer:
    """One consumer of the frontier; used by one thread."""

    def __init__(
        self, name: str, frontier: Frontier, shared: Shared, tell: Callable[[str], None]
    ) -> None:
        """Make a consumer.

        Args:
            name: Its identity in the page table: no other consumer of the location ever has it.
            frontier: Where its tasks are, by a session of its own.
            shared: What it has in common with the others.
            tell: Is called for each step.
        """
        self._name, self._frontier, self._shared, self._tell = name, frontier, shared, tell
        self._pages, self._ledger, self._settings = shared.pages, shared.ledger, shared.settings

    def run(
        self, stopping: Callable[[], bool], report: Callable[[Mapping[str, int]], None]
    ) -> Ending:
        """Crawl until nothing is left, the limit is reached, or it shall stop.

        Args:
            stopping: Asked between batches: whether to stop.
            report: Is given the tasks by state, before each batch.
        """
        is_quiet = False
        while not stopping():
            batches = self._ledger.batches
            self._step("taking")
            with self._ledger.taking:
                look = self._frontier.look()
                report(look.tasks)
                batch = self._take(look, is_quiet=is_quiet)
            if batch is not None:
                self._crawl(batch)
            elif look.is_over:
                return Ending.FINISHED
            elif self._ledger.is_full:
                return Ending.LIMIT
            else:
                self._step("waiting")
                is_quiet = not self._ledger.wait(self._shared.clock, _WAIT_S, batches)
        return Ending.STOPPED

    def _take(self, look: Look, *, is_quiet: bool) -> Batch | None:
        """Take a batch of the host whose turn it is."""
        wanted = look.next_ready
        if not wanted and is_quiet and look.tasks["taken"] > self._ledger.in_hand:
            # Others hold tasks, perhaps crawlers that died: a take ends their leases, a look does not.
            wanted = 1
        count = self._ledger.room(min(wanted, self._settings.batch_size))
        batch = self._frontier.take(count) if count else None
        if batch is None or not batch.count:
            return None
        self._ledger.took(batch.count)
        return batch

    def _crawl(self, batch: Batch) -> None:
        """Do the steps of the module's docstring from 2 on."""
        outcomes: dict[str, int] = {}
        try:
            with batch:
                outcomes = self._work(batch)
        finally:
            fetched, failed = outcomes.get(Outcome.FETCHED, 0), outcomes.get(Outcome.FAILED, 0)
            self._ledger.did(batch.count, fetched, failed)

    def _work(self, batch: Batch) -> dict[str, int]:
        name = str(uuid.uuid4())
        leased = urls_of(batch.df, "task_id", F.col("attempts").alias("attempt"))
        self._step(f"fetching {batch.count}")
        self._fetch(leased, name, self._shared.hosts.scope())
        outcomes = self._pages.outcomes_of(name)
        self._step("linking")
        unfetched = batch.count - sum(outcomes.values())
        self._put_links(leased, name, had_stored_pages=unfetched > 0)
        self._step("acking")
        if outcomes.get(Outcome.FAILED):
            self._release_failures(batch, name)
        batch.ack()
        return outcomes

    def _fetch(self, leased: DataFrame, name: str, scope: Scope) -> None:
        """Step 2."""
        stored = self._pages.settled().select("url")
        missing = leased.join(stored, "url", "left_anti").dropDuplicates(["url"])
        # Written down first: an append that read the table it goes to would lose to other appends,
        # and all that it fetched with it.
        spread = missing.localCheckpoint().repartition(self._settings.partitions)
        fetched = spread.mapInArrow(fetcher(scope, self._settings.limits), FETCH_COLUMNS)
        with self._ledger.while_fetching():
            self._pages.append(fetched, consumer=self._name, batch=name)

    def _put_links(self, leased: DataFrame, name: str, *, had_stored_pages: bool) -> None:
        """Step 3."""
        pages = self._pages.of_batch(name)
        if had_stored_pages:
            pages = self._pages.settled().join(leased.select("url"), "url", "left_semi")
        links = pages.select(F.explode("links").alias("url"), (F.col("depth") + 1).alias("depth"))
        nearest = links.groupBy("url").agg(F.min("depth").alias("depth"))
        self._frontier.add(nearest, key=f"links of {name}")

    def _release_failures(self, batch: Batch, name: str) -> None:
        """Step 4. A second task of the same URL is acked with the rest: one is enough to retry."""
        failed = self._pages.of_batch(name).where(F.col("outcome") == F.lit(Outcome.FAILED.value))
        batch.release(failed.select("task_id"), delay=self._settings.retry_delay)
        # Perhaps another crawler was given seeds of new hosts since this one has looked.
        self._shared.hosts.learn(failed)

    def _step(self, name: str) -> None:
        if self._ledger.given_up.is_set():
            raise GivenUpError
        self._tell(name)
