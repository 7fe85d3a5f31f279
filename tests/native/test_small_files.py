"""Queries and statements about a few small files run without DataFusion, and about others by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.native.support import NOW, OWNER, Place, at
from tests.queries import counted, select
from tubeq_spark.rules.lease_times import NewLease
from tubeq_spark.storage.arrow import select as arrow_select
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.native import small_files
from tubeq_spark.storage.native.small_files import SmallFiles
from tubeq_spark.storage.tables import predicates

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.query import Select

LEASE = NewLease(OWNER, NOW)
MINUTE = 60_000_000
SEGMENTS = range(5, 12)
R = row()
READY = predicates.is_ready(NOW, None)


def ready(place: Place) -> Select:
    return select(place.tube, "task_id", where=READY, order=["task_id"])


def without(place: Place, query: Select) -> pa.Table:
    """What is answered without DataFusion."""
    found = place.few(query)
    assert found is not None
    return found


def by_library(place: Place, query: Select) -> pa.Table:
    return place.engine._run(lambda renderer: renderer.query(query), 0, {})


def files_of(place: Place, where: Expression) -> set[int | None]:
    """The segments of the files that are read for a condition."""
    table = place.engine._handles.table(place.tube)
    newest, local = table.seen(), table.local
    assert newest is not None
    assert local is not None
    listed = SmallFiles.listed(local, newest, {}, where)
    assert listed is not None
    return {file.partition["segment"] for file in listed.files}


# -- which files -------------------------------------------------------------------------------------------


def test_files_when_their_statistics_exclude_a_condition_are_not_read(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, ("pri", "task_id"), local=True).create()
    for segment in SEGMENTS:
        place.put(segment, [segment * 10, segment * 10 + 1])
    assert place.run(place.statements.take([5], [(at(51), -50)], LEASE, NOW, 2)).updated == 2
    mine = place.table.mine() & READY
    assert files_of(place, mine) == {*SEGMENTS} - {5}
    assert files_of(place, mine & place.table.up_to(at(70))) == {6, 7}
    # What was taken for ever has no end that could have passed.
    place.put(13, [130], ttr=None)
    place.run(place.statements.take([13], [(at(130), -130)], LEASE, NOW, 1))
    assert files_of(place, mine) == {*SEGMENTS} - {5}
    # Its lease has ended by then.
    assert files_of(place, predicates.is_ready(NOW + MINUTE, None)) == {*SEGMENTS, -50} - {5}


def test_files_when_bounds_of_long_texts_exclude_a_name_are_not_read(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, local=True).create()
    names = {5: "x" * 70, 6: "x" * 63 + "z\U00020bb7", 7: "y" * 63 + "\U0010ffff" * 3}
    for segment, name in names.items():
        place.put(segment, [segment], utube=name)
    for segment, name in names.items():
        assert files_of(place, R.utube == name) == {segment}
        assert files_of(place, R.utube.is_in(["a", name])) == {segment}
        assert place.engine.rows(counted(place.tube, R.utube == name)) == [{"n": 1}]
    # Its first characters are those of a bound, which is no less than it.
    assert files_of(place, R.utube == names[5][:65]) == {5}
    assert files_of(place, R.utube > names[7]) == {7}
    assert files_of(place, R.utube > "z") == set()


# -- what runs without the library -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "a b", "\u00e9+#"])
def test_take_of_a_small_tube_runs_no_query_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = Place(tmp_path / name, -1, local=True).create()
    place.put(5, [50, 51, 52])
    place.tasks.ready(NOW, 1, None)
    runs: list[Any] = []
    run = place.engine._run
    monkeypatch.setattr(place.engine, "_run", lambda *query: runs.append(query) or run(*query))
    (first,) = place.tasks.ready(NOW, 1, None)
    assert first.task_id == 50
    assert place.run(place.statements.take([5], [(at(50), -50)], LEASE, NOW, 1)).updated == 1
    assert runs == []
    assert place.stored() == [(-50, 50, "t"), (5, 51, "r"), (5, 52, "r")]


def test_rows_when_a_rival_has_committed_are_the_newest(tmp_path: Path) -> None:
    ours, theirs = Place(tmp_path, -1, local=True).create(), Place(tmp_path, -1_000, local=True)
    ours.put(5, [50, 51])
    assert [task.task_id for task in ours.tasks.ready(NOW, 2, None)] == [50, 51]
    theirs.run(theirs.statements.take([5], [(at(50), -50)], LEASE, NOW, 1))
    assert [task.task_id for task in ours.tasks.ready(NOW, 2, None)] == [51]


def test_rows_when_they_are_read_bit_by_bit_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, range(3_000), data=[f"{n}" for n in range(3_000)])
    monkeypatch.setattr(small_files, "_AT_ONCE", 0)
    place.engine._handles.files.forget()
    query = ready(place)
    assert without(place, query).to_pylist() == by_library(place, query).to_pylist()


def test_kept_rows_when_there_are_too_many_are_the_last_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "_KEPT_FILES", 2)
    place = Place(tmp_path, -1, local=True).create()
    for segment in (5, 6, 7):
        place.put(segment, [segment])
    files = place.engine._handles.files
    assert len(without(place, ready(place))) == 3
    assert len(files._kept) == 2
    assert files._bytes == sum(rows.nbytes for rows in files._kept.values() if rows is not None)
    files.forget()
    assert (len(files._kept), files._bytes) == (0, 0)
    assert len(without(place, ready(place))) == 3


# -- what is left to the library ---------------------------------------------------------------------------


def test_take_when_there_are_too_many_files_asks_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "FILES", 2)
    place = Place(tmp_path, -1, local=True).create()
    for segment in (5, 6, 7):
        place.put(segment, [segment * 10, segment * 10 + 1])
    assert place.few(ready(place)) is None
    assert [task.task_id for task in place.tasks.ready(NOW, 3, None)] == [50, 51, 60]
    taken = place.statements.take([5, 6, 7], [(at(60), -50)], LEASE, NOW, 3)
    assert place.run(taken).updated == 3
    assert [(task, state) for _, task, state in place.stored()] == [
        (50, "t"), (51, "t"), (60, "t"), (61, "r"), (70, "r"), (71, "r"),
    ]  # fmt: skip


@pytest.mark.parametrize("at_once", [small_files._AT_ONCE, 0])
def test_take_when_a_small_file_has_large_rows_asks_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(small_files, "_AT_ONCE", at_once)
    place = Place(tmp_path, -1, local=True).create()
    ids = range(50, 1_250)
    place.put(5, ids, data=["x" * 10_000] * len(ids))
    assert place.few(ready(place)) is None
    (kept,) = place.engine._handles.files._kept.values()
    assert kept is None
    assert place.few(ready(place)) is None
    assert place.run(place.statements.take([5], [(at(50), -50)], LEASE, NOW, 1)).updated == 1
    assert [task.task_id for task in place.tasks.ready(NOW, 2, None)] == [51, 52]


def test_groups_when_they_are_of_many_rows_are_left_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50, 51, 52])
    query = counted(place.tube, R.task_id > 50)
    monkeypatch.setattr(arrow_select, "MOST", 2)
    assert place.few(query) is not None
    monkeypatch.setattr(arrow_select, "MOST", 1)
    assert place.few(query) is None
    assert place.engine.rows(query) == [{"n": 2}]


def test_file_when_it_is_gone_is_asked_of_the_library(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50])
    for file in tmp_path.glob("tube/segment=5/*.parquet"):
        file.unlink()
    place.engine._handles.files.forget()
    assert place.few(ready(place)) is None


def test_take_when_another_rows_lease_cannot_be_computed_takes_as_the_library(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50, 51], ttr=[7, 2**63 - 1])
    assert place.run(place.statements.take([5], [(at(50), -50)], LEASE, NOW, 1)).updated == 1
    assert place.stored() == [(-50, 50, "t"), (5, 51, "r")]


def test_moment_when_it_is_read_is_in_utc(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50], next_event=NOW)
    query = select(place.tube, "next_event")
    assert by_library(place, query).equals(without(place, query))
    (found,) = place.engine.rows(query)
    assert found["next_event"].isoformat() == "2027-01-15T08:00:00+00:00"
