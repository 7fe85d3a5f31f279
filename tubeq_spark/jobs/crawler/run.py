"""One run of a crawl, from the opened location to the tables at its end."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from tubeq_spark import Queue, SystemClock
from tubeq_spark.jobs.crawler.crew import Crawler
from tubeq_spark.jobs.crawler.parts import TUBE
from tubeq_spark.jobs.crawler.screen import Screen, host_table, proof, task_table
from tubeq_spark.jobs.crawler.settings import Ending, Settings
from tubeq_spark.programs import BadUseError, ExitCode, Stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from rich.console import Console

_SENTENCES = {
    Ending.FINISHED: "Finished: every page within reach was fetched, refused or buried.",
    Ending.LIMIT: "The limit of pages is reached; a higher --max-pages goes on from here.",
    Ending.STOPPED: "Stopped, and nothing is lost: the same --location goes on from here.",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of a crawler.

    Attributes:
        location: The location of the queue: a path, a URI, or `catalog.schema`.
        seeds: Normalised URLs to begin with. Only their hosts are visited.
        settings: The settings of the crawl.
        consumers: The number of consumers that take batches at the same time, each of another host, >= 1.
        lease: Seconds after a crawler's last sign of life before another one takes over its batches, > 0.
        kick: Whether to retry buried tasks.
    """

    location: str
    seeds: Sequence[str]
    settings: Settings
    consumers: int = 1
    lease: float = 60.0
    kick: bool = False


def run(spark: SparkSession | None, job: Job, console: Console) -> int:
    """Run a crawl until it ends, and show its result.

    Args:
        spark: A session with Delta; without one the crawl is native.
        job: The job.
        console: The console for the output.

    Returns:
        The exit code: 0; or 128 plus the number of the signal that stopped it; or 3 if two consumers fetched from a
        host at once.

    Raises:
        BadUseError: There is no crawl to continue, or another crawler works there.
        QueueNotFoundError: There are no URLs, and the location has no queue.
        KeyboardInterrupt: A second signal came; the batches in hand were given back.
    """
    limit = job.settings.max_pages
    engine = "native" if spark is None else "spark"

    def opened() -> Queue:
        # Without URLs it continues with queued tasks, so it must not create a queue at a misspelt location.
        return Queue(spark, job.location, engine=engine, create=bool(job.seeds))

    with opened() as queue, _alone_at(queue.location):
        with ExitStack() as stack:
            stop = stack.enter_context(Stop(console.print))
            queues = [stack.enter_context(opened()) for _ in range(job.consumers)]
            for consumer in queues:
                consumer.cfg(ttr=job.lease)
            screen = stack.enter_context(Screen(console, limit))
            crawler = Crawler(spark, queues, job.settings, screen, stop)
            if job.seeds:
                crawler.add_seeds(job.seeds)
            if job.kick:
                crawler.kick()
            since, started = SystemClock().now(), time.monotonic()
            ending = crawler.run()
            seconds = time.monotonic() - started
        pages = crawler.pages.fetched_count()
        if not pages and not job.seeds:
            msg = f"nothing was queued at {queue.location} yet: give URLs to begin with"
            raise BadUseError(msg)
        console.print(
            host_table(crawler.pages.by_host(since), seconds), task_table(queue.statistics(TUBE))
        )
        exclusivity = crawler.pages.exclusivity()
        console.print(proof(exclusivity), soft_wrap=True)
        console.print(f"{_SENTENCES[ending]} {pages:,} pages, {seconds:.1f} s.", soft_wrap=True)
    return ExitCode.FAILED if exclusivity.hosts else stop.exit_code


@contextmanager
def _alone_at(location: str) -> Iterator[None]:
    """Keep a second crawler off a local location.

    While one of its consumers fetches, its process has the lock of the page table: a second crawler
    would wait for a moment in which none does.

    Raises:
        BadUseError: Another process crawls there.
    """
    parts = urlsplit(location)
    is_local = parts.scheme in ("", "file") and parts.path.startswith("/")
    if not is_local:
        yield
        return
    lock = FileLock(Path(unquote(parts.path)) / "_crawl.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        msg = f"another crawler works at {location}: one at a time on a local disk"
        raise BadUseError(msg) from None
    try:
        yield
    finally:
        lock.release()
