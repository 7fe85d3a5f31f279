"""Verbs name a data file that is empty, cut or missing, or go on with the tasks of all other files."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.native.damage import commit, data_file, made_sound
from tests.native.support import opened
from tubeq_spark import PutItem, Queue, QueueConfig, StoreError, Task
from tubeq_spark.storage.arrow.columns import grouped
from tubeq_spark.storage.arrow.evaluate import holds, of_table
from tubeq_spark.storage.log import data_files
from tubeq_spark.storage.log.actions import DataFile
from tubeq_spark.storage.native.plain_table import left_out
from tubeq_spark.storage.tables.tube_table import PUT_GATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tubeq_spark.observe.health import Problem
    from tubeq_spark.storage.arrow.columns import Partition
    from tubeq_spark.testing import ManualClock


#: What is done to a file, and nothing where it is removed.
DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "empty": lambda _: b"",
    "cut": lambda text: text[:500],
    "garbled": lambda text: b"\0" * len(text),
    "removed": None,
}


@contextmanager
def lost(table: Path, version: int | None = None) -> Iterator[Path]:
    """A data file of a version, the newest one by default, is missing for a block."""
    version = DeltaTable(str(table)).version() if version is None else version
    file = tasks_file(table, version)
    aside = table / "aside"
    file.rename(aside)
    yield file
    aside.rename(file)


def tasks_file(table: Path, version: int) -> Path:
    """The data file that a version has added, with its tasks; the first one of several."""
    adds = [json.loads(line).get("add") for line in commit(table, version).read_text().splitlines()]
    path, *_ = (add["path"] for add in adds if add and not add["path"].startswith("segment=0/"))
    return table / path


def damages(queue: Queue) -> list[Problem]:
    return [problem for problem in queue.health().problems if problem.kind == "damage"]


@pytest.fixture
def other(tmp_path: Path, clock: ManualClock) -> Iterator[Queue]:
    """Another process at the same place: it has none of the rows in memory."""
    with opened(tmp_path, clock=clock) as queue:
        yield queue


def told(tasks: Sequence[Task]) -> list[Any]:
    return [task.data for task in tasks]


def files_of(table: Path) -> set[str]:
    """The data files of the newest version."""
    return {
        str(table / path) for path in DeltaTable(str(table)).get_add_actions()["path"].to_pylist()
    }


# -- what goes on -----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_takes_when_a_file_is_bad_go_on_until_it_is_back(
    tmp_path: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    file = data_file(made_sound(tmp_path) / "work", 3)
    whole = file.read_bytes()
    file.unlink()
    if damage is not None:
        file.write_bytes(damage(whole))
    with opened(tmp_path) as queue:
        tube = queue["work"]
        assert queue.statistics("work")["tasks"]["ready"] == 9
        assert queue.metrics().tubes["work"].ready == 9
        queue.sweep()
        assert told(tube.take_many(3)) == [0, 1, 3]
        tube.put("new")
        (problem,) = damages(queue)
        assert problem.tube == "work"
        assert str(file) in problem.message
        file.write_bytes(whole)
        assert damages(queue) == []
        assert told(tube.take_many(2)) == [2, 4]


def test_take_when_the_file_of_what_it_remembers_is_lost_goes_on_with_the_next(
    tmp_path: Path, queue: Queue
) -> None:
    tube = queue.create_tube("work")
    tube.put("first")
    tube.put("second")
    with lost(tmp_path / "work", 1):
        assert told(tube.take_many(2)) == ["second"]
    assert told(tube.take_many(2)) == ["first"]


def test_reads_when_the_system_refuses_a_file_set_nothing_aside(
    tmp_path: Path, queue: Queue, other: Queue
) -> None:
    queue.create_tube("work").put("first")
    file = data_file(tmp_path / "work", 1)
    file.rename(tmp_path / "aside")
    # A link to itself is not read, and is not missing either.
    file.symlink_to(file.name)
    with pytest.raises(StoreError):
        other["work"].take(0)
    assert damages(other) == []


# -- what names tasks -------------------------------------------------------------------------------


def test_ack_when_the_file_of_the_lease_segment_is_lost_names_it(
    tmp_path: Path, queue: Queue
) -> None:
    tube = queue.create_tube("work")
    tube.put("first")
    task = tube.take(0)
    with lost(tmp_path / "work") as file:
        for _ in range(2):
            with pytest.raises(StoreError, match=file.name):
                tube.ack(task.task_id)
        with pytest.raises(StoreError, match=file.name):
            tube.release(task.task_id)
        assert str(file) in files_of(tmp_path / "work")
    assert tube.ack(task.task_id).data == "first"


def test_verbs_on_named_tasks_when_a_file_is_lost_fail_for_its_tasks_only(
    tmp_path: Path, queue: Queue, other: Queue
) -> None:
    first, *_ = queue.create_tube("work").put_many(["first", "second"])
    later = queue["work"].put("later")
    with lost(tmp_path / "work", 1) as file:
        for verb in (other["work"].peek, other["work"].delete):
            with pytest.raises(StoreError, match=file.name):
                verb(first.task_id)
        assert other["work"].peek(later.task_id).data == "later"
        assert other["work"].delete(later.task_id).data == "later"
    assert other["work"].delete(first.task_id).data == "first"


# -- sub-queues -------------------------------------------------------------------------------------


def filled(queue: Queue) -> None:
    tube = queue.create_tube("work", "utube")
    for utube, data in (("a", 0), (None, 1), ("a", 2), (None, 3), ("c", 4)):
        tube.put(data, utube=utube)


@pytest.mark.parametrize(("version", "others"), [(1, [1, 4]), (2, [0, 4])])
def test_sub_queues_of_a_lost_file_wait_and_the_others_go_on(
    tmp_path: Path, queue: Queue, other: Queue, version: int, others: list[int]
) -> None:
    filled(queue)
    with lost(tmp_path / "work", version):
        assert told(other["work"].take_many(4)) == others
    assert told(other["work"].take_many(4)) == [version - 1]


def _one_by_one(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    for partition, part in grouped(rows, by):
        for place in range(part.num_rows):
            yield partition, part.slice(place, 1)


def test_sub_queues_of_the_other_files_of_a_segment_when_one_is_lost_wait_too(
    tmp_path: Path, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = queue.create_tube("work", "utube")
    with monkeypatch.context() as patched:
        # As Spark may write them: each row of a segment in a file of its own.
        patched.setattr(data_files, "grouped", _one_by_one)
        tube.put_many([PutItem(0, utube="a"), PutItem(1, utube="b")])
    for utube, data in (("a", 2), ("b", 3), ("c", 4)):
        tube.put(data, utube=utube)
    with lost(tmp_path / "work", 1):
        assert told(other["work"].take_many(4)) == [4]
    assert told(other["work"].take_many(4)) == [0, 1]


def test_sub_queues_when_a_lost_file_tells_no_bounds_all_wait() -> None:
    bare = DataFile("part-0", 1, {"segment": 5})
    of_none = replace(bare, stats='{"numRecords":2,"nullCount":{"utube":2}}')
    rows = of_table(pa.table({"segment": [4, 5, 6, 6], "utube": ["a", "a", None, "b"]}))
    read = [holds(left_out([file], ["utube"]), rows, 4).to_pylist() for file in (bare, of_none)]
    assert read == [[False] * 4, [True, False, False, True]]


# -- capacity ---------------------------------------------------------------------------------------


def test_put_with_a_capacity_when_a_file_is_lost_names_it_and_takes_go_on(
    tmp_path: Path, queue: Queue, other: Queue
) -> None:
    tube = queue.create_tube("work", "limfifottl", capacity=3)
    for number in range(3):
        tube.put(number)
    with lost(tmp_path / "work", 1) as file:
        with pytest.raises(StoreError, match=file.name):
            other["work"].put(3)
        assert told(other["work"].take_many(1)) == [1]
        task = other["work"].take(0)
        other["work"].ack(task.task_id)
    assert other["work"].put(4) is not None
    assert other["work"].put(5) is None
    assert other.statistics("work")["tasks"]["total"] == 3


def test_put_when_the_file_of_the_gate_is_lost_names_it(
    tmp_path: Path, queue: Queue, other: Queue
) -> None:
    tube = queue.create_tube("work", "limfifottl", capacity=3)
    tube.put(0)
    (file,) = (tmp_path / "work" / f"segment={PUT_GATE}").glob("*.parquet")
    file.unlink()
    for queue_object in (other, queue):
        with pytest.raises(StoreError, match=file.name):
            queue_object["work"].put(1)
    assert told(other["work"].take_many(1)) == [0]


# -- no commit removes it ---------------------------------------------------------------------------


def test_compaction_and_releases_when_a_file_is_lost_leave_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    config = QueueConfig(fold_segments=2)
    with opened(tmp_path, clock=clock, config=config) as queue:
        tube = queue.create_tube("work")
        for number in range(12):
            tube.put(number)
        with lost(tmp_path / "work", 8) as file:
            # The first one decides by what the process has in memory, and gives up.
            assert queue.sweep().tubes["work"].folded == 0
            assert queue.sweep().tubes["work"].folded > 0
            assert len(tube.take_many(2)) == 2
            tube.release_all()
            assert str(file) in files_of(tmp_path / "work")
        assert told(tube.take_many(12)) == [*range(12)]


def test_truncate_and_drop_when_a_file_is_lost_name_it_and_remove_nothing(
    tmp_path: Path, queue: Queue, other: Queue
) -> None:
    tube = queue.create_tube("work")
    tube.put("first")
    tube.put("second")
    with lost(tmp_path / "work", 1) as file:
        with pytest.raises(StoreError, match=file.name):
            other["work"].truncate()
        with pytest.raises(StoreError, match=file.name):
            other["work"].drop()
        assert str(file) in files_of(tmp_path / "work")
    with opened(tmp_path) as again:
        assert told(again["work"].take_many(2)) == ["first", "second"]
        again["work"].release_all()
        again["work"].drop()
        assert again.tubes() == []
