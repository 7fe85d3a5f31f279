"""What the crawler of `jobs/crawl` makes of the answers of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crawl.fetch
import httpx
import pytest
from crawl.fetch import Fetcher, Outcome, Page
from crawl.job import Job

from tubeq_spark import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://example.org/dir/page.html"


def fetched(
    answer: Callable[[httpx.Request], httpx.Response],
    robots: httpx.Response | None = None,
    **job: Any,
) -> Page:
    """The page of `URL` from a server that answers so."""

    def answer_all(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/robots.txt":
            return robots or httpx.Response(404)
        return answer(request)

    given = Job(location="", seeds=[], **job)
    fetcher = Fetcher(given, {"example.org"}, SystemClock())
    with fetcher.client, httpx.Client(transport=httpx.MockTransport(answer_all)) as client:
        fetcher.client = client
        fetcher.learn_rules([URL])
        return fetcher.fetch({"task_id": 7, "url": URL, "depth": 1, "attempt": 2})


def answering(status: int, **options: Any) -> Callable[[httpx.Request], httpx.Response]:
    """A server with one answer."""
    return lambda _: httpx.Response(status, **options)


def test_page_is_stored_with_its_links_on_the_hosts_of_the_crawl() -> None:
    html = '<a href="next">n</a><a href="http://other.example/">elsewhere</a>'

    page = fetched(answering(200, html=html))

    assert (page.task_id, page.depth, page.attempt, page.host) == (7, 1, 2, "example.org")
    assert (page.outcome, page.status, page.error) == (Outcome.FETCHED, 200, None)
    assert (page.content_type, page.bytes) == ("text/html", len(html))
    assert page.links == ["http://example.org/dir/next"]
    assert fetched(answering(200, html=html), max_depth=1).links == []
    assert fetched(answering(200, text=html)).links == []


def test_page_that_is_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl.fetch, "BODY_BYTES", 250)

    assert fetched(answering(200, content=(b"x" * 100 for _ in range(5)))).bytes == 250


def test_page_that_takes_too_long_fails() -> None:
    page = fetched(answering(200, content=(b"x" for _ in range(2))), timeout=1e-9)

    assert page.outcome == Outcome.FAILED
    assert page.error == "ReadTimeout: the page took longer than it may"


@pytest.mark.parametrize(
    ("target", "links"),
    [("/there", ["http://example.org/there"]), ("http://other.example/", []), ("http://[", [])],
)
def test_redirect_is_stored_as_a_link(target: str, links: list[str]) -> None:
    page = fetched(answering(302, headers={"location": target}))

    assert (page.outcome, page.status, page.links) == (Outcome.FETCHED, 302, links)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (304, Outcome.REFUSED),
        (403, Outcome.REFUSED),
        (404, Outcome.REFUSED),
        (408, Outcome.FAILED),
        (429, Outcome.FAILED),
        (500, Outcome.FAILED),
        (503, Outcome.FAILED),
    ],
)
def test_error_is_refused_for_good_or_may_go_better_next_time(
    status: int, outcome: Outcome
) -> None:
    page = fetched(answering(status, html='<a href="x">x</a>'))

    assert (page.outcome, page.status, page.links) == (outcome, status, [])
    assert (page.error or "").startswith(str(status))


def test_broken_connection_is_a_failed_page() -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        msg = "no"
        raise httpx.ConnectError(msg)

    page = fetched(fail)

    assert (page.outcome, page.error) == (Outcome.FAILED, "ConnectError: no")


@pytest.mark.parametrize(
    ("robots", "outcome"),
    [
        (httpx.Response(200, text="User-agent: *\nDisallow: /dir"), Outcome.REFUSED),
        (httpx.Response(200, text="\ufeffuser-AGENT: TUBEQ-crawl\r\ndisallow: /"), Outcome.REFUSED),
        (httpx.Response(200, text="User-agent: other\nDisallow: /"), Outcome.FETCHED),
        (httpx.Response(200, text="<html>not found</html>"), Outcome.FETCHED),
        (httpx.Response(403), Outcome.FETCHED),
        (httpx.Response(503), Outcome.FAILED),
    ],
)
def test_server_is_asked_as_its_robots_txt_allows(robots: httpx.Response, outcome: Outcome) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200)

    assert fetched(answer, robots).outcome == outcome
    assert len(asked) == (outcome == Outcome.FETCHED)
