"""Verbs do each task once on emulators of other makes, also after a rival, a lost answer or a kill."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.s3_store import Store, before_commit
from tests.concurrency.support import FOR_EVER, end_heartbeat, ids_of
from tests.programs import conversing
from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.log.log import Log
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark import Queue, Tube

pytest.importorskip("moto", reason="it comes with the server of the tests")
pytestmark = [pytest.mark.stores, pytest.mark.processes]

TASKS, BATCH, LEASE = 12, 3, 3.0

#: Takes and acks until it is killed, and tells of each task that it took and acked.
WORKER = """
import json, sys
from tubeq_spark import Queue

with Queue(None, sys.argv[1], engine="native", storage_options=json.loads(sys.argv[2])) as queue:
    queue.cfg(ttr=float(sys.argv[3]))
    while True:
        tasks = queue["work"].take_many(int(sys.argv[4]), timeout=5)
        queue["work"].ack_many([task.task_id for task in tasks])
        print(*[task.data for task in tasks], flush=True)
"""


def opened(store: Store, place: str, **settings: Any) -> Queue:
    """A queue whose time stands still."""
    queue = store.open(place, ManualClock(), **settings)
    end_heartbeat(queue)
    queue.cfg(ttr=FOR_EVER)
    return queue


@pytest.fixture
def queue(store: Store, place: str) -> Iterator[Queue]:
    with opened(store, place) as found:
        yield found


@pytest.fixture
def tube(queue: Queue) -> Tube:
    return queue.create_tube("work", "fifottl")


@pytest.fixture
def rival(store: Store, place: str, tube: Tube) -> Iterator[Tube]:
    with opened(store, place) as found:
        yield found[tube.name]


def counts(queue: Queue) -> dict[str, int]:
    found = queue.statistics("work")["tasks"]
    return {name: found[name] for name in ("ready", "taken", "buried", "done")}


def test_queue_when_another_process_opens_it_has_all_commits_after_a_checkpoint(
    store: Store, place: str, tube: Tube
) -> None:
    for number in range(60):
        tube.put(number)
    with opened(store, place) as other:
        tasks = other["work"].take_many(60)
        assert [task.data for task in tasks] == list(range(60))
        assert other.check().problems == []


def test_look_when_the_last_listing_was_a_minute_ago_reads_nothing_again(
    store: Store, tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube.put("a")
    monkeypatch.setattr(Log, "_is_sure", lambda *_: False)
    store.requests()
    tube._ctx.queue.engine.tables.version(tube._ctx.table.name)
    assert not [line for line, _ in store.requests() if line.endswith(".json")]


def test_put_and_take_when_a_rival_commits_before_them_are_done_once(
    tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_commit(monkeypatch, lambda: rival.put("theirs"))
    tube.put_many(["mine", "a", "b"])
    theirs: list[int] = []
    before_commit(monkeypatch, lambda: theirs.extend(ids_of(rival.take_many(2))))
    mine = ids_of(tube.take_many(2))
    assert len({*mine, *theirs}) == 4


@pytest.mark.parametrize("kind", ["reset", "500"])
@pytest.mark.parametrize("kept", [True, False])
def test_verbs_when_the_answer_to_a_commit_is_lost_are_done_once(
    store: Store, queue: Queue, tube: Tube, kind: str, kept: bool
) -> None:
    tube.put("a")
    with store.losing(kind=kind, kept=kept):
        tube.put("b")
    with store.losing(kind=kind, kept=kept):
        tasks = tube.take_many(3)
    assert [task.data for task in tasks] == ["a", "b"]
    with store.losing(kind=kind, kept=kept):
        tube.ack_many(ids_of(tasks))
    assert counts(queue) == {"ready": 0, "taken": 0, "buried": 0, "done": 2}


def test_workers_when_one_is_killed_lose_and_double_nothing(store: Store, place: str) -> None:
    with store.open(place) as queue:
        queue.cfg(ttr=60)
        tube = queue.create_tube("work", "fifottl", ttr=LEASE)
        tube.put_many(range(TASKS))
        arguments = [place, json.dumps(store.options), str(LEASE), str(BATCH)]
        with conversing(WORKER, *arguments) as worker:
            assert worker.stdout is not None
            acked = [int(number) for number in worker.stdout.readline().split()]
            # It may be anywhere in its next take or ack.
            worker.send_signal(signal.SIGKILL)
            said = worker.stdout.read()
        acked += [
            int(n) for line in said.splitlines(keepends=True) if "\n" in line for n in line.split()
        ]
        while queue.statistics("work")["tasks"]["total"]:
            tasks = tube.take_many(TASKS, timeout=5)
            tube.ack_many(ids_of(tasks))
            acked += [task.data for task in tasks]
        assert len(acked) == len(set(acked))
        # What it acked without telling.
        assert len(acked) >= TASKS - BATCH
        assert counts(queue)["done"] == TASKS


def test_put_when_the_store_is_silent_after_its_commit_says_that_it_may_have_been_made(
    store: Store, place: str, tube: Tube
) -> None:
    limits = {"timeout": "1s", "retry_timeout": "1s"}
    with store.open(place, ManualClock(), limits) as queue:
        end_heartbeat(queue)
        queue["work"].put("a")
        with store.losing(dark=True), pytest.raises(CommitUnknownError):
            queue["work"].put("b")
        assert [task.data for task in tube.take_many(3)] == ["a", "b"]


def test_queue_when_the_bucket_is_missing_is_refused_with_a_hint(store: Store) -> None:
    if store.root.startswith("gs:"):
        pytest.skip("fake-gcs-server answers 500 where Google's answer is 404")
    with pytest.raises(StoreError, match="create the bucket first"):
        store.open(f"{store.root.replace('bucket', 'missing')}/queue")
