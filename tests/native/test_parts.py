"""A large statement runs part by part: it makes one commit, and needs the memory of one part."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.native.support import Place, new_rows
from tubeq_spark import Queue
from tubeq_spark.storage.arrow.statement import RefusedError
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.log import data_files
from tubeq_spark.storage.native import small_files

if TYPE_CHECKING:
    from pathlib import Path

#: Tasks by segment.
SEGMENTS = {n: [10 * n, 10 * n + 1] for n in range(1, 6)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A location with some segments; a statement reads one file at a time."""
    monkeypatch.setattr(small_files, "PART_BYTES", 0)
    opened = Place(tmp_path).create()
    for segment, ids in SEGMENTS.items():
        opened.put(segment, ids)
    return opened


def files_of(place: Place) -> tuple[set[str], set[str]]:
    """The data files of the tube: those in its directory, and those of its newest version."""
    directory = path_of(place.tube)
    root = place.engine.tables.store_of(directory)
    there = {
        f"segment={segment}/{entry.name}"
        for segment in {*SEGMENTS, -50}
        for entry in root.list(f"segment={segment}")
    }
    return there, {*place.engine.tables.newest(place.tube).files}


def test_take_from_many_files_is_one_commit(place: Place) -> None:
    before = place.version(place.tube)

    taken = place.take(SEGMENTS, -50)

    assert taken.updated == 10
    assert place.version(place.tube) == before + 1
    assert place.stored("segment, task_id") == [
        (-50, task_id) for ids in SEGMENTS.values() for task_id in ids
    ]


def test_take_when_a_rival_was_first_leaves_no_files(place: Place, tmp_path: Path) -> None:
    rival = Place(tmp_path)
    place.writer.rival = lambda: rival.take({3: [30]}, -60)

    with pytest.raises(EngineError):
        place.take(SEGMENTS, -50)

    there, named = files_of(place)
    assert not [path for path in there if path.startswith("segment=-50/")]
    assert named - there == {path for path in named if path.startswith("segment=-60/")}


def test_put_of_large_rows_is_in_files_of_a_bounded_size(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "PART_BYTES", 10_000)
    ids = range(1_000, 1_100)
    place.run(place.statements.append(new_rows(9, ids, data=["x" * 1_000] * 100), 100, None))

    newest = place.engine.tables.newest(place.tube)
    rows = [file.rows or 0 for file in newest.within({"segment": [9]})]
    assert sum(rows) == 100
    assert len(rows) > 10
    assert max(rows) < 10


#: Prints the most memory that verbs on `count` tasks need beside that of the opened queue, in MB.
MEASURES = """
import pathlib, re, sys
from tubeq_spark import Queue
status = pathlib.Path("/proc/self/status")
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) >> 10
with Queue(None, sys.argv[1], engine="native") as queue:
    queue.tube("small").take(0)
    base, tube = peak(), queue.tube("tube")
    batch = tube.take_arrow(int(sys.argv[2]))
    ids = batch._held.ids()[: batch.count // 2]
    print(batch.count, batch.ack(ids), peak() - base)
"""


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_take_and_partial_ack_of_many_tasks_need_the_memory_of_a_part(tmp_path: Path) -> None:
    location, count, at_once = str(tmp_path / "queue"), 200_000, 25_000
    with Queue(None, location, engine="native") as queue:
        queue.create_tube("small", "fifottl").put(1)
        tube = queue.create_tube("tube", "fifottl")
        for first in range(0, count, at_once):
            data = [f'"{n:01000}"' for n in range(first, first + at_once)]
            tube.put_arrow(pa.table({"data": data}))
    command = [sys.executable, "-c", MEASURES, location, str(count)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    taken, acked, most = map(int, found)
    assert (taken, acked) == (count, count // 2)
    # All rows together have 200 MB, and a statement makes several copies of what it reads.
    assert most < 500


def test_take_when_a_later_file_has_not_the_task_writes_nothing(place: Place) -> None:
    before, stored = files_of(place), place.stored()

    with pytest.raises(RefusedError) as refused:
        place.take(SEGMENTS | {5: [50, 52]}, -50)

    assert refused.value.outcome is Outcome.STALE
    assert files_of(place) == before
    assert place.stored() == stored
