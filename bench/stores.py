"""Rivals on object stores: processes that take and ack from one tube, each request 50 ms late."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench import servers
from bench.measure import BenchError, by_turns
from bench.payloads import payloads
from bench.processes import together
from bench.proxy import requests_of, served
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.measure import Round, Sizes
    from bench.processes import Start
    from bench.report import Page

__all__ = ["measure"]

#: Seconds that a request is late, about as between zones of a cloud and its store.
_DELAY = 0.05
_TUBE = "work"
#: How many times as long as others this load lasts.
_TIMES = 5
#: Puts before a load, each of so many tasks: as many segments.
_PUTS, _TASKS = 20, 1_000
_NOTE = (
    "Each worker is a process that takes one task and acks it, one after the other. A decision is "
    "what a verb commits after it has read; after a conflict it reads and decides again. "
    "Decisions, conflicts and requests are for each acked task."
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type of tube, and how many sub-queues it has."""

    type: str
    utubes: int

    def __str__(self) -> str:
        return f"{self.type}, {self.utubes:,} sub-queues" if self.utubes else self.type


_KINDS = (_Kind("fifottl", 0), _Kind("utubettl", 12), _Kind("utubettl", 1_000))


@dataclass(frozen=True, slots=True)
class _Place:
    """A queue, and how it is reached: through the proxy, or at once."""

    location: str
    url: str

    def open(self, observer: Callable[[str, str], None] | None = None) -> Queue:
        """The queue."""
        config = QueueConfig(observer=observer)
        options = dict(servers.options(self.url))
        return Queue(None, self.location, engine="native", config=config, storage_options=options)


def measure(page: Page, place: Path, sizes: Sizes) -> None:
    """Measure, and add a table for each store to the page."""
    place.mkdir(parents=True, exist_ok=True)
    for server in servers.SERVERS:
        missing = server.missing()
        if missing is not None:
            page.skipped[missing] = None
            continue
        title = f"Rivals on {server.name}, each request {_DELAY * 1_000:g} ms late"
        unit = "requests" if server.is_emulation else "tasks/s"
        samples = page.compare(title, unit, ["1 worker"], _NOTE)
        with (
            tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as directory,
            servers.running(server, Path(directory)) as address,
            served(address, _DELAY) as url,
        ):
            rounds = 1 if server.is_emulation else sizes.rounds
            for kind in _KINDS:
                run = partial(_round, server, f"http://{address}", url, kind, sizes)
                subjects: list[tuple[str, Round]] = [
                    (f"{count} worker{'s' * (count > 1)}", partial(run, count))
                    for count in sizes.workers
                ]
                by_turns(f"{server.name}, {kind}", subjects, rounds, samples, warm_up=0)


def _round(
    server: servers.Server, direct: str, url: str, kind: _Kind, sizes: Sizes, workers: int
) -> Mapping[str, float]:
    """Let workers empty a new tube for some seconds."""
    location, seconds = f"s3://{servers.BUCKET}/{uuid.uuid4().hex[:12]}", sizes.seconds * _TIMES
    with _Place(location, direct).open() as queue:
        tube = queue.create_tube(_TUBE, kind.type)
        for first in range(0, _PUTS * _TASKS, _TASKS):
            tube.put_arrow(_rows(first, kind.utubes))
    place = _Place(location, url)
    began, told = together(_work, workers, place, seconds, seconds=seconds)
    found: Counter[str] = Counter()
    for done in told:
        found.update(done.steps)
    tasks = found["acked"]
    if not 0 < tasks < _PUTS * _TASKS:
        msg = f"{workers} workers did {tasks} tasks in {seconds} s: not to be compared"
        raise BenchError(msg)
    requests = max(done.requests for done in told) / tasks
    main = {f"{kind}": requests}
    if not server.is_emulation:
        main = {f"{kind}": tasks / (max(done.ended for done in told) - began)}
        main |= {f"{kind} | requests": requests}
    return main | {
        f"{kind} | decisions": found["decided"] / tasks,
        f"{kind} | conflicts": found["conflicted"] / tasks,
    }


def _rows(first: int, utubes: int) -> pa.Table:
    rows = {"data": payloads(_TASKS)}
    if utubes:
        rows["utube"] = pa.array([f"u{(first + n) % utubes}" for n in range(_TASKS)])
    return pa.table(rows)


@dataclass(frozen=True, slots=True)
class _Done:
    """What a worker got done.

    Attributes:
        steps: How many steps of each kind its verbs made, and how many tasks it has "acked".
        ended: When its last call returned.
        requests: Those of all workers together.
    """

    steps: Counter[str]
    ended: float
    requests: int


def _work(start: Start, place: _Place, seconds: float) -> _Done:
    """Take and ack for some seconds."""
    steps: Counter[str] = Counter()

    def observe(step: str, _operation: str) -> None:
        steps[step] += 1

    with place.open(observe) as queue:
        tube = queue[_TUBE]
        for task in tube.take_many(1):
            tube.ack(task.task_id)
        start.wait()
        until, before = time.monotonic() + seconds, requests_of(place.url)
        steps.clear()
        while time.monotonic() < until and (found := tube.take(0)) is not None:
            tube.ack(found.task_id)
            steps["acked"] += 1
        ended, done = time.monotonic(), Counter(steps)
        # What closes a queue does not count.
        start.wait_for_end()
        return _Done(done, ended, requests_of(place.url) - before)
