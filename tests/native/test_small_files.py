"""A query on local files reads only the files and columns that it needs, and understands moments of Spark."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake

from tests.datafusion import answered
from tests.native.support import NOW, Place, at
from tests.queries import counted, select
from tubeq_spark.clock import to_us
from tubeq_spark.storage.engine import EngineError, is_missing_table
from tubeq_spark.storage.expression import Column, micros, row
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.native import small_files
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.native.small_files import Listed
from tubeq_spark.storage.query import Select
from tubeq_spark.storage.tables.tube_table import TubeTable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.native.plain_table import PlainTable

MINUTE = 60_000_000
SEGMENTS = range(5, 12)
R = row()
TABLE = TubeTable("mail", 1, ("task_id",))
READY = TABLE.is_ready(NOW)


def ready(place: Place) -> Select:
    return select(place.tube, "task_id", where=READY, order=["task_id"])


def without(place: Place, query: Select) -> pa.Table:
    """What our engine answers."""
    return place.engine.arrow(query)


def files_of(place: Place, where: Expression) -> set[int | None]:
    """The segments of the files that are read for a condition."""
    table = place.engine._handles.table(place.tube)
    newest = table.newest()
    listed = Listed(table, newest.within({}), newest.shape.schema).narrowed(where)
    return {file.partition["segment"] for file in listed.files}


# -- which files -------------------------------------------------------------------------------------------


def test_files_when_their_statistics_exclude_a_condition_are_not_read(tmp_path: Path) -> None:
    place = Place(tmp_path, ("pri", "task_id")).create()
    for segment in SEGMENTS:
        place.put(segment, [segment * 10, segment * 10 + 1])
    assert place.take({5: [50, 51]}, -50).updated == 2
    mine = place.table.mine() & READY
    assert files_of(place, mine) == {*SEGMENTS} - {5}
    assert files_of(place, mine & place.table.up_to(at(70))) == {6, 7}
    # What was taken for ever has no end that could have passed.
    place.put(13, [130], ttr=None)
    place.take({13: [130]}, -130)
    assert files_of(place, mine) == {*SEGMENTS} - {5}
    # Its lease has ended by then.
    assert files_of(place, TABLE.is_ready(NOW + MINUTE)) == {*SEGMENTS, -50} - {5}


# -- what runs without the library -------------------------------------------------------------------------


def test_kept_rows_when_there_are_too_many_are_the_last_that_were_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "_KEPT_FILES", 2)
    for segment in (5, 6, 7):
        place.put(segment, [segment])
    files = place.engine._handles.files
    assert len(without(place, ready(place))) == 3
    assert len(files._kept) == 2
    sizes = [rows.get_total_buffer_size() for rows, _ in files._kept.values()]
    assert files._bytes == sum(sizes) > 0
    files.forget()
    assert (len(files._kept), files._bytes) == (0, 0)
    assert len(without(place, ready(place))) == 3


# -- file by file ------------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories of the files that are read, in this order."""
    directories: list[str] = []
    read = small_files._read

    def noted(table: PlainTable, file: DataFile, *how: Any) -> Iterator[pa.Table]:
        directories.append(file.path.split("/")[0])
        return read(table, file, *how)

    monkeypatch.setattr(small_files, "_read", noted)
    # Otherwise what was written is kept.
    monkeypatch.setattr(small_files, "_KEPT_FILES", 0)
    return directories


def test_first_tasks_when_later_files_cannot_hold_them_are_read_alone(
    tmp_path: Path, opened: list[str]
) -> None:
    place = Place(tmp_path, ("pri", "task_id")).create()
    for segment in (9, 5, 8, 6, 7):
        place.put(segment, [segment * 10, segment * 10 + 1])
    columns = ("pri", "task_id", "data")

    def first(limit: int) -> list[int]:
        opened.clear()
        where = place.table.mine() & READY
        query = select(place.tube, *columns, where=where, order=["pri", "task_id"])
        query = replace(query, limit=limit)
        return [each["task_id"] for each in place.engine.rows(query)]

    assert first(1) == [50]
    assert opened == ["segment=5"]
    assert first(2) == [50, 51]
    assert opened == ["segment=5"]
    assert first(3) == [50, 51, 60]
    assert opened == ["segment=5", "segment=6"]
    # A file with a lower bound, and nothing that is ready.
    assert place.take({5: [50, 51]}, -50).updated == 2
    assert first(1) == [60]
    assert opened == ["segment=6"]
    # Tasks that come before others in the order, whichever was put last.
    place.put(4, [100], pri=-1)
    assert first(2) == [100, 60]
    assert opened == ["segment=4", "segment=6"]
    assert first(100) == [100, 60, 61, 70, 71, 80, 81, 90, 91]


def test_columns_when_a_file_has_one_value_in_them_are_not_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "_SMALL", 0)
    monkeypatch.setattr(small_files, "BYTES", 0)
    place.put(5, [50, 51], utube="x")
    place.put(6, [60], utube="y" * 31)
    place.put(7, [70], utube="y" * 32)
    place.put(8, [80, 81], utube=["z", None])
    place.engine._handles.files.forget()
    asked: list[list[str]] = []
    read = small_files._read

    def noted(
        table: PlainTable, file: DataFile, schema: pa.Schema, known: Any
    ) -> Iterator[pa.Table]:
        asked.append([name for name in schema.names if name not in known])
        return read(table, file, schema, known)

    monkeypatch.setattr(small_files, "_read", noted)
    query = select(place.tube, "segment", "task_id", "utube", order=["task_id"])
    assert without(place, query).to_pylist() == answered(query).to_pylist()
    # NULL is a value, and bounds of long texts may be shorter than these.
    assert asked == [["task_id"], ["utube"], ["task_id", "utube"]]


# -- what others have written, and what is not there -------------------------------------------------------


def test_a_table_that_is_not_there_is_missing(tmp_path: Path) -> None:
    engine, name = NativeEngine(), path_table(str(tmp_path / "nothing"))
    assert not engine.tables.is_table(name)
    with pytest.raises(EngineError, match=r"exist|tube") as missing:
        engine.rows(counted(name))
    assert is_missing_table(missing.value)
    with pytest.raises(EngineError, match=r"exist|tube"):
        Place(tmp_path).put(5, [1])


def test_moments_far_away_as_spark_writes_them_are_read_as_they_are(tmp_path: Path) -> None:
    far = [
        dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    ]
    moments = pa.array(far, pa.timestamp("us", "UTC"))
    rows = pa.table({"at": moments, "inner": pa.StructArray.from_arrays([moments], names=["at"])})
    place = tmp_path / "spark"
    place.mkdir()
    pq.write_table(
        rows, place / "x.parquet", use_deprecated_int96_timestamps=True, store_schema=False
    )
    convert_to_deltalake(place)

    columns = {"at": micros(Column("at")), "inner": micros(Column("at", "inner"))}
    found = NativeEngine().arrow(Select(path_table(str(place)), columns))

    assert found.to_pylist() == [{"at": to_us(at), "inner": to_us(at)} for at in far]


@pytest.mark.parametrize("at_once", [small_files._AT_ONCE, 0])
def test_take_when_a_small_file_has_large_rows_keeps_none_of_them(
    place: Place, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(small_files, "_AT_ONCE", at_once)
    ids = range(50, 1_250)
    place.put(5, ids, data=["x" * 10_000] * len(ids))
    assert len(without(place, ready(place))) == len(ids)
    assert not place.engine._handles.files._kept
    assert place.take({5: [50]}, -50).updated == 1
    assert place.ready(2) == [51, 52]
