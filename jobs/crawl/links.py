"""URLs and links. A URL is an identity: tasks and pages are compared by its text, so it has one form."""

from __future__ import annotations

import warnings

import httpx
from bs4 import BeautifulSoup, UnusualUsageWarning
from bs4.exceptions import ParserRejectedMarkup
from bs4.filter import SoupStrainer

#: Longer URLs are traps or data, and most servers refuse them.
URL_LENGTH_LIMIT = 2_048
_LINKING_TAGS = ("a", "area", "base", "meta")
# The parser warns about documents that are no HTML. The crawler cannot change them.
warnings.simplefilter("ignore", UnusualUsageWarning)


def normalise(link: str, base: httpx.URL | None = None) -> str | None:
    """Convert a URL to its normal form, without a fragment.

    Args:
        link: A URL, or a reference relative to `base`.
        base: The URL of the page with the link.

    Returns:
        The URL; `None` if it cannot be a page: it has another scheme, no host, a login or an unreasonable length, or
        is no URL at all.
    """
    try:
        url = httpx.URL(link.strip()) if base is None else base.join(link.strip())
        text = str(url.copy_with(fragment=None, raw_path=url.raw_path.removesuffix(b"?")))
    except (httpx.InvalidURL, ValueError):
        return None
    is_page = url.scheme in ("http", "https") and url.host and "%" not in url.host
    return text if is_page and not url.userinfo and len(text) <= URL_LENGTH_LIMIT else None


def host_of(url: str) -> str:
    """The host of a normalised URL, with its port unless that is the scheme's own."""
    return url.split("/", 3)[2]


def origin_of(url: str) -> str:
    """Scheme and host of a normalised URL."""
    return "/".join(url.split("/", 3)[:3])


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
    if _says_nofollow(page):
        return []
    base = httpx.URL(url)
    tag = page.find("base", href=True)
    if tag is not None:
        base = httpx.URL(normalise(str(tag["href"]), base) or url)
    tags = page.find_all(["a", "area"], href=True)
    followed = [tag for tag in tags if "nofollow" not in tag.get_attribute_list("rel")]
    found = [normalise(str(tag["href"]), base) for tag in followed]
    return list(dict.fromkeys(link for link in found if link is not None))


def _says_nofollow(page: BeautifulSoup) -> bool:
    for tag in page.find_all("meta", content=True):
        words = {word.strip() for word in str(tag["content"]).lower().split(",")}
        if str(tag.get("name")).lower() == "robots" and words & {"nofollow", "none"}:
            return True
    return False
