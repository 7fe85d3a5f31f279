"""The URLs that a crawl follows: their normal form, the links of a page, hosts and robots.txt.

A URL is an identity: tasks and pages are compared by its text. So every URL passes through
`normalise` before it is queued. Differences whose meaning depends on the server (a trailing slash, the order of a
query) are not changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.robotparser import RobotFileParser

import httpx
from bs4 import BeautifulSoup, Tag
from bs4.exceptions import ParserRejectedMarkup
from bs4.filter import SoupStrainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Longer URLs are traps or data, and most servers refuse them.
URL_LENGTH_LIMIT = 2_048

_SCHEMES = frozenset({"http", "https"})
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
#: Browsers remove these characters from the middle of a link, because an editor may have wrapped the line there.
_LINE_BREAKS = str.maketrans("", "", "\t\r\n")
#: Matches an empty host, and a host with escaped characters.
_NO_HOST = re.compile("^$|%")
_LINKING_TAGS = ("a", "area", "base", "meta")


def normalise(link: str, base: str | None = None) -> str | None:
    """Convert a URL to its normal form.

    Scheme and host become lower case; the default port, the fragment and dot segments are removed; only characters
    that need it are escaped (RFC 3986, section 6.2.2).

    Args:
        link: A URL, or a reference relative to `base`.
        base: The URL of the page with the link.

    Returns:
        The URL; `None` if it cannot be a page: it has another scheme, no host, a login or an unreasonable length, or
        is no URL at all.
    """
    link = link.strip().translate(_LINE_BREAKS)
    if len(link) > URL_LENGTH_LIMIT:
        return None
    try:
        url = httpx.URL(link) if base is None else httpx.URL(base).join(link)
        if url.scheme not in _SCHEMES or url.userinfo or _NO_HOST.search(url.host):
            return None
        # A dot segment may have been hidden in an escape, so the URL is parsed again after unescaping.
        url = httpx.URL(_ESCAPE.sub(_shortest_escape, str(url)))
        text = str(url.copy_with(fragment=None, raw_path=url.raw_path.removesuffix(b"?")))
    except (httpx.InvalidURL, ValueError):
        return None
    return text if len(text) <= URL_LENGTH_LIMIT else None


def is_page(url: object) -> bool:
    """Whether a value is the URL of a page. Other programs may have queued other values."""
    return isinstance(url, str) and normalise(url) is not None


def _shortest_escape(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def host_of(url: str) -> str:
    """The host of a normalised URL, with its port unless that is the scheme's own."""
    return httpx.URL(url).netloc.decode()


def links_of(body: bytes, url: str, charset: str | None = None) -> list[str]:
    """The links of an HTML page, normalised, each once, in the order of the page.

    Honours `<base href>`, and `nofollow` of a link and of the page.

    Args:
        body: The page, perhaps cut off.
        url: The URL from which it was fetched.
        charset: Its encoding according to the server; by default the one that the page names.
    """
    try:
        # Other tags are not built, so that listings of thousands of files parse in milliseconds.
        page = BeautifulSoup(
            body, "html.parser", from_encoding=charset, parse_only=SoupStrainer(_LINKING_TAGS)
        )
    except (ParserRejectedMarkup, RecursionError):
        return []
    if any(_says_nofollow(tag) for tag in page.find_all("meta")):
        return []
    base = _base(page, url)
    found = (normalise(href, base) for href in _hrefs(page))
    return list(dict.fromkeys(link for link in found if link is not None))


def _hrefs(page: BeautifulSoup) -> Iterator[str]:
    for tag in page.find_all(["a", "area"], href=True):
        if "nofollow" not in tag.get_attribute_list("rel"):
            yield str(tag["href"])


def _base(page: BeautifulSoup, url: str) -> str:
    tag = page.find("base", href=True)
    base = None if tag is None else normalise(str(tag["href"]), url)
    return base or url


def _says_nofollow(tag: Tag) -> bool:
    if str(tag.get("name", "")).lower() != "robots":
        return False
    words = {word.strip() for word in str(tag.get("content", "")).lower().split(",")}
    return not words.isdisjoint({"nofollow", "none"})


def parse_robots(text: str) -> RobotFileParser:
    """The rules of a robots.txt; an empty one allows everything."""
    rules = RobotFileParser()
    rules.parse(text.removeprefix("\ufeff").splitlines())
    return rules


@dataclass(frozen=True)
class Scope:
    """The scope of a crawl, which is sent to the executors with each batch.

    Attributes:
        robots: The hosts that it may visit, with the rules of each; `None` if they could not be fetched yet.
        agent: The name by which the crawler introduces itself.
        max_depth: The most links from a seed to a page; `None` is unlimited.
    """

    robots: Mapping[str, RobotFileParser | None]
    agent: str
    max_depth: int | None = None

    def covers(self, url: str) -> bool:
        """Whether a normalised URL is on one of its hosts, and is not known to be forbidden."""
        host = host_of(url)
        if host not in self.robots:
            return False
        rules = self.robots[host]
        return rules is None or rules.can_fetch(self.agent, url)

    def knows_rules_for(self, url: str) -> bool:
        """Whether the host of a URL may be visited, and its rules were fetched."""
        return self.robots.get(host_of(url)) is not None

    def followed(self, links: Iterable[str], depth: int) -> list[str]:
        """The links of a page at `depth` that the crawl follows."""
        if self.max_depth is not None and depth >= self.max_depth:
            return []
        return [link for link in links if self.covers(link)]
