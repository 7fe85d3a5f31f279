"""Fetches pages by threads, within limits of time and size, and as the robots.txt of their hosts allows.

Redirects are not followed, but stored as a page whose only link is their target. So the target is filtered,
queued and fetched once, like any other URL.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.robotparser import RobotFileParser

import httpx

from crawl.links import host_of, links_of, normalise, origin_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from crawl.job import Job
    from tubeq_spark import Clock

#: Status codes after which a fetch is tried again, besides every 5xx.
_TRY_AGAIN = frozenset({408, 425, 429})
#: The most bytes that are read of a page, and the most links that are followed.
BODY_BYTES, LINKS = 1_000_000, 5_000


class Outcome(StrEnum):
    """The outcome of a fetch."""

    FETCHED = "fetched"
    """The page, or the redirect, was received."""

    REFUSED = "refused"
    """The server, or its robots.txt, refused the page, and would refuse it again."""

    FAILED = "failed"
    """The fetch may succeed later."""


@dataclass
class Page:
    """One fetch, as it is stored."""

    task_id: int
    url: str
    depth: int
    attempt: int
    host: str
    started_at: dt.datetime
    ended_at: dt.datetime
    outcome: str = Outcome.FAILED
    status: int | None = None
    content_type: str | None = None
    bytes: int = 0
    links: list[str] = field(default_factory=list)
    error: str | None = None


class Fetcher:
    """Fetches pages of some hosts by one HTTP client, which keeps its connections. Thread-safe."""

    def __init__(self, job: Job, hosts: AbstractSet[str], clock: Clock) -> None:
        """Make a fetcher.

        Args:
            job: The job of the crawler.
            hosts: The hosts that it visits.
            clock: The clock of the moments that are stored.
        """
        self._job, self._hosts, self._clock = job, hosts, clock
        self.client = httpx.Client(
            headers={"user-agent": job.agent, "accept-encoding": "identity"},
            timeout=job.timeout,
            limits=httpx.Limits(max_connections=job.threads * job.consumers),
        )
        #: The rules by origin; `None` if they could not be fetched yet.
        self._robots: dict[str, RobotFileParser | None] = {}
        self._lock = threading.Lock()

    def learn_rules(self, urls: Iterable[str]) -> None:
        """Fetch the robots.txt of the hosts of these URLs, where it is not known yet."""
        with self._lock:
            for origin in {origin_of(url) for url in urls}:
                if self._robots.get(origin) is None:
                    self._robots[origin] = self._robots_of(origin)

    def fetch(self, task: Mapping[str, Any]) -> Page:
        """Fetch one page. The result is a page whatever the server does.

        Args:
            task: `task_id`, `url`, `depth` and `attempt`.
        """
        url, now = str(task["url"]), self._clock.now()
        page = Page(**task, host=host_of(url), started_at=now, ended_at=now)
        try:
            rules = self._robots.get(origin_of(url))
            if rules is None:
                page.error = "the host's robots.txt cannot be had"
            elif not rules.can_fetch(self._job.agent, url):
                page.outcome, page.error = Outcome.REFUSED, "robots.txt forbids it"
            else:
                self._ask(page)
        except Exception as error:  # noqa: BLE001  one page must not make its whole batch fail
            page.outcome, page.error = Outcome.FAILED, f"{type(error).__name__}: {error}"
        page.ended_at = self._clock.now()
        return page

    def _ask(self, page: Page) -> None:
        """Fill in a page from the server's answer."""
        with self.client.stream("GET", page.url) as response:
            page.status, page.outcome = response.status_code, _outcome_of(response)
            page.content_type = response.headers.get("content-type", "").partition(";")[0].strip()
            if page.outcome != Outcome.FETCHED:
                page.error = f"{response.status_code} {response.reason_phrase}".strip()
                return
            links: list[str] = []
            if response.has_redirect_location:
                target = normalise(response.headers["location"], httpx.URL(page.url))
                links = [] if target is None else [target]
            else:
                body = self._body(response)
                page.bytes = len(body)
                if page.content_type == "text/html":
                    links = links_of(body, page.url, response.charset_encoding)
        if self._job.max_depth is None or page.depth < self._job.max_depth:
            page.links = [link for link in links if self._follows(link)][:LINKS]

    def _body(self, response: httpx.Response) -> bytes:
        """Read a body, at most `BODY_BYTES`.

        Raises:
            httpx.ReadTimeout: The page took longer than `job.timeout`. The client's own timeout never ends a page
                whose server sends one byte a second.
        """
        deadline = time.monotonic() + self._job.timeout
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) >= BODY_BYTES:
                break
            if time.monotonic() > deadline:
                msg = "the page took longer than it may"
                raise httpx.ReadTimeout(msg)
        return bytes(body[:BODY_BYTES])

    def _follows(self, link: str) -> bool:
        """Whether a link is on one of the hosts, and is not known to be forbidden."""
        rules = self._robots.get(origin_of(link))
        is_allowed = rules is None or rules.can_fetch(self._job.agent, link)
        return host_of(link) in self._hosts and is_allowed

    def _robots_of(self, origin: str) -> RobotFileParser | None:
        """The rules of a host (RFC 9309); `None`, which forbids everything, if the server fails.

        A host without the file allows everything.
        """
        url = f"{origin}/robots.txt"
        try:
            with self.client.stream("GET", url, follow_redirects=True) as response:
                text = self._body(response).decode(errors="replace")
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        if _outcome_of(response) is Outcome.FAILED:
            return None
        rules = RobotFileParser()
        rules.parse(text.removeprefix("\ufeff").splitlines() if response.is_success else [])
        return rules


def _outcome_of(response: httpx.Response) -> Outcome:
    if response.is_success or response.has_redirect_location:
        return Outcome.FETCHED
    if response.is_server_error or response.status_code in _TRY_AGAIN:
        return Outcome.FAILED
    return Outcome.REFUSED
