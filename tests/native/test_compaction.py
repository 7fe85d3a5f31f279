"""Puts and releases of single tasks keep a table small, and do not write large payloads again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.concurrency.support import Probe
from tubeq_spark import Queue, QueueConfig, StoreError
from tubeq_spark.model import ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tubeq_spark import Tube

#: Tiny segments that are not too many, for short tests.
FEW = 8
PUTS = 40


def opened(place: Path, **settings: Any) -> Queue:
    config = QueueConfig(**({"fold_segments": FEW} | settings))
    return Queue(None, str(place), engine="native", config=config)


def data_files(place: Path) -> list[Path]:
    uris = DeltaTable(str(place / "work")).file_uris()
    return [Path(uri.removeprefix("file://")) for uri in uris]


def files(place: Path) -> int:
    return len(data_files(place))


def put_each(tube: Tube, items: Iterable[int], **options: Any) -> None:
    for item in items:
        tube.put(item, **options)


def next_one(tube: Tube) -> Any:
    """What the next take gets, which is acked."""
    task = tube.take(0)
    tube.ack(task.task_id)
    return task.data


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "utubettl"])
def test_put_of_single_tasks_when_many_wait_merges_their_segments(
    tmp_path: Path, kind: str
) -> None:
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work", kind)
        put_each(tube, range(PUTS))
        assert files(tmp_path) < PUTS // 2
        assert [next_one(tube) for _ in range(PUTS)] == [*range(PUTS)]


def large(number: int) -> str:
    """A payload that is large on the disk, too."""
    return f"{number} " + random.Random(number).randbytes(200_000).hex()


def test_put_of_large_payloads_when_many_wait_writes_none_of_them_again(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work")
        for number in range(2 * FEW):
            tube.put(large(number))
            tube.put(number)
        payloads = [file for file in data_files(tmp_path) if file.stat().st_size > 200_000]
        assert len(payloads) == 2 * FEW
        assert len(data_files(tmp_path)) < 3 * FEW + FEW
        found = [next_one(tube) for _ in range(4 * FEW)]
        assert found == [item for n in range(2 * FEW) for item in (large(n), n)]
        # Each is written by its put, and by its take.
        written = [
            file for file in tmp_path.glob("work/*/*.parquet") if file.stat().st_size > 200_000
        ]
        assert len(written) == 4 * FEW


def test_put_of_many_large_payloads_spreads_them_over_segments_that_a_take_can_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "_SEGMENT_BYTES", 1_000_000)
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work")
        tube.put_many([large(number) for number in range(10)])
        assert len(data_files(tmp_path)) == 5
        table = pa.table({"data": [f'"{large(number)}"' for number in range(10, 16)]})
        assert tube.put_arrow(table).count == 6
        assert len(data_files(tmp_path)) == 8
        assert [next_one(tube) for _ in range(16)] == [large(number) for number in range(16)]


def released(tube: Tube) -> None:
    """Give all tasks back, each by itself."""
    for task in tube.take_many(2 * PUTS, timeout=0):
        tube.release(task.task_id)


def buried(tube: Tube) -> None:
    """Set all tasks aside, each by itself."""
    for task in tube.take_many(2 * PUTS, timeout=0):
        tube.bury(task.task_id)


def released_in_parts(tube: Tube) -> None:
    """Give the tasks of a batch back one by one."""
    batch = tube.take_arrow(2 * PUTS)
    for task_id in batch.table["task_id"].to_pylist():
        batch.release([task_id])


@pytest.mark.parametrize("verb", [released, buried, released_in_parts])
def test_settling_of_single_tasks_when_many_wait_merges_their_segments(
    tmp_path: Path, verb: Callable[[Tube], None]
) -> None:
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work", "fifo")
        tube.put_many([*range(PUTS)])
        verb(tube)
        assert files(tmp_path) < PUTS // 2
        tube.kick(PUTS)
        assert [next_one(tube) for _ in range(PUTS)] == [*range(PUTS)]


# -- the head ----------------------------------------------------------------------------------------


def taken(tube: Tube) -> list[Any]:
    """All that is ready, in the order of takes."""
    return [task.data for task in tube.take_many(2 * PUTS, timeout=0)]


def fail(error: BaseException) -> None:
    raise error


def test_put_when_the_compaction_fails_returns_its_task(tmp_path: Path) -> None:
    probe, error = Probe(), StoreError("the disk is full")
    with opened(tmp_path, observer=probe) as queue:
        tube = queue.create_tube("work", "fifo")
        with probe.interrupted("decided", "fold", lambda: fail(error)):
            put_each(tube, range(PUTS))
        assert taken(tube) == [*range(PUTS)]
