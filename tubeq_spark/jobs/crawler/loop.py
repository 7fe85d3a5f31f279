"""The loop of a consumer: take a batch of one host, fetch it, store it, queue what it links to.

The order of the commits is what makes the crawl safe to kill at any moment:

1. A take gives a batch, and with it the host. Its URLs whose pages are stored already are not
   fetched again.
2. The others are fetched, and their rows appended to the page table: one commit for the batch.
3. Unseen links go into the tube by one keyed put. Unseen is what neither the tube nor the
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

Unseen links are found among all that was ever seen, if only by URL: for some millions of pages. On
Spark (`on_spark`) each batch reads the tube and the page table for that; natively (`native`) the
process reads them once, and keeps the URLs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.jobs.crawler.fetch import Outcome
from tubeq_spark.jobs.crawler.parts import GivenUpError
from tubeq_spark.jobs.crawler.settings import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark import Clock
    from tubeq_spark.jobs.crawler.hosts import Hosts
    from tubeq_spark.jobs.crawler.ledger import Ledger
    from tubeq_spark.jobs.crawler.parts import Frontier, InHand, Look
    from tubeq_spark.jobs.crawler.settings import Settings

#: Seconds that a consumer waits for a free host; a request to stop is seen as often.
_WAIT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the consumers of a crawl share.

    Attributes:
        hosts: Where the crawl may go.
        ledger: What they know of each other.
        settings: How to crawl.
        clock: How they wait.
    """

    hosts: Hosts
    ledger: Ledger
    settings: Settings
    clock: Clock


class Consumer:
    """One consumer of the frontier; used by one thread."""

    def __init__(self, frontier: Frontier, shared: Shared, tell: Callable[[str], None]) -> None:
        """Make a consumer.

        Args:
            frontier: Where its tasks are, by a session of its own.
            shared: What it has in common with the others.
            tell: Is called for each step.
        """
        self._frontier, self._shared, self._tell = frontier, shared, tell
        self._ledger, self._settings = shared.ledger, shared.settings

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

    def _take(self, look: Look, *, is_quiet: bool) -> InHand | None:
        """Take a batch of the host whose turn it is."""
        wanted = look.next_ready
        if not wanted and is_quiet and look.tasks["taken"] > self._ledger.in_hand:
            # Others hold tasks, perhaps crawlers that died: a take ends their leases, a look does not.
            wanted = 1
        count = self._ledger.room(min(wanted, self._settings.batch_size))
        batch = self._frontier.take(count) if count else None
        if batch is None:
            return None
        self._ledger.took(batch.count)
        return batch

    def _crawl(self, batch: InHand) -> None:
        """Do the steps of the module's docstring from 2 on."""
        outcomes: dict[str, int] = {}
        try:
            with batch:
                outcomes = self._work(batch)
        finally:
            fetched, failed = outcomes.get(Outcome.FETCHED, 0), outcomes.get(Outcome.FAILED, 0)
            self._ledger.did(batch.count, fetched, failed)

    def _work(self, batch: InHand) -> dict[str, int]:
        self._step(f"fetching {batch.count}")
        with self._ledger.while_fetching():
            outcomes = batch.fetch(self._shared.hosts.scope(), self._ledger.given_up.is_set)
        self._step("linking")
        batch.put_links()
        self._step("acking")
        if outcomes.get(Outcome.FAILED):
            # Perhaps another crawler was given seeds of new hosts since this one has looked.
            self._shared.hosts.learn(batch.release_failures(self._settings.retry_delay))
        batch.ack()
        return outcomes

    def _step(self, name: str) -> None:
        if self._ledger.given_up.is_set():
            raise GivenUpError
        self._tell(name)
