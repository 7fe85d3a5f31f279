"""The crawler of `jobs/crawl` handles each kind of answer of a server, and each form of a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crawl.fetch
import httpx
import pytest
from crawl.fetch import Fetcher, Outcome, Page
from crawl.job import Job
from crawl.links import host_of, links_of, normalise

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


# -- links -------------------------------------------------------------------------------------------


BASE = "http://example.org/dir/page.html"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("http://example.org", "http://example.org/"),
        ("HTTP://Example.ORG:80/A", "http://example.org/A"),
        ("http://example.org:8080/", "http://example.org:8080/"),
        ("http://example.org/a/../b/./c", "http://example.org/b/c"),
        ("http://example.org/a b?x=ü#part", "http://example.org/a%20b?x=%C3%BC"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("../up", "http://example.org/up"),
        ("?q=1", "http://example.org/dir/page.html?q=1"),
        ("?#part", BASE),
        ("//other.example/x", "http://other.example/x"),
    ],
)
def test_link_has_one_form(link: str, expected: str) -> None:
    assert normalise(link, httpx.URL(BASE)) == expected
    assert normalise(expected) == expected


@pytest.mark.parametrize(
    "link",
    [
        "mailto:someone@example.org",
        "javascript:void(0)",
        "data:text/html,x",
        "http://user:password@example.org/",
        "http://[::1",
        "http://example.org:port/",
        "http://two words/",
        "http://example.org/\x00",
        "http://example.org/" + "a" * 2_048,
    ],
)
def test_link_that_is_no_page_is_left_out(link: str) -> None:
    assert normalise(link, httpx.URL(BASE)) is None


def test_relative_link_needs_a_base() -> None:
    assert normalise("/path") is None


def test_host_has_its_port_unless_it_is_that_of_the_scheme() -> None:
    assert host_of("http://example.org:8080/x") == "example.org:8080"
    assert host_of("http://example.org/x") == "example.org"


def test_links_come_once_each_in_the_order_of_the_page() -> None:
    html = b"""<a href="b">1</a><map><area href="/c"></map><a href="b#x">2</a><a name="here">no link</a>
        <a rel="noopener nofollow" href="z">z</a><link href="style.css"><a href="a">3</a><a href="d"""

    names = [link.removeprefix("http://example.org/") for link in links_of(html, BASE)]
    assert names == ["dir/b", "c", "dir/a"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<base href="/root/">', ["http://example.org/root/b"]),
        ('<base href="mailto:nobody">', ["http://example.org/dir/b"]),
        ('<meta name="robots" content="noindex">', ["http://example.org/dir/b"]),
        ('<meta name="Robots" content="noindex, NoFollow">', []),
    ],
)
def test_links_follow_what_the_head_of_the_page_says(head: str, expected: list[str]) -> None:
    assert links_of(f'<head>{head}</head><a href="b">b</a>'.encode(), BASE) == expected


@pytest.mark.parametrize("html", [b"", b"\x00\xff\xfe<a", b"<![foo[", b"<a href", b"<" * 9_000])
def test_garbage_has_no_links(html: bytes) -> None:
    assert links_of(html, BASE) == []
