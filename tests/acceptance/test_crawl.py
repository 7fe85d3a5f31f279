"""The crawler of `jobs/crawl`, on a server of its own: nothing is lost, no page is stored twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytest
from crawl.frontier import TUBE
from crawl.job import Job
from crawl.pages import PageTable
from crawl.run import run
from crawl.screen import Screen
from filelock import FileLock
from loopback import FAULTS, FLAKY_PAGES, TreeHandler, serve
from rich.console import Console

from tests.programs import ROOT, environment
from tubeq_spark import Queue, QueueNotFoundError
from tubeq_spark.programs import BadUseError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDERS, FILES = 4, 6
PAGES = 1 + FOLDERS * (1 + FILES)
DEADLINE_S = 300.0


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


@pytest.fixture
def handler() -> type[CountingHandler]:
    return type("Handler", (CountingHandler,), {"hits": Counter()})


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The location of the crawl."""
    return str(tmp_path / "queue")


@pytest.fixture
def root(tmp_path: Path, handler: type[CountingHandler]) -> Iterator[str]:
    """The URL of a small tree."""
    for folder in (tmp_path / "tree" / f"folder {number}" for number in range(FOLDERS)):
        folder.mkdir(parents=True)
        for number in range(FILES):
            (folder / f"{number}.txt").write_text("x" * number)
    with serve([tmp_path / "tree"], handler=handler) as [url]:
        yield url


def crawled(place: str, *seeds: str, clock: ManualClock | None = None, **options: Any) -> str:
    """Crawl until the end; returns what was said."""
    said = StringIO()
    job = Job(location=place, seeds=seeds, **options)
    assert run(job, Console(file=said, width=200), clock) == 0, said.getvalue()
    return said.getvalue()


def stored(place: str) -> Counter[str]:
    """How often each page is in the table."""
    rows = PageTable(place).query("SELECT url FROM pages WHERE outcome = 'fetched'")
    return Counter(row["url"] for row in rows)


def tasks(place: str) -> dict[str, int]:
    """The tube's tasks by state."""
    with Queue(None, place) as queue:
        return dict(queue.statistics(TUBE)["tasks"])


def assert_whole(place: str) -> None:
    """Every page is in the table, once, and no task is left."""
    pages = stored(place)
    assert len(pages) == PAGES
    assert set(pages.values()) == {1}
    assert tasks(place)["total"] == 0


def test_crawl_stores_every_page_once(
    place: str, root: str, handler: type[CountingHandler]
) -> None:
    said = crawled(place, root, batch_size=10)

    assert (
        f"Finished: every page within reach was fetched, refused or buried. {PAGES} pages" in said
    )
    assert f"pages fetched twice: 0 (of {PAGES})" in said
    assert_whole(place)
    assert handler.hits == stored(place)

    handler.hits.clear()
    crawled(place, root)
    assert handler.hits == Counter()


def test_failures_come_back_after_a_delay_and_are_buried_after_three_attempts(
    place: str, root: str
) -> None:
    clock = ManualClock()  # It moves when the crawler waits for the delay, and at no other time.

    said = crawled(place, root + FAULTS.lstrip("/"), clock=clock, retry_delay=3.0)

    assert f"delayed {1 + FLAKY_PAGES}" in said
    assert "buried 1" in said
    assert len(stored(place)) == 1 + FLAKY_PAGES
    failed = PageTable(place).query(
        "SELECT url, attempt, status FROM pages WHERE outcome = 'failed' ORDER BY attempt"
    )
    broken = [row for row in failed if row["url"].endswith("broken")]
    assert [(row["attempt"], row["status"]) for row in broken] == [(1, 500), (2, 500), (3, 500)]
    flaky = [row for row in failed if not row["url"].endswith("broken")]
    assert [(row["attempt"], row["status"]) for row in flaky] == [(1, 503)] * FLAKY_PAGES
    left = tasks(place)
    assert (left["buried"], left["total"]) == (1, 1)


@pytest.mark.parametrize("step", ["linking", "acking"])
def test_crawl_that_ends_between_two_commits_loses_nothing(
    place: str,
    root: str,
    handler: type[CountingHandler],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class EndError(Exception):
        """Stands for the end of the process."""

    def end(_: Screen, consumer: int, name: str) -> None:
        if name == step:
            raise EndError

    assert "The limit of pages is reached" in crawled(place, root, max_pages=3)
    assert len(stored(place)) == 3
    with monkeypatch.context() as patched:
        patched.setattr(Screen, "step", end)
        with pytest.raises(EndError):
            crawled(place, batch_size=4)

    # Without seeds: the hosts are those of what is queued and stored.
    crawled(place)

    assert_whole(place)
    assert handler.hits == stored(place)


class Program:
    """`python jobs/crawl` in a process of its own, in a process group as under a shell."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "jobs" / "crawl"), *arguments],
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


@pytest.mark.processes
def test_program_that_is_killed_is_finished_by_the_next_one_and_no_page_is_stored_twice(
    place: str, root: str, handler: type[CountingHandler]
) -> None:
    handler.pause = 0.2
    options = ["--location", place, "--lease", "2", "--batch-size", "8"]
    with Program(*options, root) as first:
        first.wait_for(lambda: handler.hits.total() > 2 + FOLDERS)
        first.signal(signal.SIGKILL)
        first.end()
    handler.pause = 0.0

    with Program(*options) as second:
        ended_with, said = second.end()

    assert ended_with == 0, said
    assert_whole(place)


@pytest.mark.processes
def test_program_that_is_stopped_goes_on_where_it_was(
    place: str, root: str, handler: type[CountingHandler]
) -> None:
    options = ["--location", place, "--timeout", "200", "--batch-size", "8", "--consumers", "2"]
    handler.open, handler.unheld = threading.Event(), 3
    try:
        with Program(*options, root) as first:
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

    with Program(*options) as second:
        ended_with, said = second.end()
    assert ended_with == 0, said
    assert_whole(place)
    # Whoever is asked to stop finishes the batch; nothing is asked for again.
    assert handler.hits == stored(place)


def test_crawl_where_there_is_no_queue_or_another_one_works_is_refused(
    place: str, root: str
) -> None:
    with pytest.raises(QueueNotFoundError, match="no queue at"):
        crawled(place)
    assert not Path(place).exists()
    crawled(place, root, max_depth=1, batch_size=2)
    # What is near is fetched first, and nothing below its depth.
    rows = PageTable(place).query("SELECT depth FROM pages ORDER BY started_at")
    assert [row["depth"] for row in rows] == [0, *[1] * FOLDERS]

    with (
        FileLock(f"{place}/_crawl.lock"),
        pytest.raises(BadUseError, match="another crawler works"),
    ):
        crawled(place, root)
