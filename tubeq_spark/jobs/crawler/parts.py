"""The interfaces of a crawl's storage: a frontier of URLs, a page table, batches in hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import datetime as dt
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from tubeq_spark import Queue, Tube
    from tubeq_spark.jobs.crawler.urls import Scope

#: The name of the tube. Its sub-queues are the hosts. One take at a time holds a sub-queue, so only the consumer with
#: tasks of a host fetches from it, until these tasks are acked or given back.
TUBE = "crawl"
#: The name of the page table.
PAGES = "_crawl_pages"
MAX_ATTEMPTS = 3


class GivenUpError(Exception):
    """The batch in hand must be given back."""


@dataclass(frozen=True)
class Look:
    """The state of a crawl.

    Attributes:
        tasks: The number of tasks by the name of their state.
        next_ready: The number of ready tasks of the next free host.
    """

    tasks: Mapping[str, int]
    next_ready: int

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do, or to wait for."""
        return not (self.tasks["ready"] + self.tasks["delayed"] + self.tasks["taken"])


@dataclass(frozen=True)
class Exclusivity:
    """Whether consumers kept to hosts of their own.

    Attributes:
        fetches: The number of fetches.
        consumers: The number of consumers that have fetched.
        hosts: The number of hosts from which two consumers fetched at once, which should be 0.
        overlaps: The number of fetches that began while another consumer fetched from the same host.
    """

    fetches: int
    consumers: int
    hosts: int
    overlaps: int


class Pages(Protocol):
    """The pages of the crawl at a location.

    One row is one fetch, with its start and end by the clock of its process, and its consumer. It is appended with
    all others of its batch in one commit, and never changed. A URL that was fetched, or refused for good, is not
    fetched again. So it has one such row, after any number of rows of failed attempts. It may have two, if two
    crawlers at one location held its task, because the lease of one ended during the fetch.
    """

    def fetched_count(self) -> int:
        """The number of pages."""
        ...

    def by_host(self, since: dt.datetime, limit: int = 50) -> Sequence[Mapping[str, Any]]:
        """The hosts with most pages: `host, pages, bytes, refusals, failures, recent`.

        Args:
            since: The moment from which on a fetch is recent.
            limit: The most hosts.
        """
        ...

    def exclusivity(self) -> Exclusivity:
        """Whether no host was ever fetched by two consumers at once."""
        ...


class InHand(Protocol):
    """A batch of tasks that a consumer has taken. Leaving its block by an error gives it back."""

    count: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def fetch(self, scope: Scope, given_up: Callable[[], bool]) -> dict[str, int]:
        """Step 2: fetch and store the missing pages; return the number of fetches by outcome."""
        ...

    def put_links(self) -> None:
        """Step 3."""
        ...

    def release_failures(self, delay: float) -> Iterable[str]:
        """Step 4; return the origins of failed URLs. A second task of the same URL is acked with the rest."""
        ...

    def ack(self) -> None:
        """Step 5."""
        ...


def tube_of(queue: Queue) -> Tube:
    """The tube of the crawl, which is created if it does not exist.

    Raises:
        TubeExistsError: A tube of another type has the name.
    """
    return queue.create_tube(TUBE, "utubettl", if_not_exists=True, max_attempts=MAX_ATTEMPTS)


class Frontier(Protocol):
    """The tube as one consumer sees it."""

    def look(self) -> Look:
        """Read the state of the crawl."""
        ...

    def take(self, count: int) -> InHand | None:
        """Take up to `count` tasks, all of one host if its next tasks are as many."""
        ...

    def kick(self) -> int:
        """Give all buried tasks another `MAX_ATTEMPTS` tries; return their number."""
        ...

    def add_seeds(self, urls: Sequence[str]) -> int:
        """Queue those of some URLs that were never seen, each once; return their number."""
        ...

    def origins(self) -> Iterable[str]:
        """The distinct origins (scheme and host) of all URLs that were queued and not deleted."""
        ...


class Storage(Protocol):
    """The storage of a crawl."""

    @property
    def pages(self) -> Pages:
        """The page table, which is created if it does not exist."""
        ...

    def frontier(self, queue: Queue, adding: threading.Lock) -> Frontier:
        """The tube for one consumer, which is created if it does not exist.

        Args:
            queue: The consumer's own session.
            adding: A lock that all threads of this process hold while they add URLs.

        Raises:
            TubeExistsError: A tube of another type has the name.
        """
        ...

    def interrupt(self) -> None:
        """End running fetches."""
        ...
