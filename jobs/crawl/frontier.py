"""The URLs that a crawl has ever seen, and the tube in which the unseen ones are queued."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa

from crawl.links import host_of
from tubeq_spark import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubeq_spark import Queue, Tube

#: The name of the tube.
TUBE = "crawl"
MAX_ATTEMPTS = 3


def tube_of(queue: Queue) -> Tube:
    """The tube of the crawl, which is created if it does not exist.

    Raises:
        TubeExistsError: A tube of another type has the name.
    """
    return queue.create_tube(
        TUBE,
        "utubettl",
        if_not_exists=True,
        schema="url STRING, depth INT",
        max_attempts=MAX_ATTEMPTS,
    )


class Frontier:
    """The URLs that were ever seen, shared by the consumers of a crawl. Thread-safe.

    Only this process adds URLs, so it reads the tube and the page table once. A page is stored before its task is
    acked, so each URL is in one of the two. All URLs are in memory, so a crawl has at most some millions.
    """

    def __init__(self, tube: Tube, stored: Iterable[str]) -> None:
        """Read the queued URLs.

        Args:
            tube: The tube of the crawl.
            stored: The URLs in the page table.
        """
        self._seen = set(stored)
        for state in (TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED):
            self._seen.update(task.data["url"] for task in tube.tasks_by_state(state))
        self._lock = threading.Lock()

    def hosts(self) -> set[str]:
        """The hosts of all seen URLs."""
        with self._lock:
            return {host_of(url) for url in self._seen}

    def add(self, tube: Tube, urls: Mapping[str, int]) -> int:
        """Queue those of some URLs that were never seen, each once; return their number.

        Two consumers may find the same link at the same moment, so only one at a time adds URLs.

        Args:
            tube: The tube, as the consumer has it.
            urls: Their distance from the seeds, by URL.

        Commits: 1 to the tube, or none.
        """
        with self._lock:
            unseen = {url: depth for url, depth in urls.items() if url not in self._seen}
            if unseen:
                rows = [
                    {"url": url, "depth": depth, "pri": depth, "utube": host_of(url)}
                    for url, depth in unseen.items()
                ]
                tube.put_arrow(pa.Table.from_pylist(rows))
                self._seen.update(unseen)
            return len(unseen)
