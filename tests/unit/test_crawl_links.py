"""Which URLs the crawler of `jobs/crawl` makes of the links of a page."""

from __future__ import annotations

import httpx
import pytest
from crawl.links import host_of, links_of, normalise

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
