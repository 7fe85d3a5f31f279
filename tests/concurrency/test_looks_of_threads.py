"""On an object store one look at a table serves an operation, and all threads of its process share it.

An operation that reads two tables in an order that matters must see what came between these reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import FOR_EVER, Probe, end_heartbeat, on_another_host
from tubeq_spark.storage.log import reading
from tubeq_spark.streams.process import in_thread
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue, Task
    from tubeq_spark.storage.log.snapshot import Snapshot

    OpenOne = Callable[..., Queue]

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes]


@pytest.fixture
def open_one(store: Store, tmp_path: Path) -> OpenOne:
    """Opens queues of several hosts, whose time stands still."""
    clock = ManualClock()

    def open_one(probe: Probe | None = None) -> Queue:
        settings = {} if probe is None else {"observer": probe}
        queue = store.open(f"s3://bucket/{tmp_path.name}", clock, **settings)
        queue.cfg(ttr=FOR_EVER)
        end_heartbeat(queue)
        return on_another_host(queue)

    return open_one


def beside(*acts: Callable[[], object]) -> None:
    """Do something in other threads, each of which begins anew."""
    for act in acts:
        in_thread(act).result()


def test_identify_when_a_queue_joins_between_looks_of_another_thread_keeps_what_that_queue_takes(
    open_one: OpenOne,
) -> None:
    probe = Probe()
    leaving, joining, other = open_one(probe), open_one(), open_one()
    tube = leaving.create_tube("work")
    tube.put_many(["a", "b"])
    tube.take(0)
    shared, next_one = leaving.identify(), other.identify()
    taken: list[Task] = []

    def join() -> None:
        beside(
            leaving._context.sessions.views,
            lambda: joining.identify(shared),
            lambda: taken.extend(joining["work"].take_many(1)),
            tube._ctx.reader.gone_segments,
        )

    with probe.interrupted("read", "release", join):
        leaving.identify(next_one)

    assert joining["work"].ack(taken[0].task_id).data == "b"


def test_look_when_another_thread_reads_the_log_anew_and_commits_meanwhile_keeps_the_newer_version(
    open_one: OpenOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = open_one().create_tube("work")
    tube.put("a")
    table = tube._ctx.queue.engine._handles.table(tube.table)  # type: ignore[attr-defined]
    newest, before = reading.newest, table.known.version

    def slow(*args: Any) -> Snapshot:
        found = newest(*args)
        monkeypatch.undo()
        beside(lambda: tube.put("b"))
        return found

    table.forget()
    monkeypatch.setattr(reading, "newest", slow)

    assert table.newest().version == table.known.version == before + 1
