"""Several processes share a queue on an emulated S3, and no process opens there a queue that Spark made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.concurrency.support import WAIT
from tests.programs import conversing
from tubeq_spark import StoreError
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.opened_location import OpenedLocation, require_ours
from tubeq_spark.storage.tables.schema import COMMITTER, FORMAT

if TYPE_CHECKING:
    from tests.concurrency.s3_store import Store

pytestmark = [pytest.mark.processes, pytest.mark.slow]

CONSUMERS, TASKS, BATCH, UTUBES, FEW = 4, 60, 3, 7, 4
#: Takes batches until nothing is left for a while, and tells of each task that it acked.
CONSUMER = """
import json, sys
from tubeq_spark import Queue, QueueConfig

location, options = sys.argv[1], json.loads(sys.argv[2])
config = QueueConfig(clock_skew=0.0)
with Queue(None, location, engine="native", storage_options=options, config=config) as queue:
    print("ready", flush=True)
    sys.stdin.readline()
    while tasks := queue["work"].take_many(int(sys.argv[3]), timeout=3):
        ids = [task.task_id for task in tasks]
        queue["work"].ack_many(ids)
        print(*ids, flush=True)
"""


@pytest.mark.thorough
def test_four_processes_when_they_consume_one_tube_on_s3_deliver_each_task_once(
    store: Store,
) -> None:
    location, steps = "s3://bucket/utubettl", list[tuple[str, str]]()
    with store.open(
        location, fold_segments=FEW, observer=lambda *step: steps.append(step)
    ) as queue:
        tube = queue.create_tube("work", "utubettl")

        def put(count: int) -> list[int]:
            return [tube.put(n, utube=u).task_id for n in range(count) for u in range(UTUBES)]

        ids = put(TASKS // UTUBES)
        consumers = [
            conversing(CONSUMER, location, json.dumps(store.options), str(BATCH))
            for _ in range(CONSUMERS)
        ]
        for consumer in consumers:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "ready\n"
        for consumer in consumers:
            assert consumer.stdin is not None
            print(file=consumer.stdin, flush=True)
        # Small segments, which are merged while they consume.
        ids += put(FEW)
        acked = [list(map(int, each.communicate(timeout=WAIT)[0].split())) for each in consumers]

        assert sorted(task_id for some in acked for task_id in some) == sorted(ids)
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


# -- whose location it is -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize("marks", [{}, {COMMITTER: "native"}, {FORMAT: "0", COMMITTER: "native"}])
def test_require_ours_when_the_format_is_another_refuses_in_one_sentence(
    engine: str, marks: dict[str, str]
) -> None:
    place = "s3://bucket/queue"
    with pytest.raises(StoreError) as refused:
        require_ours(marks, OpenedLocation(Location.parse(place), place, None), engine)
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
    assert registry.metadata().configuration[COMMITTER] == "native"
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
