"""The crawler of `jobs/crawl` loses no page and stores none twice, also when it is killed."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from crawl.frontier import TUBE
from crawl.job import Job
from crawl.pages import PageTable
from crawl.run import run
from filelock import FileLock
from loopback import FAULTS, FLAKY_PAGES, TreeHandler, serve
from rich.console import Console

from tests.programs import ROOT, started
from tests.thorough import thorough
from tests.waiting import until
from tubeq_spark import Queue, QueueNotFoundError
from tubeq_spark.programs import BadUseError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS, FILES = 4, 6
PAGES = 1 + FOLDERS * (1 + FILES)
DEADLINE_S = 300.0


class CountingHandler(TreeHandler):
    """Counts the visits of each page, and takes its time; a class of its own for each test."""

    hits: ClassVar[Counter[str]]
    lock = threading.Lock()
    pause = 0.0

    def do_GET(self) -> None:  # noqa: N802
        if self.path != "/robots.txt":
            with self.lock:
                self.hits[f"http://{self.headers['host']}{self.path}"] += 1
        threading.Event().wait(self.pause)
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


JOB = str(ROOT / "jobs" / "crawl")


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGKILL, *thorough(signal.SIGINT)])
def test_program_that_is_killed_or_stopped_is_finished_by_the_next_one_and_no_page_is_stored_twice(
    place: str, root: str, handler: type[CountingHandler], number: signal.Signals
) -> None:
    handler.pause = 0.2
    options = ["--location", place, "--lease", "2", "--batch-size", "8"]
    with started(JOB, *options, root) as first:
        until(lambda: handler.hits.total() > 2 + FOLDERS or first.poll() is not None)
        first.send_signal(number)
        said = "".join(first.communicate(timeout=DEADLINE_S))
    if number == signal.SIGINT:
        assert (first.returncode, "goes on from here" in said) == (0, True)
    handler.pause = 0.0

    crawled(place, lease=2, batch_size=8)

    assert_whole(place)
    # Who is asked to stop finishes its batch, so that nothing is asked for again.
    assert number == signal.SIGKILL or handler.hits == stored(place)


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
