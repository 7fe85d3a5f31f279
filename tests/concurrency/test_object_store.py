"""Processes without Spark share a queue on S3, where conditional puts keep their commits apart.

The S3 is emulated, on loopback. Whose location it is, of Spark or of the native engine, is told apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.concurrency.s3_store import Store
from tests.concurrency.support import ids_of
from tests.queries import counted, select
from tests.thorough import nightly
from tubeq_spark import StoreError
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.location import Location, path_table
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.opened_location import OpenedLocation, require_ours
from tubeq_spark.storage.tables.schema import FORMAT, WRITERS
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark import Tube

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
CONSUMERS, TASKS, BATCH, UTUBES, FEW = 4, 60, 3, 7, 4
WAIT = 300
#: Puts, takes and acks that make a checkpoint, and seconds after which nothing of them is kept.
ROUNDS, LONG_AGO = 40, 3 * 3600.0

#: Takes batches until nothing is left for a while, and tells of each task that it acked.
CONSUMER = """
import json, sys
from tubeq_spark import Queue, QueueConfig

location, options, tube = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
config = QueueConfig(clock_skew=0.0)
with Queue(None, location, engine="native", storage_options=options, config=config) as queue:
    print("ready", flush=True)
    sys.stdin.readline()
    while tasks := queue[tube].take_many(int(sys.argv[4]), timeout=3):
        ids = [task.task_id for task in tasks]
        queue[tube].ack_many(ids)
        print("acked", *ids, flush=True)
"""


def begin(consumers: list[subprocess.Popen[str]]) -> None:
    """Let them consume, once all of them can."""
    for consumer in consumers:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "ready\n"
    for consumer in consumers:
        assert consumer.stdin is not None
        print(file=consumer.stdin, flush=True)


def acked_by(consumers: list[subprocess.Popen[str]]) -> list[list[int]]:
    """What each of them acked, when all have come to an end."""
    found = []
    for consumer in consumers:
        said, _ = consumer.communicate(timeout=WAIT)
        assert consumer.returncode == 0
        lines = [line.split() for line in said.splitlines()]
        assert {word for word, *_ in lines} <= {"acked"}
        found.append([int(number) for _, *numbers in lines for number in numbers])
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["utubettl", *nightly("fifottl")])
def test_four_processes_when_they_consume_one_tube_on_s3_deliver_each_task_once(
    store: Store, kind: str
) -> None:
    location = f"s3://bucket/{kind}"
    steps: list[tuple[str, str]] = []

    def observe(step: str, operation: str) -> None:
        steps.append((step, operation))

    with store.open(location, fold_segments=FEW, observer=observe) as queue:
        tube = queue.create_tube("work", kind)
        more: list[dict[str, Any]] = [
            {"utube": utube} if kind.startswith("utube") else {} for utube in range(UTUBES)
        ]
        ids = [
            task_id
            for options in more
            for task_id in ids_of(tube.put_many(range(TASKS // UTUBES), **options))
        ]
        consumers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    CONSUMER,
                    location,
                    json.dumps(store.options),
                    "work",
                    str(BATCH),
                ],
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(CONSUMERS)
        ]
        # Before and while they consume: small segments, which are merged meanwhile.
        ids += [tube.put(i, **options).task_id for i in range(FEW) for options in more]
        begin(consumers)
        ids += [tube.put(i, **options).task_id for i in range(FEW) for options in more]
        acked = acked_by(consumers)

        assert sorted(task_id for ids in acked for task_id in ids) == sorted(ids)
        assert sum(map(bool, acked)) > 1, "one of them got everything"
        assert ("committed", "fold") in steps
        counted = queue.statistics("work")
        assert counted["tasks"]["total"] == 0
        assert (counted["calls"]["take"], counted["calls"]["ack"]) == (len(ids), len(ids))


def test_s3_when_two_commit_one_version_refuses_the_second(store: Store) -> None:
    """What the emulation must do for the tests above to mean anything."""
    rows = pa.table({"a": [1]})
    uri = "s3://bucket/plain"
    write_deltalake(uri, rows, storage_options=store.options)
    mine, theirs = (DeltaTable(uri, storage_options=store.options) for _ in range(2))
    theirs.delete("a = 1")

    with pytest.raises(CommitFailedError):
        mine.delete("a = 1")
    assert DeltaTable(uri, storage_options=store.options).version() == 1


def put_and_ack(tube: Tube, waiting: list[int], times: int) -> list[int]:
    """Put a task and ack the oldest, so many times; which tasks wait then, in their order."""
    for number in range(times):
        waiting = [*waiting, tube.put(number).task_id]
        task = tube.take(timeout=0)
        assert task is not None
        assert task.task_id == waiting.pop(0)
        tube.ack(task.task_id)
    return waiting


@pytest.mark.thorough
def test_log_on_s3_when_older_than_is_kept_is_removed_by_verbs_and_no_task_is_lost(
    store: Store,
) -> None:
    clock, location, log = ManualClock(), "s3://bucket/aged", "aged/work/_delta_log/"
    with store.open(location, clock) as queue:
        tube = queue.create_tube("work", "fifo")
        waiting = put_and_ack(tube, ids_of(tube.put_many(range(3))), ROUNDS)
    before = store.keys(log)
    assert f"{log}{0:020}.json" in before

    clock.advance(LONG_AGO)
    store.make_older(LONG_AGO)
    with store.open(location, clock) as queue:
        waiting = put_and_ack(queue["work"], waiting, ROUNDS)
    kept = before & store.keys(log)
    assert f"{log}{0:020}.json" not in kept
    assert len(kept) < len(before) / 2

    with store.open(location, clock) as queue:
        assert [task.task_id for task in queue["work"].take_many(len(waiting) + 1)] == waiting


def test_query_when_it_reads_lets_other_threads_of_the_process_run() -> None:
    """One of them serves what it reads here; those that renew leases must run, too."""
    from tests.concurrency.s3_server import new_server  # noqa: PLC0415  (it needs the emulation)

    server = new_server()
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    store = Store(f"http://127.0.0.1:{server.server_port}")
    try:
        store.create_bucket()
        uri = "s3://bucket/read"
        write_deltalake(uri, pa.table({"a": [1, 2]}), storage_options=store.options)
        options = store.options | {"timeout": "5s", "retry_timeout": "5s", "max_retries": "1"}
        engine = NativeEngine(options)

        assert engine.rows(counted(path_table(uri))) == [{"n": 2}]
        assert engine.rows(select(path_table(uri), "a", where=row().a > 1)) == [{"a": 2}]
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


# -- whose location it is -----------------------------------------------------------------------------


def require(text: str, engine: str, marks: Mapping[str, str]) -> None:
    opened = OpenedLocation(Location.parse(text), text, None)
    require_ours(marks, opened, engine)


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize("marks", [{}, {WRITERS: "native"}, {FORMAT: "0", WRITERS: "native"}])
def test_require_ours_when_the_format_is_another_refuses_in_one_sentence(
    engine: str, marks: dict[str, str]
) -> None:
    with pytest.raises(StoreError) as refused:
        require("s3://bucket/queue", engine, marks)
    assert str(refused.value) == (
        "s3://bucket/queue was made by another version of tubeq_spark, in a format that this one does not read: "
        "make a new queue at another place, and take the tasks of this one with the version that made it"
    )


def test_open_on_s3_when_native_made_it_is_noted_for_others_and_lets_native_in_again(
    store: Store,
) -> None:
    location = "s3://bucket/noted"
    with store.open(location) as queue:
        queue.create_tube("work").put("mine")
    registry = DeltaTable(f"{location}/_tubeq_tubes", storage_options=store.options)
    assert registry.metadata().configuration[WRITERS] == "native"
    with store.open(location) as queue:
        assert queue.statistics("work")["tasks"]["total"] == 1


def test_open_on_s3_when_spark_made_it_is_refused_and_writes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = "s3://bucket/theirs"
    with monkeypatch.context() as patched:
        patched.setattr("tubeq_spark.storage.native.engine.NATIVE", "spark")
        store.open(location).close()
    with pytest.raises(StoreError, match="made by Spark"):
        store.open(location)
    registry = DeltaTable(f"{location}/_tubeq_tubes", storage_options=store.options)
    assert registry.version() == 0
