"""Limits across processes that are killed: what the commits of a tube say was taken, and when it began.

Every version of the tube is read afterwards. Those who work do it without Spark.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from tests.programs import environment
from tubeq_spark import PutItem, Queue, QueueConfig, Rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from tubeq_spark import Tube

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.thorough]

PROCESSES = 4
#: Seconds that they work, and after which one of them is killed.
SECONDS, KILL_EVERY = 24.0, 4.0
#: The sub-queues, and the limits of each.
UTUBES = ("u", "v")
PARALLEL, MOST, RATE = 4, 6, Rate(20, 10.0)
#: The least part of what the limits allow that must have been done: an idle machine does 80 %, a busy one less.
LEAST = 0.25

#: Takes from both tubes, with some threads each; holds a task of the first for a while.
WORKER = """
import contextlib, sys, threading, time
from tubeq_spark import NotTakenError, Queue, QueueConfig, TubeqError

config = QueueConfig(retention_hours=24, session_check=0.5, durability="none")
queue = Queue(None, sys.argv[1], engine="native", config=config)
queue.cfg(ttr=2)

def work(tube, hold):
    while True:
        with contextlib.suppress(NotTakenError):
            task = tube.take(timeout=5)
            if task is not None:
                time.sleep(hold)
                tube.ack(task.task_id)

for name, hold in (("counted", 2.0), ("rated", 0.0)):
    for _ in range(3):
        threading.Thread(target=work, args=(queue[name], hold), daemon=True).start()
print("ready", flush=True)
time.sleep(1_000)
"""


def started(location: str) -> subprocess.Popen[str]:
    """One more process that works."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, location],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    """End a process at once."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def versions(tube: Tube, first: int) -> Iterator[tuple[float, pa.Table]]:
    """The taken tasks after each commit, and its time in seconds."""
    from deltalake import DeltaTable  # noqa: PLC0415  it is optional

    newest = DeltaTable(tube.table.strip("`").removeprefix("delta.`"))
    times = {commit["version"]: commit["timestamp"] / 1_000 for commit in newest.history()}
    for version in range(first, newest.version() + 1):
        newest.load_as_version(version)
        rows = newest.to_pyarrow_table(
            columns=["tube", "task_id", "state", "utube", "attempts", "taken_at"]
        )
        mine = pc.equal(rows.column("tube"), tube._ctx.record.id)
        yield times[version], rows.filter(pc.and_(mine, pc.equal(rows.column("state"), "t")))


def test_limits_when_processes_are_killed_hold_in_every_commit_and_are_used(tmp_path: Path) -> None:
    location = str(tmp_path / "queue")
    config = QueueConfig(retention_hours=24, durability="none")
    with Queue(None, location, engine="native", config=config) as queue:
        counted = queue.create_tube(
            "counted", "utubettl", ttr=60, parallel=PARALLEL, most_taken=MOST
        )
        rated = queue.create_tube("rated", "utubettl", ttr=60, rate=RATE, parallel=9, order="fair")
        for tube in (counted, rated):
            tube.put_many([PutItem(n, utube=name) for n in range(400) for name in UTUBES])
        first = {tube.name: _version(tube) for tube in (counted, rated)}
        workers = [started(location) for _ in range(PROCESSES)]
        began = time.time()
        for number in itertools.count():
            time.sleep(KILL_EVERY)
            if time.time() - began >= SECONDS:
                break
            killed(workers[number % PROCESSES])
            workers[number % PROCESSES] = started(location)
        ended = time.time()
        for worker in workers:
            killed(worker)

        held, last, at_once = 0.0, began, 0
        for at, taken in versions(counted, first["counted"]):
            by_utube = Counter(taken.column("utube").to_pylist())
            assert max(by_utube.values(), default=0) <= PARALLEL
            assert by_utube.total() <= MOST
            held += at_once * max(0.0, min(at, ended) - last)
            last, at_once = max(last, at), by_utube.total()
        begun: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
        for _, taken in versions(rated, first["rated"]):
            moments = pc.cast(taken.column("taken_at"), "int64").to_pylist()
            columns = taken.select(["utube", "task_id", "attempts"]).to_pydict()
            for utube, *lease in zip(*columns.values(), moments, strict=True):
                begun[utube].add((lease[2], lease[0], lease[1]))

    for leases in begun.values():
        moments = sorted(moment for moment, _, _ in leases)
        gaps = [
            after - before for before, after in zip(moments, moments[RATE.tasks :], strict=False)
        ]
        assert min(gaps, default=float("inf")) >= RATE.seconds * 1_000_000
    done = sum(moment <= ended * 1_000_000 for leases in begun.values() for moment, _, _ in leases)
    seconds = ended - began
    assert done >= LEAST * len(UTUBES) * RATE.tasks * seconds / RATE.seconds
    assert held >= LEAST * MOST * seconds


def _version(tube: Tube) -> int:
    from deltalake import DeltaTable  # noqa: PLC0415  it is optional

    version: int = DeltaTable(tube.table.strip("`").removeprefix("delta.`")).version()
    return version
