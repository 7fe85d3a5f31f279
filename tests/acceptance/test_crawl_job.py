"""The crawler of `jobs/crawl.py`, on a server of its own: nothing lost, no page stored twice.

Without Spark; what its steps have of their own on Spark is tested there, too.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from loopback import FAULTS, FLAKY_PAGES, TreeHandler, serve
from pyspark.sql import SparkSession
from rich.console import Console

from tests.programs import ROOT, environment
from tubeq_spark import PutItem, Queue, QueueNotFoundError
from tubeq_spark.jobs.crawler.crew import Crawler
from tubeq_spark.jobs.crawler.parts import TUBE
from tubeq_spark.jobs.crawler.run import Job, run
from tubeq_spark.jobs.crawler.settings import Ending, Settings
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Clock
    from tubeq_spark.jobs.crawler.settings import Progress

FOLDERS, FILES = 4, 6
PAGES = 1 + FOLDERS * (1 + FILES)
DEADLINE_S = 300.0
BOTH = pytest.mark.parametrize(
    "spark_or_none",
    ["native", pytest.param("spark", marks=[pytest.mark.thorough, pytest.mark.slow])],
    indirect=True,
)
#: Signals are those of `program`, which knows no engine.
NATIVE = pytest.mark.parametrize("spark_or_none", ["native"], indirect=True)


class CountingHandler(TreeHandler):
    """Counts the visits of each page; a class of its own for each test.

    Only the first `unheld` pages are answered while `open` is not set.
    """

    hits: ClassVar[Counter[str]]
    lock = threading.Lock()
    pause = 0.0
    unheld = 0
    open = threading.Event()
    open.set()

    def do_GET(self) -> None:  # noqa: N802
        is_page = self.path != "/robots.txt"
        with self.lock:
            if is_page:
                self.hits[f"http://{self.headers['host']}{self.path}"] += 1
            is_held = is_page and self.hits.total() > self.unheld
        threading.Event().wait(self.pause)
        if is_held:
            self.open.wait(DEADLINE_S)
        super().do_GET()


class ProcessEndError(Exception):
    """Stands for the end of the process."""


class Watcher:
    """Keeps the states of the tube; fails when the crawl comes to a step."""

    def __init__(self, fatal_step: str | None = None) -> None:
        self.fatal_step = fatal_step
        self.states: list[Progress] = []

    def step(self, consumer: int, name: str) -> None:
        if name == self.fatal_step:
            raise ProcessEndError

    def progress(self, progress: Progress) -> None:
        self.states.append(progress)


class Meeting(Watcher):
    """Lets no consumer link its first batch before all have come to that."""

    def __init__(self, consumers: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(consumers, timeout=DEADLINE_S)
        self.met: set[int] = set()

    def step(self, consumer: int, name: str) -> None:
        if name == "linking" and consumer not in self.met:
            self.met.add(consumer)
            self.barrier.wait()


@pytest.fixture
def handler() -> type[CountingHandler]:
    return type("Handler", (CountingHandler,), {"hits": Counter()})


@pytest.fixture
def root(tmp_path: Path, handler: type[CountingHandler]) -> Iterator[str]:
    """The URL of a small tree."""
    for folder in (tmp_path / "tree" / f"folder {number}" for number in range(FOLDERS)):
        folder.mkdir(parents=True)
        for number in range(FILES):
            (folder / f"{number}.txt").write_text("x" * number)
    with serve([tmp_path / "tree"], handler=handler) as [url]:
        yield url


@pytest.fixture
def queues() -> Iterator[list[Queue]]:
    """The queues of the test's crawlers."""
    opened: list[Queue] = []
    yield opened
    for queue in opened:
        queue.close()


@pytest.fixture
def spark_or_none(request: pytest.FixtureRequest) -> SparkSession | None:
    """The session that a test crawls with; none unless it says so."""
    if getattr(request, "param", "native") == "native":
        return None
    session: SparkSession = request.getfixturevalue("spark")
    return session


def opened(spark: SparkSession | None, location: str, clock: Clock | None = None) -> Queue:
    """A queue of a crawler."""
    engine = "native" if spark is None else "spark"
    return Queue(spark, location, clock=clock, engine=engine)


@pytest.fixture
def new_crawler(
    spark_or_none: SparkSession | None, location: str, queues: list[Queue]
) -> Callable[..., Crawler]:
    """Makes a crawler at the test's location, with a queue for each of its consumers."""

    def new(
        watcher: Watcher | None = None,
        clock: Clock | None = None,
        consumers: int = 1,
        **settings: Any,
    ) -> Crawler:
        own = [opened(spark_or_none, location, clock) for _ in range(consumers)]
        queues.extend(own)
        given = Settings(**{"partitions": 2, **settings})
        return Crawler(spark_or_none, own, given, watcher or Watcher(), lambda: False, clock=clock)

    return new


def fetches(crawler: Crawler) -> list[dict[str, Any]]:
    """Every fetch that is in the table."""
    found: Any = crawler.pages.fetches()  # type: ignore[attr-defined]
    table = found if isinstance(found, pa.Table) else found.toArrow()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def stored(crawler: Crawler) -> Counter[str]:
    """How often each page is in the table."""
    return Counter(row["url"] for row in fetches(crawler) if row["outcome"] == "fetched")


def tasks(location: str) -> dict[str, int]:
    """The tube's tasks by state."""
    with Queue(SparkSession.getActiveSession(), location) as queue:
        return dict(queue.statistics(TUBE)["tasks"])


@NATIVE
def test_crawl_stores_every_page_once(
    location: str,
    root: str,
    handler: type[CountingHandler],
    new_crawler: Callable[..., Crawler],
) -> None:
    crawler = new_crawler(batch_size=10)
    assert crawler.add_seeds([root]) == 1
    assert crawler.add_seeds([root]) == 0

    assert crawler.run() == Ending.FINISHED

    pages = stored(crawler)
    assert len(pages) == PAGES
    assert set(pages.values()) == {1}
    assert handler.hits == pages
    [host] = crawler.pages.by_host(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    assert (host["pages"], host["refusals"], host["failures"]) == (PAGES, 0, 0)
    assert host["recent"] == PAGES
    assert tasks(location)["total"] == 0

    handler.hits.clear()
    again = new_crawler()
    assert again.add_seeds([root]) == 0
    assert again.run() == Ending.FINISHED
    assert handler.hits == Counter()
    assert stored(again) == pages


def test_crawl_ends_at_its_depth(root: str, new_crawler: Callable[..., Crawler]) -> None:
    crawler = new_crawler(max_depth=1)
    crawler.add_seeds([root])

    assert crawler.run() == Ending.FINISHED
    assert len(stored(crawler)) == 1 + FOLDERS


@BOTH
def test_failures_are_released_with_a_delay_and_buried_after_three_attempts(
    location: str, root: str, new_crawler: Callable[..., Crawler]
) -> None:
    watcher = Watcher()
    clock = ManualClock()  # It moves when the crawler waits for the delay, and at no other time.
    crawler = new_crawler(watcher, clock, retry_delay=3.0)
    crawler.add_seeds([root + FAULTS.lstrip("/")])

    assert crawler.run() == Ending.FINISHED

    assert len(stored(crawler)) == 1 + FLAKY_PAGES
    failed = [row for row in fetches(crawler) if row["outcome"] == "failed"]
    failed.sort(key=lambda row: row["attempt"])
    broken = [row for row in failed if row["url"].endswith("broken")]
    assert [(row["attempt"], row["status"]) for row in broken] == [(1, 500), (2, 500), (3, 500)]
    flaky = [row for row in failed if not row["url"].endswith("broken")]
    assert [(row["attempt"], row["status"]) for row in flaky] == [(1, 503)] * FLAKY_PAGES
    delayed = [state.tasks["delayed"] for state in watcher.states if state.tasks["delayed"]]
    assert set(delayed) == {1 + FLAKY_PAGES, 1}
    left = tasks(location)
    assert (left["buried"], left["total"]) == (1, 1)
    assert new_crawler(clock=clock).kick() == 1
    assert tasks(location)["ready"] == 1


@BOTH
def test_crawl_when_others_have_queued_what_is_no_page_buries_it_and_fetches_the_rest(
    location: str, root: str, new_crawler: Callable[..., Crawler]
) -> None:
    clock = ManualClock()
    new_crawler(clock=clock).add_seeds([root])
    strange = [{"url": "http://[bad", "depth": 0}, {"n": 1}, {"url": None}, "text"]
    with Queue(SparkSession.getActiveSession(), location, clock=clock) as queue:
        host = root.removeprefix("http://").removesuffix("/")
        queue[TUBE].put_many([PutItem(data, utube=host) for data in strange])
        by_hand = [{"url": f"{root}?by=hand"}, {"url": f"{root}?by=others", "depth": None}]
        queue[TUBE].put_many(by_hand, utube=host)

    crawler = new_crawler(clock=clock)
    assert crawler.run() == Ending.FINISHED

    pages = stored(crawler)
    assert len(pages) == PAGES + len(by_hand)
    assert set(pages.values()) == {1}
    left = tasks(location)
    assert (left["buried"], left["total"]) == (len(strange), len(strange))


@BOTH
@pytest.mark.parametrize("step", ["linking", "acking"])
def test_crawl_that_ends_between_two_commits_loses_nothing(
    location: str,
    root: str,
    handler: type[CountingHandler],
    new_crawler: Callable[..., Crawler],
    step: str,
) -> None:
    first = new_crawler(max_pages=3)
    first.add_seeds([root])
    assert first.run() == Ending.LIMIT
    assert len(stored(first)) == 3
    with pytest.raises(ProcessEndError):
        new_crawler(Watcher(fatal_step=step), batch_size=4).run()

    # Without seeds: the hosts are those of what is queued and stored.
    second = new_crawler()
    assert second.run() == Ending.FINISHED

    pages = stored(second)
    assert len(pages) == PAGES
    assert set(pages.values()) == {1}
    assert handler.hits == pages
    [host] = second.pages.by_host(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    assert (host["pages"], host["recent"], host["failures"]) == (PAGES, PAGES, 0)
    assert second.add_seeds([root]) == 0
    assert tasks(location)["total"] == 0


@BOTH
def test_consumers_never_fetch_from_a_host_at_once_nor_queue_a_link_twice(
    location: str,
    tmp_path: Path,
    handler: type[CountingHandler],
    queues: list[Queue],
    new_crawler: Callable[..., Crawler],
) -> None:
    trees = [tmp_path / name for name in ("left", "right", "shared")]
    for tree in trees:
        tree.mkdir()
        for number in range(FILES):
            (tree / f"{number}.txt").write_text("x")
    handler.pause = 0.05  # So that fetches last a while.
    with serve(trees, handler=handler) as (left, right, shared):
        # What both of the first pages link to is found by two consumers at the same moment.
        names = [f"{number}.txt" for number in range(FILES)]
        links = "".join(f'<a href="{name}">1</a><a href="{shared}{name}">2</a>' for name in names)
        for tree in trees[:2]:
            (tree / "index.html").write_text(links)
        crawler = new_crawler(Meeting(2), consumers=2)
        for seed in (left, right, f"{shared}0.txt"):
            crawler.add_seeds([seed])

        assert crawler.run() == Ending.FINISHED

    urls = {left, right, *(f"{root}{name}" for root in (left, right, shared) for name in names)}
    assert stored(crawler) == Counter(urls)
    assert handler.hits == Counter(urls)
    facts = crawler.pages.exclusivity()
    assert (facts.fetches, facts.consumers) == (len(urls), 2)
    assert (facts.hosts, facts.overlaps) == (0, 0)
    hosts = {(row["batch"], row["host"]) for row in fetches(crawler)}
    assert len(hosts) == len({batch for batch, _ in hosts})
    history = DeltaTable(f"{location}/_crawl_pages").history()
    writes = [commit for commit in history if commit["operation"] == "WRITE"]
    assert writes
    assert all(commit.get("isBlindAppend", True) for commit in writes)
    for queue in queues:  # So that all counters are written down.
        queue.close()
    with Queue(SparkSession.getActiveSession(), location) as queue:
        statistics = queue.statistics(TUBE)
    assert statistics["tasks"]["total"] == 0
    assert statistics["calls"]["put"] == len(urls)


SCRIPT = ROOT / "jobs" / "crawl.py"


class Program:
    """`jobs/crawl.py` in a process of its own, in a process group as under a shell."""

    def __init__(self, *arguments: str, words: tuple[str, ...] = (str(SCRIPT),)) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words, *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.communicate()

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something has happened that it does."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.poll() is None, self.end()
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)

    def wait_for_line(self, part: str) -> None:
        """Wait until it has said something."""
        assert self.process.stdout is not None
        said: list[str] = []
        for line in self.process.stdout:
            said.append(line)
            if part in line:
                return
        pytest.fail("".join(said))

    def end(self) -> tuple[int, str]:
        """Wait for its end; its exit code and what it said."""
        said, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said


@NATIVE
@pytest.mark.processes
@pytest.mark.timeout(4 * DEADLINE_S)
def test_program_that_is_stopped_goes_on_where_it_was(
    location: str,
    root: str,
    handler: type[CountingHandler],
    new_crawler: Callable[..., Crawler],
) -> None:
    seeds = [root, *(f"{root}folder {number}/" for number in range(FOLDERS))]
    options = ["--location", location, "--lease", "30", "--consumers", "2", "--engine", "native"]
    handler.open, handler.unheld = threading.Event(), len(seeds) + 2
    try:
        with Program(*options, "--batch-size", "8", "--partitions", "1", *seeds) as first:
            first.wait_for(lambda: handler.hits.total() > handler.unheld)
            first.signal(signal.SIGINT)
            first.wait_for_line("Finishing the batch in hand")
            handler.open.set()
            ended_with, said = first.end()
    finally:
        handler.open.set()
    assert ended_with == 130, said
    assert "goes on from here" in said
    assert len(handler.hits) < PAGES

    # The command is the same program as the script, and goes on with what that has left.
    words = ("-m", "tubeq_spark.cli", *options[:2], "crawl")
    with Program(*options[2:], words=words) as second:
        ended_with, said = second.end()
    assert ended_with == 0, said
    assert (
        f"Finished: every page within reach was fetched, refused or buried. {PAGES} pages" in said
    )
    pages = stored(new_crawler())
    assert len(pages) == PAGES
    assert set(pages.values()) == {1}
    # Whoever is asked to stop finishes the batch; nothing is asked for again.
    assert handler.hits == pages
    assert tasks(location)["total"] == 0


def test_run_without_urls_when_there_is_no_queue_creates_none(tmp_path: Path) -> None:
    place = tmp_path / "misspelt"

    with pytest.raises(QueueNotFoundError, match="no queue at"):
        run(None, Job(location=str(place), seeds=[], settings=Settings()), Console(quiet=True))

    assert not place.exists()


@pytest.mark.processes
def test_program_that_is_killed_is_finished_by_the_next_one_and_no_page_is_stored_twice(
    location: str,
    root: str,
    handler: type[CountingHandler],
    new_crawler: Callable[..., Crawler],
) -> None:
    handler.pause = 0.2
    options = ["--location", location, "--lease", "2", "--batch-size", "8", "--partitions", "1"]
    with Program(*options, "--engine", "native", root) as first:
        first.wait_for(lambda: sum(handler.hits.values()) > 2 + FOLDERS)
        first.signal(signal.SIGKILL)
        first.end()
    handler.pause = 0.0

    with Program(*options, "--engine", "native") as second:
        ended_with, said = second.end()

    assert ended_with == 0, said
    pages = stored(new_crawler())
    assert len(pages) == PAGES
    assert set(pages.values()) == {1}
    assert tasks(location)["total"] == 0


@NATIVE
@pytest.mark.processes
@pytest.mark.timeout(4 * DEADLINE_S)
def test_program_that_is_stopped_twice_gives_back_what_it_is_fetching(
    spark_or_none: SparkSession | None, location: str, root: str, handler: type[CountingHandler]
) -> None:
    engine = "native" if spark_or_none is None else "spark"
    handler.open = threading.Event()
    options = ["--location", location, "--timeout", "3000", "--consumers", "2", "--engine", engine]
    try:
        with Program(*options, root) as program:
            program.wait_for(lambda: bool(handler.hits))
            program.signal(signal.SIGINT)
            program.wait_for_line("Finishing the batch in hand")
            program.signal(signal.SIGINT)
            ended_with, said = program.end()
    finally:
        handler.open.set()

    assert ended_with == 130, said
    assert "stopped at once; nothing is lost" in said
    left = tasks(location)
    assert (left["ready"], left["taken"]) == (1, 0)
