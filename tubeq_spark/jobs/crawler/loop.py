"""The loop of a consumer: take a batch of one host, fetch it, store it, and queue its links.

The order of the commits makes the crawl safe against crashes at any moment:

1. A take gets a batch, and locks the host. URLs whose pages are already stored are not fetched again.
2. The others are fetched, and their rows are appended to the page table: one commit for the batch.
3. Unseen links go into the tube by one put with a key. Unseen are URLs that neither the tube nor the
   page table has. There is no third table of seen URLs that could disagree with them.
4. Failures are released with a delay; the tube buries them after `MAX_ATTEMPTS`.
5. The rest is acked, and the host is free.

A crash after 1 or during 2 leaves taken tasks. After the end of the dead session's lease they are taken again, and
fetched as if for the first time (some servers were asked twice).
After a crash after 2 the pages are stored, but their links are not queued: the tasks come back, are not fetched
again, and step 3 takes the links from the stored rows. After 3 the same happens, and there are no unseen
links. After 4 the failures wait for their delay; the others come back and are acked without a fetch.
So nothing is lost, and a page is stored once. But a task that a crash interrupted has used up one of
its attempts.

Several consumers, each with a session of its own, share the work by hosts. One consumer at a time fetches from a
host, as long as its session is alive. A consumer that was paused for longer than its lease goes
on for a moment, and the page table shows that (`tables.overlapping`).

Unseen links are found by a comparison with all seen URLs; that works for some millions of pages. On
Spark (`on_spark`) each batch reads the tube and the page table for that. Natively (`native`) the
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
        hosts: The hosts that the crawl may visit.
        ledger: Their shared counts.
        settings: The settings of the crawl.
        clock: The clock by which they wait.
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
            frontier: The tube of its tasks, with a session of its own.
            shared: The objects that it shares with the others.
            tell: Called for each step.
        """
        self._frontier, self._shared, self._tell = frontier, shared, tell
        self._ledger, self._settings = shared.ledger, shared.settings

    def run(
        self, stopping: Callable[[], bool], report: Callable[[Mapping[str, int]], None]
    ) -> Ending:
        """Crawl until no task is left, the limit is reached, or it must stop.

        Args:
            stopping: Called between batches; returns whether to stop.
            report: Called with the tasks by state before each batch.
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
            # Others hold tasks, perhaps crawlers that died. A take ends the leases of these; a read does not.
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
            # Another crawler may have got seeds of new hosts since the last read.
            self._shared.hosts.learn(batch.release_failures(self._settings.retry_delay))
        batch.ack()
        return outcomes

    def _step(self, name: str) -> None:
        if self._ledger.given_up.is_set():
            raise GivenUpError
        self._tell(name)
