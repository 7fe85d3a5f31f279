"""A consumer of a crawl, which repeats the steps in the package's docstring, and what all consumers share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crawl.fetch import Outcome
from crawl.frontier import tube_of
from crawl.job import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from crawl.fetch import Fetcher, Page
    from crawl.frontier import Frontier
    from crawl.job import Job
    from crawl.pages import PageTable
    from crawl.screen import Screen
    from tubeq_spark import Batch, Clock, Queue

#: Seconds that a consumer waits for a free host.
_WAIT_S = 0.2


class Budget:
    """The pages that may still be fetched. Thread-safe."""

    def __init__(self, stored: int, limit: int | None) -> None:
        """Begin.

        Args:
            stored: The number of stored pages.
            limit: The most pages at the end; `None` is unlimited.
        """
        self.stored, self._limit = stored, limit
        self._reserved = 0
        self._lock = threading.Lock()

    @property
    def is_spent(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self.stored >= self._limit

    def reserve(self, most: int) -> int:
        """Reserve up to `most` pages; return how many there may be."""
        with self._lock:
            if self._limit is not None:
                most = max(0, min(most, self._limit - self.stored - self._reserved))
            self._reserved += most
            return most

    def settle(self, reserved: int, fetched: int = 0) -> None:
        """End a reservation, of which `fetched` pages were stored."""
        with self._lock:
            self._reserved -= reserved
            self.stored += fetched


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the consumers of a crawl share.

    Attributes:
        job: The job of the crawler.
        pages: The page table.
        frontier: The seen URLs.
        fetcher: Fetches their pages.
        budget: The pages that may still be fetched.
        screen: Shows their steps.
        clock: The clock by which they wait.
        failed: Set when one has failed: the others finish their batches.
        given_up: Set when all give their batches back at once.
    """

    job: Job
    pages: PageTable
    frontier: Frontier
    fetcher: Fetcher
    budget: Budget
    screen: Screen
    clock: Clock
    failed: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)


class Consumer:
    """One consumer of the tube, with a session of its own; used by one thread."""

    def __init__(self, number: int, queue: Queue, shared: Shared) -> None:
        """Make a consumer with the queue; the screen shows it at the place `number`."""
        self._number, self._shared, self._job = number, shared, shared.job
        self._tube, self._name = tube_of(queue), str(queue.session_uuid)
        self._last_host = ""

    def run(self, stopping: Callable[[], bool]) -> Ending:
        """Crawl until no task is left, the limit is reached, or it must stop.

        Args:
            stopping: Called between batches; returns whether to stop.
        """
        try:
            while not (stopping() or self._shared.failed.is_set()):
                ending = self._turn()
                if ending is not None:
                    return ending
        except BaseException:
            self._shared.failed.set()
            raise
        return Ending.STOPPED

    def _turn(self) -> Ending | None:
        """Crawl one batch, or wait for one. Return why the crawl ends, or `None` if it goes on."""
        self._step("taking")
        budget = self._shared.budget
        hosts = self._tube.utubes()
        self._shared.screen.progress(budget.stored, hosts)
        if not any(host.ready or host.taken or host.delayed for host in hosts):
            return Ending.FINISHED
        free = sorted(host.utube or "" for host in hosts if host.ready and not host.taken)
        room = budget.reserve(self._job.batch_size)
        batch = self._take(room, free)
        budget.settle(room - batch.count)
        if batch.count:
            self._crawl(batch)
            return None
        if budget.is_spent:
            return Ending.LIMIT
        self._step("waiting")
        self._shared.clock.sleep(_WAIT_S)
        return None

    def _take(self, count: int, free: Sequence[str]) -> Batch:
        """Take a batch of the free host whose turn it is; of any if none is free.

        If another consumer was faster, the tube gives nothing: its sub-queues decide who fetches from a host. A take
        also ends the leases of crawlers that died.
        """
        if free:
            self._last_host = next((host for host in free if host > self._last_host), free[0])
        wanted = self._last_host if free else None
        return self._tube.take_arrow(count, per_utube=max(count, 1), utube=wanted)

    def _crawl(self, batch: Batch) -> None:
        """Do the steps from 2 on. An error gives the batch back."""
        shared = self._shared
        with batch:
            tasks = [_task(row) for row in batch.table.to_pylist()]
            self._step(f"fetching {len(tasks)}")
            stored = shared.pages.settled(task["url"] for task in tasks)
            pages = self._fetch([task for task in tasks if task["url"] not in stored])
            shared.pages.append(pages, self._name)
            fetched = sum(page.outcome == Outcome.FETCHED for page in pages)
            shared.budget.settle(batch.count, fetched)
            self._step("linking")
            found = [(page.depth, page.links) for page in pages]
            found += shared.pages.links_of(stored)
            shared.frontier.add(self._tube, _nearest(found))
            self._step("acking")
            failed = [page for page in pages if page.outcome == Outcome.FAILED]
            if failed:
                errors = [{"task_id": page.task_id, "error": page.error} for page in failed]
                batch.release(pa.Table.from_pylist(errors), delay=self._job.retry_delay)
            batch.ack()

    def _fetch(self, tasks: Sequence[Mapping[str, Any]]) -> list[Page]:
        fetcher, given_up = self._shared.fetcher, self._shared.given_up
        fetcher.learn_rules(task["url"] for task in tasks)

        def one(task: Mapping[str, Any]) -> Page:
            if given_up.is_set():
                raise KeyboardInterrupt
            return fetcher.fetch(task)

        with ThreadPoolExecutor(self._job.threads, "fetch") as pool:
            return list(pool.map(one, tasks))

    def _step(self, name: str) -> None:
        if self._shared.given_up.is_set():
            # An interrupt, and no error of the tasks.
            raise KeyboardInterrupt
        self._shared.screen.step(self._number, name)


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    task = {name: row[name] for name in ("task_id", "url", "depth")}
    return task | {"attempt": row["attempts"]}


def _nearest(found: Iterable[tuple[int, Sequence[str]]]) -> dict[str, int]:
    """The links of some pages, with their distance from the seeds."""
    nearest: dict[str, int] = {}
    for depth, links in found:
        for link in links:
            nearest[link] = min(nearest.get(link, depth + 1), depth + 1)
    return nearest
