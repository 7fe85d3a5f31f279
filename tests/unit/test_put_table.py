"""Arrow tables give rows the segments of the layout, and the package finds bad values and named ids in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.ids import BUCKETS, Numbering, Range, hash_of, spread
from tubeq_spark.payloads.arrow_values import is_bad, places
from tubeq_spark.payloads.shown_table import named_tasks
from tubeq_spark.storage.arrow.columns import array, records
from tubeq_spark.verbs.put_rows import buckets_of, segments_of


@given(
    st.lists(st.none() | st.integers(0, 40).map(lambda n: f"ü{n}"), min_size=1, max_size=200),
    st.integers(1, 50),
    st.integers(0, 9),
)
def test_segments_are_those_of_the_layout(utubes: list[str | None], size: int, least: int) -> None:
    column = pa.chunked_array([utubes[:3], utubes[3:]], pa.string())
    own = [hash_of(utube) % BUCKETS for utube in utubes]

    buckets = buckets_of(column, len(utubes))
    layout = spread(Counter(own), size, least)
    numbering = Numbering(len(utubes), Range(3, 4_090, len(utubes) + layout.segments), layout, 0)

    assert buckets.to_pylist() == own
    assert segments_of(numbering, buckets, places(len(utubes))).to_pylist() == [
        numbering.segments[layout.segment(place, bucket)] for place, bucket in enumerate(own)
    ]


BAD_DAY = pa.array([9_000_000], pa.int32()).cast(pa.date32())
BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
)


@pytest.mark.parametrize(
    "values",
    [
        BAD_DAY,
        BAD_TEXT,
        pa.array([-(2**60)], pa.timestamp("us")),
        pa.ListArray.from_arrays([0, 1], BAD_DAY),
        pa.StructArray.from_arrays([BAD_TEXT], ["x"]),
        pa.MapArray.from_arrays([0, 1], pa.array(["k"]), BAD_DAY),
        pa.MapArray.from_arrays([0, 1], BAD_TEXT, pa.array([1])),
        pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([BAD_DAY], ["x"])),
    ],
    ids=lambda values: str(values.type),
)
def test_unreadable_values_are_found_wherever_they_lie(values: Any) -> None:
    part = pa.field("c", values.type)
    assert is_bad(pa.chunked_array([values]), part)
    nothing = pa.nulls(2, values.type)
    assert not is_bad(pa.chunked_array([nothing, values.slice(0, 0)]), part)


@pytest.mark.parametrize(
    "given_ids",
    [
        [2, 1, 2],
        (1, 2),
        {1: 0, 2: 0}.keys(),
        iter([1, 2]),
        pa.array([1, 2, 1], pa.int32()),
        pa.chunked_array([[1], [2]]),
        pa.table({"task_id": [1, 2], "data": ["a", "b"]}),
        pa.record_batch({"task_id": [1, 2]}),
        pa.table({"task_id": [1, 2]}).to_reader(),
        pa.table({"task_id": [1, 2]}).to_pandas(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_named_ids_are_found_in_what_holds_them(given_ids: Any) -> None:
    assert named_tasks(given_ids) == ({1, 2}, None)


@pytest.mark.parametrize(
    "bad", ["12", b"12", 1, None, {"task_id": [1]}, [1.5], pa.table({"task_id": ["1"]})], ids=repr
)
def test_named_ids_of_what_holds_none_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidOptionError):
        named_tasks(bad)


def test_named_tasks_when_a_table_has_errors_have_them() -> None:
    table = pa.table({"task_id": [1, 2], "error": ["a", "b\0"]})

    assert named_tasks(table) == ({1, 2}, {1: "a", 2: "b\\x00"})


@pytest.mark.parametrize("errors", [["a", None], [1, 2]])
def test_named_tasks_when_errors_are_bad_are_refused(errors: list[Any]) -> None:
    with pytest.raises(InvalidOptionError, match="error"):
        named_tasks(pa.table({"task_id": [1, 2], "error": errors}))


# -- arrays of Python values -------------------------------------------------------------------------


MOMENT = pa.timestamp("us", "UTC")
TEXTS = ["", "a", "\u00e9\U0001f600", "a\0b", "x" * 1_000]


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(("value", "error"), [(5, TypeError), ("\ud800", UnicodeEncodeError)])
def test_array_when_a_value_is_no_text_is_refused(
    value: object, error: type[Exception], count: int
) -> None:
    with pytest.raises(error):
        array([value] * count, pa.string())


def test_records_when_maps_lie_in_other_columns_have_dicts_everywhere() -> None:
    counts = pa.map_(pa.string(), pa.int64())
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("calls", counts),
            ("last", pa.struct([("calls", counts), ("at", pa.int64())])),
            ("all", pa.list_(counts)),
        ]
    )
    full = {
        "n": 1,
        "calls": {"put": 1, "take": 2},
        "last": {"calls": {"ack": 3}, "at": 7},
        "all": [{"bury": 4}, {}, None],
    }
    empty = {"n": None, "calls": None, "last": None, "all": None}
    rows = [full, empty, full | {"last": {"calls": None, "at": None}, "calls": {}}]

    assert records(pa.Table.from_pylist(rows, schema)) == rows


def test_records_when_a_map_has_a_key_twice_are_refused() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    rows = pa.table({"calls": pa.array([[("put", 1), ("put", 2)]], kind)})

    with pytest.raises(ValueError, match="twice"):
        records(rows)
