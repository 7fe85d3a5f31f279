"""The storage of a crawl without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.jobs.crawler.native.frontier import NativeFrontier, read_known
from tubeq_spark.jobs.crawler.native.known import Known
from tubeq_spark.jobs.crawler.native.pages import NativePages

if TYPE_CHECKING:
    import threading

    from tubeq_spark import Queue
    from tubeq_spark.jobs.crawler.settings import Settings


class NativeStorage:
    """`parts.Storage` without Spark."""

    def __init__(self, location: str, settings: Settings) -> None:
        """Open the page table, or create it."""
        self.pages = NativePages(location)
        # On Spark a batch has partitions, each with threads of its own. Here all of them are threads.
        threads = settings.limits.threads * settings.partitions
        self._limits = replace(settings.limits, threads=threads)
        self._known: Known | None = None

    def frontier(self, queue: Queue, adding: threading.Lock) -> NativeFrontier:
        """As of `parts.Storage`."""
        if self._known is None:
            self._known = Known()
            read_known(queue, self.pages, self._known)
        return NativeFrontier(queue, self.pages, self._known, adding, self._limits)

    def interrupt(self) -> None:
        """Do nothing: fetches check by themselves whether the batch was given up."""
