"""The query by which a crawl shows that no host was fetched by two consumers at once."""

from __future__ import annotations

import datetime as dt
import io
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.beside import beside_spark
from tubeq_spark import Queue
from tubeq_spark.jobs.crawler.fetch import Page
from tubeq_spark.jobs.crawler.native.pages import NativePages
from tubeq_spark.jobs.crawler.parts import Exclusivity
from tubeq_spark.jobs.crawler.run import Job, run
from tubeq_spark.jobs.crawler.settings import Settings
from tubeq_spark.jobs.crawler.tables import FETCH_COLUMNS, PageTable, overlapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

#: By host: fetches as consumer, first and last second; then those that overlap, with how many.
CASES: dict[str, tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]] = {
    "one after the other": ([("a", 0, 10), ("b", 10, 20), ("a", 21, 30)], []),
    "one consumer": ([("a", 0, 10), ("a", 5, 15)], []),
    "partly": ([("a", 0, 10), ("b", 5, 15)], [("b", 5, 1)]),
    "inside": ([("a", 0, 10), ("b", 3, 4)], [("b", 3, 1)]),
    "a moment": ([("a", 0, 10), ("b", 3, 3)], [("b", 3, 1)]),
    "moments": ([("a", 0, 0), ("b", 0, 0)], []),
    "same start": ([("a", 0, 10), ("b", 0, 5)], [("a", 0, 1), ("b", 0, 1)]),
    "behind a longer one of its own": (
        [("a", 0, 10), ("b", 1, 30), ("b", 5, 6), ("b", 12, 13)],
        [("b", 1, 1), ("b", 5, 1)],
    ),
    "three": ([("a", 0, 10), ("b", 1, 10), ("c", 2, 10)], [("b", 1, 1), ("c", 2, 2)]),
}


def at(second: int) -> dt.datetime:
    return NOON + dt.timedelta(seconds=second)


def page(host: str, number: int, begun: int, ended: int) -> Page:
    return Page(
        number, f"http://{host}/{number}", host, 0, 1, at(begun), at(ended), "fetched", bytes=1
    )


def test_overlapping_when_there_is_no_spark_finds_the_same(location: str) -> None:
    pages = NativePages(location)
    for host, (fetches, _) in CASES.items():
        for number, (consumer, begun, ended) in enumerate(fetches):
            pages.append([page(host, number, begun, ended)], consumer=consumer, batch="b")

    found = defaultdict(list)
    for row in pages.overlapping():
        begun = (row["started_at"] - NOON).seconds
        found[row["host"]].append((row["consumer"], begun, row["others"]))

    assert {host: sorted(rows) for host, rows in found.items()} == {
        host: overlaps for host, (_, overlaps) in CASES.items() if overlaps
    }


def test_run_when_there_is_no_spark_and_two_consumers_fetched_a_host_at_once_fails_and_says_so(
    location: str,
) -> None:
    pages = NativePages(location)
    for number, (consumer, begun, ended) in enumerate([("a", 0, 10), ("b", 9, 19)]):
        pages.append([page("h", number, begun, ended)], consumer=consumer, batch=str(number))
    assert pages.exclusivity() == Exclusivity(fetches=2, consumers=2, hosts=1, overlaps=1)
    Queue(None, location, engine="native").close()
    said = io.StringIO()

    code = run(None, Job(location=location, seeds=[], settings=Settings()), Console(file=said))

    assert code == 3
    assert "WRONG: hosts fetched by two consumers at once: 1 (of 2 fetches" in said.getvalue()


@pytest.mark.thorough
def test_overlapping_when_consumers_share_a_host_counts_each_late_beginner(
    spark: SparkSession,
) -> None:
    rows = [
        (host, consumer, at(begun), at(ended))
        for host, (fetches, _) in CASES.items()
        for consumer, begun, ended in fetches
    ]
    fetches = spark.createDataFrame(
        rows, "host STRING, consumer STRING, started_at TIMESTAMP, ended_at TIMESTAMP"
    )

    found = defaultdict(list)
    for row in overlapping(fetches).toArrow().to_pylist():
        begun = (row["started_at"] - NOON).seconds
        found[row["host"]].append((row["consumer"], begun, row["others"]))

    assert {host: sorted(rows) for host, rows in found.items()} == {
        host: overlaps for host, (_, overlaps) in CASES.items() if overlaps
    }


@pytest.mark.thorough
def test_run_when_two_consumers_fetched_a_host_at_once_fails_and_says_so(
    spark: SparkSession, location: str
) -> None:
    pages = PageTable(spark, location)
    for number, (consumer, begun, ended) in enumerate([("a", 0, 10), ("b", 9, 19)]):
        row: dict[str, Any] = {
            "task_id": number,
            "url": f"http://h/{number}",
            "host": "h",
            "depth": 0,
            "attempt": 1,
            "outcome": "fetched",
            "bytes": 1,
            "links": [],
            "started_at": at(begun),
            "ended_at": at(ended),
        }
        fetched = spark.createDataFrame([row], FETCH_COLUMNS)
        pages.append(fetched, consumer=consumer, batch=str(number))
    assert pages.exclusivity() == Exclusivity(fetches=2, consumers=2, hosts=1, overlaps=1)
    beside_spark(location).close()
    said = io.StringIO()

    code = run(spark, Job(location=location, seeds=[], settings=Settings()), Console(file=said))

    assert code == 3
    assert (
        "WRONG: hosts fetched by two consumers at once: 1 (of 2 fetches by 2 consumers)"
        in said.getvalue()
    )
