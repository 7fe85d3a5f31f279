"""The page table of a crawl, a Delta table beside the queue.

A row is one fetch. It is appended with all others of its batch in one commit, and never changed. A URL that was
fetched, or refused for good, is not fetched again: it has one such row, after any number of failed attempts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from crawl.fetch import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from crawl.fetch import Page

NAME = "_crawl_pages"
_SCHEMA = pa.schema(
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
        ("links", pa.list_(pa.string())),
        ("error", pa.string()),
        ("consumer", pa.string()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("ended_at", pa.timestamp("us", tz="UTC")),
    ]
)
_BY_HOST = """
SELECT host,
    count(*) FILTER (WHERE outcome = 'fetched') AS pages,
    sum(bytes) AS bytes,
    count(*) FILTER (WHERE outcome = 'refused') AS refusals,
    count(*) FILTER (WHERE outcome = 'failed') AS failures
FROM pages GROUP BY host ORDER BY pages DESC, host LIMIT 50
"""
_FACTS = """
SELECT count(*) AS fetches, count(DISTINCT consumer) AS consumers,
    count(*) FILTER (WHERE outcome <> 'failed') AS settled,
    count(DISTINCT CASE WHEN outcome <> 'failed' THEN url END) AS urls
FROM pages
"""
#: The hosts with fetches that began while another consumer was fetching from them. If two began at the same moment,
#: both count; a fetch that began at the moment at which another ended does not. So ends come before starts of the
#: same moment, and all starts of a moment count each other.
_SHARED = """
WITH events AS (
    SELECT host, consumer, started_at AS moment, 1 AS change FROM pages
    UNION ALL SELECT host, consumer, ended_at, -1 FROM pages
), counted AS (
    SELECT host, change,
        sum(change) OVER (PARTITION BY host ORDER BY moment, change RANGE UNBOUNDED PRECEDING)
        - sum(change) OVER (
            PARTITION BY host, consumer ORDER BY moment, change RANGE UNBOUNDED PRECEDING
        ) AS others
    FROM events
)
SELECT count(DISTINCT host) AS hosts FROM counted WHERE change = 1 AND others > 0
"""


@dataclass(frozen=True)
class Proof:
    """What the page table proves.

    Attributes:
        fetches: The number of fetches.
        consumers: The number of consumers that have fetched.
        urls: The number of URLs that were fetched, or refused for good.
        twice: The number of stored rows of these beyond one for each, which should be 0.
        shared: The number of hosts from which two consumers fetched at once, which should be 0.
    """

    fetches: int
    consumers: int
    urls: int
    twice: int
    shared: int

    @property
    def holds(self) -> bool:
        """Whether each page was fetched exactly once, and each host by one consumer at a time."""
        return not (self.twice or self.shared)


class PageTable:
    """The pages of the crawl at a location, which one process writes. Thread-safe."""

    def __init__(self, location: str) -> None:
        """Open the table, or create it empty.

        Args:
            location: The folder of the queue.
        """
        # With Delta's default interval of checkpoints later batches would read a hundred commits.
        self._table = DeltaTable.create(
            f"{location}/{NAME}",
            schema=_SCHEMA,
            mode="ignore",
            configuration={"delta.checkpointInterval": "10"},
        )
        self._lock = threading.Lock()
        found = self.query("SELECT DISTINCT url FROM pages WHERE outcome <> 'failed'")
        self._settled = {row["url"] for row in found}

    def append(self, pages: Collection[Page], consumer: str) -> None:
        """Store a consumer's fetches of a batch, in one commit; none without fetches."""
        if not pages:
            return
        rows = [vars(page) | {"consumer": consumer} for page in pages]
        with self._lock:
            write_deltalake(self._table, pa.Table.from_pylist(rows, _SCHEMA), mode="append")
            self._settled |= {page.url for page in pages if page.outcome != Outcome.FAILED}

    def settled(self, urls: Iterable[str]) -> set[str]:
        """The URLs among these that need no further fetch."""
        with self._lock:
            return self._settled.intersection(urls)

    def urls(self) -> set[str]:
        """Every URL that was ever fetched, or tried."""
        return {row["url"] for row in self.query("SELECT DISTINCT url FROM pages")}

    def links_of(self, urls: Collection[str]) -> list[tuple[int, list[str]]]:
        """The depths and links of stored pages."""
        if not urls:
            return []
        named = ", ".join("'{}'".format(url.replace("'", "''")) for url in urls)
        found = self.query(f"SELECT depth, links FROM pages WHERE url IN ({named})")
        return [(row["depth"], row["links"]) for row in found]

    def fetched_count(self) -> int:
        """The number of pages."""
        [row] = self.query("SELECT count(*) AS pages FROM pages WHERE outcome = 'fetched'")
        return int(row["pages"])

    def by_host(self) -> list[dict[str, Any]]:
        """The hosts with most pages: `host, pages, bytes, refusals, failures`."""
        return self.query(_BY_HOST)

    def proof(self) -> Proof:
        """Whether each page was fetched exactly once, and each host by one consumer at a time."""
        [facts], [shared] = self.query(_FACTS), self.query(_SHARED)
        twice = facts.pop("settled") - facts["urls"]
        return Proof(**facts, twice=twice, shared=shared["hosts"])

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query of the table `pages`, as of now."""
        with self._lock:
            found = QueryBuilder().register("pages", self._table).execute(sql).read_all()
        rows: list[dict[str, Any]] = pa.table(found).to_pylist()
        return rows
