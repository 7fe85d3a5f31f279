"""The page table of a crawl without Spark; see `parts.Pages`. Spark's is the same table."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tubeq_spark.jobs.crawler.fetch import PAGE_SCHEMA, Outcome
from tubeq_spark.jobs.crawler.parts import PAGES, Exclusivity

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterable

    from tubeq_spark.jobs.crawler.fetch import Page

_SCHEMA = pa.schema([*PAGE_SCHEMA, ("consumer", pa.string()), ("batch", pa.string())])

_BY_HOST = """
SELECT host,
    count(DISTINCT CASE WHEN outcome = 'fetched' THEN url END) AS pages,
    sum(CASE WHEN outcome = 'fetched' THEN bytes ELSE 0 END) AS bytes,
    count(*) FILTER (WHERE outcome = 'refused') AS refusals,
    count(*) FILTER (WHERE outcome = 'failed') AS failures,
    count(*) FILTER (WHERE started_at >= to_timestamp_micros({since_us})) AS recent
FROM pages GROUP BY host ORDER BY pages DESC, host LIMIT {limit}
"""
#: The fetches that began while another consumer was fetching from the same host. If two began at the same moment,
#: both are included; a fetch that began at the moment at which another ended is not. So ends are sorted before starts
#: of the same moment, and all starts of a moment count each other.
_OVERLAPPING = """
WITH events AS (
    SELECT host, consumer, started_at AS moment, 1 AS change FROM pages
    UNION ALL SELECT host, consumer, ended_at, -1 FROM pages
), counted AS (
    SELECT host, consumer, moment, change,
        sum(change) OVER (PARTITION BY host ORDER BY moment, change RANGE UNBOUNDED PRECEDING)
        - sum(change) OVER (
            PARTITION BY host, consumer ORDER BY moment, change RANGE UNBOUNDED PRECEDING
        ) AS others
    FROM events
)
SELECT host, consumer, moment AS started_at, others FROM counted WHERE change = 1 AND others > 0
"""
_SETTLED = f"outcome <> '{Outcome.FAILED.value}'"


def _path(location: str) -> str:
    """A location in a form that the library accepts. It does not accept a file URI with one slash."""
    parts = urlsplit(location)
    return (unquote(parts.path) if parts.scheme == "file" else location).rstrip("/")


class NativePages:
    """The pages of the crawl at a location. Thread-safe."""

    def __init__(self, location: str) -> None:
        """Open the table, or create it empty.

        Args:
            location: The location of the queue: a path or a URI.
        """
        # With Delta's default interval of checkpoints later batches would read a hundred commits.
        self._table = DeltaTable.create(
            f"{_path(location)}/{PAGES}",
            schema=_SCHEMA,
            mode="ignore",
            configuration={"delta.checkpointInterval": "10"},
        )
        self._lock = threading.Lock()
        self._settled: set[str] = set()
        #: The version whose settled URLs are known.
        self._known_at = -1

    def append(self, pages: Collection[Page], *, consumer: str, batch: str) -> None:
        """Store a consumer's fetches of a batch, in one commit; none without fetches.

        An append conflicts only with a change of the table's definition, which no program makes.
        """
        if not pages:
            return
        rows = [vars(page) | {"consumer": consumer, "batch": batch} for page in pages]
        new = pa.Table.from_pylist(rows, _SCHEMA)
        settled = {page.url for page in pages if page.outcome != Outcome.FAILED}
        with self._lock:
            before = self._table.version()
            write_deltalake(self._table, new, mode="append")
            self._settled |= settled
            # Otherwise others have written, too, and their URLs are not known.
            if self._known_at == before and self._table.version() == before + 1:
                self._known_at = before + 1

    def settled(self, urls: Iterable[str]) -> set[str]:
        """The URLs among these that need no further fetch."""
        with self._lock:
            self._table.update_incremental()
            if self._known_at != self._table.version():
                found = self._read(f"SELECT DISTINCT url FROM pages WHERE {_SETTLED}")
                self._settled = set(found.column("url").to_pylist())
                self._known_at = self._table.version()
            return self._settled.intersection(urls)

    def links_of(self, urls: Collection[str]) -> list[tuple[int, list[str]]]:
        """The depths and links of stored pages."""
        if not urls:
            return []
        named = ", ".join("'{}'".format(url.replace("'", "''")) for url in urls)
        found = self._now(f"SELECT depth, links FROM pages WHERE {_SETTLED} AND url IN ({named})")
        return [(row["depth"], row["links"]) for row in found.to_pylist()]

    def urls(self) -> list[str]:
        """Every URL that was ever fetched, or tried."""
        found: list[str] = self._now("SELECT DISTINCT url FROM pages").column("url").to_pylist()
        return found

    def fetches(self) -> pa.Table:
        """Every fetch, as of now."""
        return self._now("SELECT * FROM pages")

    def fetched_count(self) -> int:
        """As of `Pages`."""
        wanted = f"outcome = '{Outcome.FETCHED.value}'"
        found = self._now(f"SELECT count(DISTINCT url) AS urls FROM pages WHERE {wanted}")
        return int(found.column("urls")[0].as_py())

    def by_host(self, since: dt.datetime, limit: int = 50) -> list[dict[str, Any]]:
        """As of `Pages`."""
        since_us = round(since.timestamp() * 1_000_000)
        found: list[dict[str, Any]] = self._now(
            _BY_HOST.format(since_us=since_us, limit=limit)
        ).to_pylist()
        return found

    def exclusivity(self) -> Exclusivity:
        """As of `Pages`."""
        [all_of_them] = self._now(
            "SELECT count(*) AS fetches, count(DISTINCT consumer) AS consumers FROM pages"
        ).to_pylist()
        [wrong] = self._now(
            f"SELECT count(DISTINCT host) AS hosts, count(*) AS overlaps FROM ({_OVERLAPPING})"
        ).to_pylist()
        return Exclusivity(**all_of_them, **wrong)

    def overlapping(self) -> list[dict[str, Any]]:
        """The fetches that began while another consumer was fetching from the same host.

        Moments of several processes can only be compared as far as their clocks agree.

        Returns:
            One row for each fetch: `host`, `consumer`, `started_at`, and `others`, the number of running fetches of
            other consumers.
        """
        found: list[dict[str, Any]] = self._now(_OVERLAPPING).to_pylist()
        return found

    def _now(self, query: str) -> pa.Table:
        with self._lock:
            self._table.update_incremental()
            return self._read(query)

    def _read(self, query: str) -> pa.Table:
        return pa.table(QueryBuilder().register("pages", self._table).execute(query).read_all())
