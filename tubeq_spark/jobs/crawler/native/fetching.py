"""Fetches a batch by threads of this process; see `fetch` for what each of them does."""

from __future__ import annotations

import queue
import threading
import warnings
from typing import TYPE_CHECKING, Any

from bs4 import UnusualUsageWarning

from tubeq_spark.jobs.crawler.fetch import fetch, new_client
from tubeq_spark.jobs.crawler.parts import GivenUpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.jobs.crawler.fetch import Limits, Page
    from tubeq_spark.jobs.crawler.urls import Scope

#: Seconds between two looks whether the batch was given up.
_LOOK_S = 0.1


def fetch_all(
    tasks: Sequence[Mapping[str, Any]],
    scope: Scope,
    limits: Limits,
    given_up: Callable[[], bool],
) -> list[Page]:
    """Fetch pages, several at once.

    Args:
        tasks: Each with `task_id`, `url`, `depth` and `attempt`.
        scope: Where the crawl goes.
        limits: What a fetch may cost.
        given_up: Whether to end at once.

    Raises:
        GivenUpError: It was given up; fetches that go on are left to end by themselves.
    """
    # The parser's advice on documents that are no HTML is for people who could change them.
    warnings.simplefilter("ignore", UnusualUsageWarning)
    done: queue.SimpleQueue[Page | BaseException] = queue.SimpleQueue()
    with new_client(scope.agent, limits) as client:

        def one(task: Mapping[str, Any]) -> Page:
            return fetch(client, task, scope, limits)

        _start(one, tasks, limits.threads, done, given_up)
        pages: list[Page] = []
        while len(pages) < len(tasks):
            try:
                found = done.get(timeout=_LOOK_S)
            except queue.Empty:
                if given_up():
                    raise GivenUpError from None
                continue
            if isinstance(found, BaseException):
                raise found
            pages.append(found)
    return pages


def _start(
    one: Callable[[Mapping[str, Any]], Page],
    tasks: Sequence[Mapping[str, Any]],
    threads: int,
    done: queue.SimpleQueue[Page | BaseException],
    given_up: Callable[[], bool],
) -> None:
    """Start threads that do tasks, and end when none is left or all is given up."""
    left: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    for task in tasks:
        left.put(task)

    def work() -> None:
        try:
            while not given_up():
                done.put(one(left.get_nowait()))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001  it is raised where the batch is waited for
            done.put(error)

    # A pool would have the end of the process wait for servers that do not answer.
    for number in range(min(threads, len(tasks))):
        threading.Thread(target=work, name=f"fetch-{number}", daemon=True).start()
