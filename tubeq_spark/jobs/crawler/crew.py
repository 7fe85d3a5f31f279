"""The crawl at a location: its seeds, and the consumers that share the work, a thread each."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from tubeq_spark import SystemClock
from tubeq_spark.jobs.crawler.hosts import Hosts
from tubeq_spark.jobs.crawler.ledger import Ledger
from tubeq_spark.jobs.crawler.loop import Consumer, Shared
from tubeq_spark.jobs.crawler.settings import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from tubeq_spark import Clock, Queue
    from tubeq_spark.jobs.crawler.parts import Storage
    from tubeq_spark.jobs.crawler.settings import Settings, Watcher

#: Seconds between two looks of the main thread whether there is a signal, or all that go on are fetching.
_INSIST_S = 0.5


class Crawler:
    """A crawl at a location; the same one goes on whenever it is made for that location."""

    def __init__(
        self,
        spark: SparkSession | None,
        queues: Sequence[Queue],
        settings: Settings,
        watcher: Watcher,
        stopping: Callable[[], bool],
        *,
        clock: Clock | None = None,
    ) -> None:
        """Open the crawl's tube and page table, or create them.

        Args:
            spark: A session with Delta; without one the crawl is native.
            queues: A session of the queue for each consumer, one at least; the pages lie beside
                the tasks.
            settings: How to crawl.
            watcher: Is called for each step.
            stopping: Asked between batches: whether to stop.
            clock: How consumers wait; that of the queues.

        Raises:
            TubeExistsError: There is a tube of that name and another type.
        """
        self._settings, self._watcher, self._stopping = settings, watcher, stopping
        self._clock = clock or SystemClock()
        self._storage = _storage(spark, queues[0].location, settings)
        self.pages = self._storage.pages
        adding = threading.Lock()
        self._frontiers = [self._storage.frontier(queue, adding) for queue in queues]

    def add_seeds(self, urls: Sequence[str]) -> int:
        """Queue normalised URLs that were never seen here.

        Returns:
            How many.

        Commits: 1 to the tube, or none.
        """
        return self._frontiers[0].add_seeds(urls)

    def kick(self) -> int:
        """Give everything that was buried another `MAX_ATTEMPTS` tries; return how many."""
        return self._frontiers[0].kick()

    def run(self) -> Ending:
        """Crawl until nothing is left, the limit is reached, or it shall stop.

        Raises:
            Exception: What a consumer failed of. The others have finished their batches.
            KeyboardInterrupt: It came while they worked; the batches in hand were given back.
        """
        shared = Shared(
            hosts=Hosts(self._settings),
            ledger=Ledger(self.pages.fetched_count(), self._settings.max_pages),
            settings=self._settings,
            clock=self._clock,
        )
        shared.hosts.learn(self._frontiers[0].origins())
        with ThreadPoolExecutor(len(self._frontiers), "consumer") as pool:
            runs = [
                pool.submit(self._consume, number, shared)
                for number in range(1, len(self._frontiers) + 1)
            ]
            try:
                # A signal that comes just before this thread sleeps wakes nobody, so it looks up at times.
                while wait(runs, timeout=_INSIST_S).not_done:
                    pass
            except BaseException:
                self._give_up(shared.ledger, runs)
                raise
        endings = {run.result() for run in runs}
        return next(ending for ending in Ending if ending in endings)

    def _consume(self, number: int, shared: Shared) -> Ending:
        consumer = Consumer(
            self._frontiers[number - 1],
            shared,
            lambda step: self._watcher.step(number, step),
        )
        ledger = shared.ledger

        def report(tasks: Mapping[str, int]) -> None:
            self._watcher.progress(ledger.progress(tasks))

        try:
            return consumer.run(lambda: self._stopping() or ledger.failed.is_set(), report)
        except BaseException:
            ledger.failed.set()
            raise

    def _give_up(self, ledger: Ledger, runs: Sequence[Future[Ending]]) -> None:
        """Make the consumers give back their batches at once."""
        ledger.given_up.set()
        while left := wait(runs, timeout=_INSIST_S).not_done:
            # Who does not fetch ends by itself, and what it gives back must not be interrupted.
            if ledger.fetching == len(left):
                self._storage.interrupt()


def _storage(spark: SparkSession | None, location: str, settings: Settings) -> Storage:
    if spark is None:
        from tubeq_spark.jobs.crawler.native.storage import NativeStorage  # noqa: PLC0415  the library is optional

        return NativeStorage(location, settings)
    from tubeq_spark.jobs.crawler.on_spark import SparkStorage  # noqa: PLC0415  pyspark is optional

    return SparkStorage(spark, location, settings)
