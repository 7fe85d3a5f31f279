"""Fetches a batch by threads of this process, each by `fetch.fetch`."""

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

#: Seconds between two checks whether the batch was given up.
_LOOK_S = 0.1


def fetch_all(
    tasks: Sequence[Mapping[str, Any]],
    scope: Scope,
    limits: Limits,
    given_up: Callable[[], bool],
) -> list[Page]:
    """Fetch pages, several at once.

    Args:
        tasks: The tasks, each with `task_id`, `url`, `depth` and `attempt`.
        scope: The scope of the crawl.
        limits: The limits of a fetch.
        given_up: Returns whether to end at once.

    Raises:
        GivenUpError: The batch was given up. Running fetches end by themselves.
    """
    # The parser's warnings about documents that are no HTML do not help: the crawler cannot change them.
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
    """Start threads that fetch tasks, and end when no task is left, or the batch is given up."""
    left: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    for task in tasks:
        left.put(task)

    def work() -> None:
        try:
            while not given_up():
                done.put(one(left.get_nowait()))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001  the waiting thread raises it
            done.put(error)

    # With a pool, the end of the process would wait for servers that do not answer.
    for number in range(min(threads, len(tasks))):
        threading.Thread(target=work, name=f"fetch-{number}", daemon=True).start()
