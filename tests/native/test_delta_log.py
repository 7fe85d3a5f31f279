"""Other readers learn the stored rows and the removed files from our files, bounds and checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.logs import log_files_of
from tests.native.support import Place
from tests.other_readers import agrees_with_the_library
from tubeq_spark.storage.log import (
    checkpoints,
    data_files,
    reading,
    tidying,
)
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.log.log_files import checkpoint_name
from tubeq_spark.storage.log.snapshot import Shape
from tubeq_spark.storage.statement import Ended, Statement

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.log.snapshot import Snapshot

HOUR = 3_600_000


def seen(place: Place) -> Snapshot:
    return place.engine._handles.table(place.tube).newest()


def once(place: Place, app: str, version: int) -> Statement:
    rows = pa.table({"segment": pa.array([5], pa.int64()), "tube": pa.array([1], pa.int64())})
    return Statement(place.tube, new=rows, once=(app, version), size=1)


# -- what others read ------------------------------------------------------------------------------


def told_gone(log: Path, version: int) -> list[str]:
    """The files that a checkpoint tells to be gone."""
    found = pa.parquet.read_table(log / checkpoint_name(version)).column("remove")
    return [action["path"] for action in found.to_pylist() if action is not None]


def test_checkpoint_tells_what_is_over_for_as_long_as_the_table_says(place: Place) -> None:
    place.run(once(place, "app", 3))
    place.put(6, [60])
    place.run(replace(place.statements.delete_segments([6]), ended=Ended(1)))
    found, log = seen(place), place.log
    _, at_ms = found.transactions["app"]
    assert at_ms is not None
    # Two hours for files, thirty days for transactions, and for ever for how many tasks have ended.
    for hours, gone, known in ((1, 1, 2), (3, 0, 2), (29 * 24, 0, 2), (31 * 24, 0, 1)):
        checkpoints.write(log_files_of(log), found, at_ms + hours * HOUR, {})
        assert len(told_gone(log, found.version)) == gone, hours
        assert len(reading.newest(log_files_of(log)).transactions) == known
    agrees_with_the_library(seen(Place(log.parents[1])), DeltaTable(str(log.parent)))


def test_checkpoint_when_removed_files_came_back_tells_them_to_be_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an addition and a removal of one path readers may take either."""
    place.put(5, [50, 51])
    place.run(place.statements.delete_segments([5]))
    log = place.log
    DeltaTable(str(log.parent)).restore(1)
    monkeypatch.setattr(tidying, "EVERY", 1)
    for segment in (6, 7):
        place.put(segment, [segment * 10])
        version = seen(place).version
        assert told_gone(log, version) == []
        added = pa.parquet.read_table(log / checkpoint_name(version)).column("add")
        paths = {action["path"] for action in added.to_pylist() if action is not None}
        assert paths == seen(place).files.keys()
    assert [row[1] for row in place.stored()] == [50, 51, 60, 70]


# -- files and arrays ------------------------------------------------------------------------------

_KINDS = pa.schema(
    [
        ("segment", pa.int64()),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_MOMENTS = st.integers(-(10**17), 253_402_300_799_999_999)
#: Long ones, too, of characters that have no next one, or one far from them.
_TEXTS = st.text(max_size=80) | st.text("a\x00\ud7ff\uffff\U0010ffff", min_size=60, max_size=70)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "segment": st.integers(-2, 2),
                "n": st.none() | st.integers(-(2**63), 2**63 - 1),
                "text": st.none() | _TEXTS,
                "at": st.none() | _MOMENTS,
            }
        ),
        min_size=1,
    )
)
@settings(max_examples=100, deadline=None)
def test_files_hold_the_rows_of_a_partition_within_what_their_statistics_say(
    rows: list[dict[str, Any]],
) -> None:
    table = pa.table({f.name: pa.array([r[f.name] for r in rows], f.type) for f in _KINDS})
    shape = Shape(_KINDS, ["segment"], {}, {}, {})
    written = list(data_files.encoded(shape, table, 7))
    assert sum(part.num_rows for _, part, _ in written) == len(rows)
    for file, part, content in written:
        assert (file.rows, file.at_ms) == (part.num_rows, 7)
        assert file.size == len(content)
        read = pa.parquet.ParquetFile(pa.BufferReader(content)).read()
        assert read.equals(part.select(read.column_names))
        missing = {*part.column_names} - {*read.column_names, "segment"}
        assert all(part.column(name).null_count == part.num_rows for name in missing)
        assert part.column("segment").unique().to_pylist() == [file.partition["segment"]]
        for name in ("n", "text"):
            known = [value for value in part.column(name).to_pylist() if value is not None]
            low, high = file.bound("minValues", name), file.bound("maxValues", name)
            assert all(low <= value <= high for value in known)
            assert (low is None) is (not known)
        moments = part.column("at").cast(pa.int64()).drop_null().to_pylist()
        for which, fits in (("minValues", min), ("maxValues", max)):
            told = file.bound(which, "at")
            if told is not None:
                limit = pa.scalar(told).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
                assert fits([limit, *moments]) == limit


@pytest.mark.parametrize(
    ("text", "hours"),
    [("interval 2 hours", 2), ("interval 2 weeks", 336), ("INTERVAL 30 DAYS", None), (None, 7)],
)
def test_hours_of_a_property_are_told_where_its_words_are_known(
    text: str | None, hours: int | None
) -> None:
    properties = {} if text is None else {"delta.x": text}
    assert hours_of(properties, "delta.x", 7) == hours
