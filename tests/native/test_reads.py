"""What the readers of tables find for sweeps and statistics, what they say of missing tables, and moments of Spark."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake

from tests.native.support import NOW, OWNER, Place, at
from tests.queries import counted, select
from tubeq_spark.errors import StoreError
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.expression import Column, Micros
from tubeq_spark.storage.expression import row as columns
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.outcome import EngineError, is_missing_table
from tubeq_spark.storage.query import Select, least
from tubeq_spark.storage.rows import (
    SegmentSpan,
    Waiting,
)
from tubeq_spark.storage.tables.counts import counts, depth, waiting
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.user_condition import condition_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tubeq_spark.storage.tables.tube_table import TubeTable

MINUTE = 60_000_000
HELD = -50


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Ready tasks 50 to 52, buried 60 and 61, delayed 70 and 71, taken 80 and 81."""
    root: Path = tmp_path_factory.mktemp("reads")
    place = Place(root, -(10**9), ("pri", "task_id")).create()
    place.put(5, [50, 51, 52], utube=["a", "b", None], pri=[1, 0, 2])
    place.put(6, [60, 61], state="!")
    place.put(7, [70, 71], state="~", next_event=NOW + 1000, utube="x")
    place.put(8, [80, 81], utube="y")
    place.take({8: [80, 81]}, HELD)
    return place


@pytest.mark.parametrize("where", ["error LIKE '%x%'", "pri >= 0 AND NOT owner = 'x'"])
def test_buried_tasks_of_a_condition_on_a_column_without_values_are_none(
    place: Place, where: str
) -> None:
    """DataFusion takes `… AND NULL` for the first part alone."""
    condition = condition_of(where, place.table.shown)
    assert place.tasks.ids(place.table.is_buried(NOW) & condition) == []


def test_states_are_counted_at_a_moment(place: Place) -> None:
    def found(now_us: int, table: TubeTable) -> Mapping[str, int]:
        return counts(place.engine, [table], now_us)[table.id]  # type: ignore[arg-type]

    table = place.table
    assert found(NOW, table) == {"r": 3, "!": 2, "~": 2, "t": 2}
    assert found(NOW + MINUTE, replace(table, max_attempts=1)) == {"r": 5, "!": 4}
    of = depth(place.engine, table, NOW + 1000, NOW + MINUTE)  # type: ignore[arg-type]
    assert (of.unswept, of.unswept_since_us) == (2, NOW + 1000)
    assert (of.leases_ending, of.oldest_ready_us) == (2, NOW)
    behind = table.is_in(TaskState.READY, NOW) & ~table.up_to(at(50, 1))
    assert place.ready(10, behind) == [52]
    assert place.tasks.one(least(columns().pri), behind) == 2


def test_segments_are_told_apart_for_a_sweep(place: Place) -> None:
    segments = TubeReader(place.engine, place.table)  # type: ignore[arg-type]
    assert segments.newest_ids() == {0: 81}
    assert segments.segments_up_to({0: 60}, 9) == [
        SegmentSpan(5, True, False),
        SegmentSpan(6, False, False),
    ]
    assert segments.segments_up_to({0: 81, 1: 9_999}, 1) == [SegmentSpan(HELD, True, True)]
    assert segments.segments_up_to({1: 9_999}, 9) == []
    assert segments.tiny_segments(10, 100) == [5, 6, 7]
    assert segments.tiny_segments(10, 3) == [5]
    assert segments.gone_segments() == []
    assert waiting(place.engine, place.table, NOW + 1000, 10) == Waiting(
        2, (OWNER,), 0, 3, is_dropped=False
    )


def test_a_table_that_is_not_there_is_missing(place: Place, tmp_path: Path) -> None:
    engine, name = place.engine, path_table(str(tmp_path / "nothing"))
    assert not engine.tables.is_table(name)
    with pytest.raises(EngineError, match=r"exist|tube") as missing:
        engine.rows(counted(name))
    assert is_missing_table(missing.value)
    with pytest.raises(EngineError, match=r"exist|tube"):
        Place(tmp_path, -1).put(5, [1])


def test_a_query_that_fails_is_told_as_an_error_of_the_storage(place: Place) -> None:
    with pytest.raises(StoreError, match="storage could not be read"):
        place.engine.rows(select(place.tube, "nothing"))


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

    columns = {"at": Micros(Column("at")), "inner": Micros(Column("at", "inner"))}
    found = NativeEngine().arrow(Select(path_table(str(place)), columns))

    assert found.to_pylist() == [{"at": to_us(at), "inner": to_us(at)} for at in far]
