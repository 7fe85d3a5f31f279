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

#: Seconds between two checks of the main thread for a signal, or whether all running consumers are fetching.
_INSIST_S = 0.5


class Crawler:
    """A crawl at a location. A new object for the same location continues the crawl."""

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
            queues: A queue object with its own session for each consumer, at least one. The pages are stored beside
                the tasks.
            settings: The settings of the crawl.
            watcher: Called for each step.
            stopping: Called between batches; returns whether to stop.
            clock: The clock of the queues, by which consumers wait.

        Raises:
            TubeExistsError: A tube of another type has the name.
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
            The number of queued URLs.

        Commits: 1 to the tube, or none.
        """
        return self._frontiers[0].add_seeds(urls)

    def kick(self) -> int:
        """Give everything that was buried another `MAX_ATTEMPTS` tries; return how many."""
        return self._frontiers[0].kick()

    def run(self) -> Ending:
        """Crawl until no task is left, the limit is reached, or it must stop.

        Raises:
            Exception: The error of a consumer. The others have finished their batches.
            KeyboardInterrupt: A signal came while they worked; their batches were given back.
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
                # A signal that comes just before this thread sleeps does not wake it, so it wakes up at times.
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
            # Consumers that do not fetch end by themselves, and must not be interrupted while they give tasks back.
            if ledger.fetching == len(left):
                self._storage.interrupt()


def _storage(spark: SparkSession | None, location: str, settings: Settings) -> Storage:
    if spark is None:
        from tubeq_spark.jobs.crawler.native.storage import NativeStorage  # noqa: PLC0415  the library is optional

        return NativeStorage(location, settings)
    from tubeq_spark.jobs.crawler.on_spark import SparkStorage  # noqa: PLC0415  pyspark is optional

    return SparkStorage(spark, location, settings)
