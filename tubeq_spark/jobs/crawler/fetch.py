"""Fetches pages on the executors, with limits of time and size, several at once in each partition.

This module does not use Spark: a partition is an iterator of Arrow batches, in and out.

Redirects are not followed, but stored as a page whose only link is their target. So the target is
filtered, queued and fetched once, like any other URL.
"""

from __future__ import annotations

import datetime as dt
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
from bs4 import UnusualUsageWarning

from tubeq_spark.jobs.crawler.urls import Scope, host_of, links_of, normalise, parse_robots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from urllib.robotparser import RobotFileParser

#: Status codes after which a fetch is retried, besides every 5xx.
_TRY_AGAIN = frozenset({408, 425, 429})
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_ROBOTS_BYTES = 500_000
#: The number of pages in a batch of results. It is small, so that few links are in memory at a time.
_PAGES_A_BATCH = 64
PAGE_SCHEMA = pa.schema(
    [
        ("task_id", pa.int64()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("depth", pa.int32()),
        ("attempt", pa.int32()),
        ("outcome", pa.string()),
        ("status", pa.int32()),
        ("content_type", pa.string()),
        ("bytes", pa.int64()),
        ("truncated", pa.bool_()),
        ("links", pa.list_(pa.string())),
        ("error", pa.string()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("ended_at", pa.timestamp("us", tz="UTC")),
    ]
)


class Outcome(StrEnum):
    """The outcome of a fetch."""

    FETCHED = "fetched"
    """The page, or the redirect, was received."""

    REFUSED = "refused"
    """The server, or its robots.txt, refused the page, and would refuse it again."""

    FAILED = "failed"
    """The fetch may succeed later."""


@dataclass(frozen=True)
class Limits:
    """The limits of one fetch.

    Attributes:
        seconds: The longest time for a whole page, and for each wait for the server, > 0.
        body_bytes: The most bytes of a body that are read, >= 1; the rest is not fetched.
        links: The most links of a page that are followed, >= 0.
        threads: The number of parallel fetches in a partition, >= 1.
    """

    seconds: float = 10.0
    body_bytes: int = 1_000_000
    links: int = 5_000
    threads: int = 8


@dataclass
class Page:
    """One fetch, as it is stored; the fields of `PAGE_SCHEMA`."""

    task_id: int
    url: str
    host: str
    depth: int
    attempt: int
    started_at: dt.datetime
    ended_at: dt.datetime
    outcome: str = Outcome.FAILED
    status: int | None = None
    content_type: str | None = None
    bytes: int = 0
    truncated: bool = False
    links: list[str] = field(default_factory=list)
    error: str | None = None


def fetcher(
    scope: Scope, limits: Limits
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that fetches a partition.

    Args:
        scope: The scope of the crawl.
        limits: The limits of a fetch.

    Returns:
        A function that maps rows of `task_id, url, depth, attempt` to rows of `PAGE_SCHEMA`.
    """

    def fetch_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The parser's warnings about documents that are no HTML do not help: the crawler cannot change them.
        warnings.simplefilter("ignore", UnusualUsageWarning)
        with (
            new_client(scope.agent, limits) as client,
            ThreadPoolExecutor(limits.threads, "fetch") as pool,
        ):
            for batch in batches:
                pages = pool.map(lambda task: fetch(client, task, scope, limits), batch.to_pylist())
                while rows := [vars(page) for page in islice(pages, _PAGES_A_BATCH)]:
                    yield pa.RecordBatch.from_pylist(rows, PAGE_SCHEMA)

    return fetch_partition


def new_client(agent: str, limits: Limits) -> httpx.Client:
    """An HTTP client that keeps its connections, and has the time limits of a fetch."""
    return httpx.Client(
        headers={"user-agent": agent, "accept-encoding": "identity"},
        timeout=limits.seconds,
        limits=httpx.Limits(max_connections=limits.threads),
    )


def fetch(client: httpx.Client, task: Mapping[str, Any], scope: Scope, limits: Limits) -> Page:
    """Fetch one page. The result is a page whatever the server does.

    Args:
        client: From `new_client`.
        task: `task_id`, `url`, `depth` and `attempt`.
        scope: The scope of the crawl.
        limits: The limits of the fetch.
    """
    url = str(task["url"])
    now = dt.datetime.now(dt.UTC)  # noqa: TID251  an executor is given no clock
    page = Page(host="", started_at=now, ended_at=now, **task)
    started = time.monotonic()
    try:
        page.host = host_of(url)
        if not scope.knows_rules_for(url):
            page.error = "the host's robots.txt cannot be had"
        elif not scope.covers(url):
            page.outcome, page.error = Outcome.REFUSED, "robots.txt forbids it"
        else:
            with client.stream("GET", url) as response:
                _read(response, page, started + limits.seconds, scope, limits)
    except Exception as exc:  # noqa: BLE001  one page must not make its whole batch fail
        page.outcome, page.error = Outcome.FAILED, f"{type(exc).__name__}: {exc}"
    page.ended_at += dt.timedelta(seconds=time.monotonic() - started)
    return page


def _read(
    response: httpx.Response, page: Page, deadline: float, scope: Scope, limits: Limits
) -> None:
    """Fill in a page from its response."""
    page.status = response.status_code
    page.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    page.outcome = _outcome_of(response)
    if page.outcome != Outcome.FETCHED:
        page.error = f"{response.status_code} {response.reason_phrase}".strip()
        return
    links: Iterable[str] = ()
    if response.has_redirect_location:
        target = normalise(response.headers["location"], page.url)
        links = [] if target is None else [target]
    else:
        body, page.truncated = _body(response, limits.body_bytes, deadline)
        page.bytes = len(body)
        if page.content_type in _HTML:
            links = links_of(body, page.url, response.charset_encoding)
    page.links = scope.followed(links, page.depth)[: limits.links]


def _outcome_of(response: httpx.Response) -> Outcome:
    if response.is_success or response.has_redirect_location:
        return Outcome.FETCHED
    if response.is_server_error or response.status_code in _TRY_AGAIN:
        return Outcome.FAILED
    return Outcome.REFUSED


def _body(response: httpx.Response, most: int, deadline: float) -> tuple[bytes, bool]:
    """Read a body; also return whether it has more than `most` bytes.

    Raises:
        httpx.ReadTimeout: The deadline has passed. The client's own timeout would not end a body of which a server
            sends one byte a second.
    """
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > most:
            return bytes(body[:most]), True
        if time.monotonic() > deadline:
            msg = "the page took longer than it may"
            raise httpx.ReadTimeout(msg)
    return bytes(body), False


def load_robots(
    origins: Mapping[str, str], agent: str, limits: Limits
) -> dict[str, RobotFileParser | None]:
    """Fetch the robots.txt of hosts (RFC 9309).

    Args:
        origins: The root URLs by host.
        agent: The name of the crawler.
        limits: The limits of each fetch.

    Returns:
        The rules by host. A host without the file allows everything. If the server fails or cannot be reached, its
        value is `None`, which forbids everything until it answers.
    """
    with new_client(agent, limits) as client, ThreadPoolExecutor(limits.threads) as pool:
        rules = pool.map(lambda origin: _robots_of(client, origin, limits), origins.values())
        return dict(zip(origins, rules, strict=True))


def _robots_of(client: httpx.Client, origin: str, limits: Limits) -> RobotFileParser | None:
    deadline = time.monotonic() + limits.seconds
    try:
        with client.stream("GET", f"{origin}robots.txt", follow_redirects=True) as response:
            body, _ = _body(response, _ROBOTS_BYTES, deadline)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    if response.is_server_error or response.status_code in _TRY_AGAIN:
        return None
    return parse_robots(body.decode(errors="replace") if response.is_success else "")
