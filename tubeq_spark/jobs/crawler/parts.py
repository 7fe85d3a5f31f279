"""What the crawl is made of, whatever runs it: a frontier of URLs, a page table, work in hand."""

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

#: Of the tube; its sub-queues are the hosts. A sub-queue is held by one take at a time. So whoever
#: has tasks of a host is the only one that fetches from it, until these tasks are acked or given back.
TUBE = "crawl"
#: Of the page table.
PAGES = "_crawl_pages"
MAX_ATTEMPTS = 3


class GivenUpError(Exception):
    """The batch in hand shall be given back."""


@dataclass(frozen=True)
class Look:
    """What there is to do.

    Attributes:
        tasks: How many, by the name of their state.
        next_ready: How many are ready of the host whose turn it is among those that nobody holds.
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
        fetches: How many there were.
        consumers: By how many consumers.
        hosts: Hosts that two consumers fetched from at once; there should be none.
        overlaps: Fetches that began while another consumer fetched from the same host.
    """

    fetches: int
    consumers: int
    hosts: int
    overlaps: int


class Pages(Protocol):
    """The pages of the crawl at a location.

    One row is one fetch: when it began and ended by the clock of its process, and for which
    consumer. It is appended with all others of its batch in one commit and never changed. A URL that
    was fetched, or refused for good, is fetched no more; so it has one such row, after however many
    rows of failed attempts. Two crawlers that shared a location and both held a task, because the
    lease of one ran out in the middle, could leave two.
    """

    def fetched_count(self) -> int:
        """How many pages there are."""
        ...

    def by_host(self, since: dt.datetime, limit: int = 50) -> Sequence[Mapping[str, Any]]:
        """The hosts with most pages: `host, pages, bytes, refusals, failures, recent`.

        Args:
            since: From when a fetch is recent.
            limit: How many hosts.
        """
        ...

    def exclusivity(self) -> Exclusivity:
        """Whether no host was ever fetched by two consumers at once."""
        ...


class InHand(Protocol):
    """A batch of tasks that a consumer has taken; leaving its block by an error gives it back."""

    count: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def fetch(self, scope: Scope, given_up: Callable[[], bool]) -> dict[str, int]:
        """Step 2: fetch what is not stored, and store it; how many fetches had each outcome."""
        ...

    def put_links(self) -> None:
        """Step 3."""
        ...

    def release_failures(self, delay: float) -> Iterable[str]:
        """Step 4; the origins of what failed. A second task of the same URL is acked with the rest."""
        ...

    def ack(self) -> None:
        """Step 5."""
        ...


def tube_of(queue: Queue) -> Tube:
    """The tube of the crawl; it is made where it is not there yet.

    Raises:
        TubeExistsError: There is a tube of that name and another type.
    """
    return queue.create_tube(TUBE, "utubettl", if_not_exists=True, max_attempts=MAX_ATTEMPTS)


class Frontier(Protocol):
    """The tube as one consumer sees it."""

    def look(self) -> Look:
        """See what there is to do."""
        ...

    def take(self, count: int) -> InHand | None:
        """Take up to `count` tasks; of one host where its next ones are as many."""
        ...

    def kick(self) -> int:
        """Give everything that was buried another `MAX_ATTEMPTS` tries; return how many."""
        ...

    def add_seeds(self, urls: Sequence[str]) -> int:
        """Queue those of some URLs that were never seen, each once; return how many."""
        ...

    def origins(self) -> Iterable[str]:
        """Scheme and host of every URL that was ever queued and not deleted, each once."""
        ...


class Storage(Protocol):
    """Where a crawl keeps what it knows."""

    @property
    def pages(self) -> Pages:
        """The page table; it is made where it is not there yet."""
        ...

    def frontier(self, queue: Queue, adding: threading.Lock) -> Frontier:
        """The tube for one consumer; it is made where it is not there yet.

        Args:
            queue: The consumer's own session.
            adding: Shared by all that add URLs in this process.

        Raises:
            TubeExistsError: There is a tube of that name and another type.
        """
        ...

    def interrupt(self) -> None:
        """Make fetches end that go on."""
        ...
