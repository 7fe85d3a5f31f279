"""The URLs to visit, as one consumer without Spark sees them."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark import TaskState
from tubeq_spark.jobs.crawler.fetch import Outcome
from tubeq_spark.jobs.crawler.native.fetching import fetch_all
from tubeq_spark.jobs.crawler.native.known import origin_of
from tubeq_spark.jobs.crawler.parts import TUBE, Look, tube_of
from tubeq_spark.jobs.crawler.urls import host_of, is_page

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from tubeq_spark import Batch, Queue
    from tubeq_spark.jobs.crawler.fetch import Limits, Page
    from tubeq_spark.jobs.crawler.native.known import Known
    from tubeq_spark.jobs.crawler.native.pages import NativePages
    from tubeq_spark.jobs.crawler.urls import Scope

_STATES = ("ready", "taken", "delayed", "buried")
#: The columns that are read of a batch.
_COLUMNS = ["task_id", "data", "utube", "attempts"]
_STRANGE = "no URL of a page: others have put it here"


class NativeFrontier:
    """`parts.Frontier` without Spark."""

    def __init__(
        self, queue: Queue, pages: NativePages, known: Known, adding: threading.Lock, limits: Limits
    ) -> None:
        """Open the tube, or create it.

        Args:
            queue: The consumer's own session.
            pages: The page table.
            known: The seen URLs, shared by all consumers of this process.
            adding: A lock that all threads of this process hold while they add URLs.
            limits: The limits of a fetch.

        Raises:
            TubeExistsError: A tube of another type has the name.
        """
        self._tube = tube_of(queue)
        self._queue, self._pages, self._known = queue, pages, known
        self._adding, self._limits = adding, limits
        self._consumer = str(queue.session_uuid)

    def look(self) -> Look:
        """As `parts.Frontier`, by one query. This process guesses which host comes next."""
        counts = self._queue.statistics(TUBE)["tasks"]
        ready = counts["ready"]
        # Unknown tasks were put by another process, or given back. Then all ready tasks count.
        return Look(
            {name: counts[name] for name in _STATES}, min(self._known.next_ready() or ready, ready)
        )

    def take(self, count: int) -> NativeBatch | None:
        """As of `parts.Frontier`."""
        batch = self._tube.take_arrow(count, per_utube=count)
        rows = batch.table.select(_COLUMNS).to_pylist() if batch.count else []
        for row in rows:
            row["data"] = json.loads(row["data"])
        ours = [row for row in rows if _is_ours(row["data"])]
        if len(ours) < len(rows):
            # Foreign tasks are buried for the user to see, so that the others do not fail with them.
            known = {row["task_id"] for row in ours}
            strange = [row["task_id"] for row in rows if row["task_id"] not in known]
            batch.bury(strange, error=_STRANGE)
        if not ours:
            return None
        return NativeBatch(
            batch, ours, self.add, self._pages, self._known, self._limits, self._consumer
        )

    def kick(self) -> int:
        """As of `parts.Frontier`."""
        return self._tube.kick(None)

    def add_seeds(self, urls: Sequence[str]) -> int:
        """As of `parts.Frontier`. Commits: 1 to the tube, or none."""
        return self.add(dict.fromkeys(urls, 0))

    def add(self, urls: Mapping[str, int], key: str | None = None) -> int:
        """Queue those of some URLs that were never seen, each once; return their number.

        Two consumers may find the same link at the same moment. So only one at a time searches for unseen URLs
        and queues them. Crawlers in several processes can queue a URL twice, but both tasks have the same host. The
        consumer that takes the second task finds the stored page, and does not fetch it again.

        Args:
            urls: The depths by URL.
            key: The identity of this put.

        Commits: 1 to the tube, or none.
        """
        with self._adding:
            unseen = self._known.unseen(urls)
            if not unseen:
                return 0
            hosts = [host_of(url) for url in unseen]
            data = [json.dumps({"url": url, "depth": depth}) for url, depth in unseen.items()]
            added = self._tube.put_arrow(pa.table({"data": data, "utube": hosts}), key=key)
            self._known.saw(unseen)
            if added.count:
                self._known.wait(hosts, added.first_task_id or 0)
            return added.count

    def origins(self) -> Iterable[str]:
        """As of `parts.Frontier`; of what was seen when the crawl was opened, and since then."""
        return self._known.origins()


class NativeBatch:
    """`parts.InHand` without Spark."""

    def __init__(
        self,
        batch: Batch,
        rows: Sequence[Mapping[str, Any]],
        add: Callable[[Mapping[str, int], str], int],
        pages: NativePages,
        known: Known,
        limits: Limits,
        consumer: str,
    ) -> None:
        """Work on the tasks of a batch, some `rows` of it, whose `data` are parsed."""
        self._batch, self._add, self._pages, self._known = batch, add, pages, known
        self._limits, self._consumer = limits, consumer
        self._name = str(uuid.uuid4())
        self._fetched: list[Page] = []
        self._stored: set[str] = set()
        self._tasks = [_task(row) for row in rows]
        self.count = len(self._tasks)
        self._hosts = Counter(row["utube"] for row in rows)
        known.took(self._hosts)

    def __enter__(self) -> Self:
        self._batch.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._batch.__exit__(kind, error, trace)
        finally:
            self._known.left(self._hosts)

    def fetch(self, scope: Scope, given_up: Callable[[], bool]) -> dict[str, int]:
        """As of `parts.InHand`. Commits: 1 to the page table, or none."""
        urls = {task["url"]: task for task in self._tasks}
        self._stored = self._pages.settled(urls)
        missing = [task for url, task in urls.items() if url not in self._stored]
        self._fetched = fetch_all(missing, scope, self._limits, given_up)
        self._pages.append(self._fetched, consumer=self._consumer, batch=self._name)
        return dict(Counter(str(page.outcome) for page in self._fetched))

    def put_links(self) -> None:
        """As of `parts.InHand`; links of pages that were stored before come from the table."""
        found = [(page.depth, page.links) for page in self._fetched]
        found += self._pages.links_of(self._stored)
        nearest: dict[str, int] = {}
        for depth, links in found:
            for link in links:
                nearest[link] = min(nearest.get(link, depth + 1), depth + 1)
        self._add(nearest, f"links of {self._name}")

    def release_failures(self, delay: float) -> Iterable[str]:
        """As of `parts.InHand`."""
        failed = [page for page in self._fetched if page.outcome == Outcome.FAILED]
        errors = {page.task_id: page.error or str(page.outcome) for page in failed}
        named = pa.table({"task_id": [*errors], "error": [*errors.values()]})
        self._batch.release(named if errors else [], delay=delay)
        return {origin_of(page.url) for page in failed}

    def ack(self) -> None:
        """As of `parts.InHand`."""
        self._batch.ack()


def read_known(queue: Queue, pages: NativePages, known: Known) -> None:
    """Read the URLs that are queued and stored at a location."""
    known.saw(pages.urls())
    if TUBE not in queue:
        return
    tube = queue.tube(TUBE)
    for state in (TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED):
        tasks = list(tube.tasks_by_state(state))
        known.saw(task.data["url"] for task in tasks if _is_ours(task.data))
        if state is TaskState.READY and tasks:
            known.wait([task.utube or "" for task in tasks], tasks[0].task_id)


def _depth(data: Mapping[str, Any]) -> Any:
    """The depth of a page; 0 where it is missing or NULL."""
    depth = data.get("depth")
    return 0 if depth is None else depth


def _is_ours(data: Any) -> bool:
    """Whether the data of a task are those of a crawl. Other programs may have put other data."""
    if not isinstance(data, dict) or not is_page(data.get("url")):
        return False
    return type(_depth(data)) is int


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    data = row["data"]
    return {
        "task_id": row["task_id"],
        "url": data["url"],
        "depth": _depth(data),
        "attempt": row["attempts"],
    }
