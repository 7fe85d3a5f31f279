"""One run of a crawl, from the opened location to the tables at its end."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from crawl.consumer import Budget, Consumer, Shared
from crawl.fetch import Fetcher
from crawl.frontier import TUBE, Frontier, tube_of
from crawl.job import Ending
from crawl.pages import PageTable
from crawl.screen import Screen, host_table, proof_text, task_table
from tubeq_spark import Queue, SystemClock
from tubeq_spark.programs import BadUseError, ExitCode, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from crawl.job import Job
    from tubeq_spark import Clock

#: Seconds between two checks of the main thread for a signal: one that comes just before it sleeps does not wake it.
_INSIST_S = 0.5


def run(job: Job, console: Console, clock: Clock | None = None, *, as_json: bool = False) -> int:
    """Run a crawl until it ends, and show its result.

    Args:
        job: The job.
        console: The console for the output.
        clock: The clock of the queue, by which consumers wait.
        as_json: Whether to print the result as a line of JSON, too, to standard output.

    Returns:
        The exit code: 0, also if a signal stopped it after the batches in hand; or 3 if a page was fetched twice, or a
        host by two consumers at once.

    Raises:
        BadUseError: There is no crawl to continue, or another crawler works there.
        QueueNotFoundError: There are no URLs, and the location has no queue.
        KeyboardInterrupt: A second signal came; the batches in hand were given back.
    """
    used = clock or SystemClock()

    def opened() -> Queue:
        # Without URLs it continues with queued tasks, so it must not create a queue at a misspelt location.
        return Queue(None, job.location, clock=used, engine="native", create=bool(job.seeds))

    with opened() as queue, _alone_at(job.location), Stop(console.print) as stop:
        pages = PageTable(job.location)
        started = used.monotonic()
        with ExitStack() as stack:
            queues = [stack.enter_context(opened()) for _ in range(job.consumers)]
            ending = _crawl(job, console, used, pages, queues, stop)
        seconds = used.monotonic() - started
        console.print(host_table(pages.by_host()), task_table(queue.statistics(TUBE)))
        proof, count = pages.proof(), pages.fetched_count()
        console.print(proof_text(proof), soft_wrap=True)
        console.print(f"{ending} {count:,} pages, {seconds:.1f} s.", soft_wrap=True)
        if as_json:
            found = {"ending": ending.name.lower(), "pages": count, "seconds": round(seconds, 3)}
            print(json.dumps(found | {"proven": proof.holds}))
    return ExitCode.DONE if proof.holds else ExitCode.FAILED


def _crawl(
    job: Job,
    console: Console,
    clock: Clock,
    pages: PageTable,
    queues: Sequence[Queue],
    stop: Callable[[], bool],
) -> Ending:
    """Crawl by consumers in threads, each with one of the queues."""
    for queue in queues:
        queue.cfg(ttr=job.lease)
    tube = tube_of(queues[0])
    frontier = Frontier(tube, pages.urls())
    frontier.add(tube, dict.fromkeys(job.seeds, 0))
    hosts = frontier.hosts()
    if not hosts:
        msg = f"nothing was queued at {job.location} yet: give URLs to begin with"
        raise BadUseError(msg)
    with Screen(console, job.max_pages) as screen:
        fetcher = Fetcher(job, hosts, clock)
        shared = Shared(
            job=job,
            pages=pages,
            frontier=frontier,
            fetcher=fetcher,
            budget=Budget(pages.fetched_count(), job.max_pages),
            screen=screen,
            clock=clock,
        )
        with fetcher.client, ThreadPoolExecutor(len(queues), "consumer") as pool:
            consumers = [Consumer(number, queue, shared) for number, queue in enumerate(queues)]
            runs = [pool.submit(consumer.run, stop) for consumer in consumers]
            try:
                while wait(runs, timeout=_INSIST_S).not_done:
                    pass
            except BaseException:
                shared.given_up.set()
                raise
    endings = {run.result() for run in runs}
    return next(ending for ending in Ending if ending in endings)


@contextmanager
def _alone_at(location: str) -> Iterator[None]:
    """Keep a second crawler off a location.

    Raises:
        BadUseError: Another process crawls there.
    """
    try:
        with FileLock(Path(location) / "_crawl.lock", timeout=0):
            yield
    except Timeout:
        msg = f"another crawler works at {location}: one at a time, with --consumers"
        raise BadUseError(msg) from None
