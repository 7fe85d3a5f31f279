"""Arrays of Python values, which are made in other ways of a few values than of many, and rows of a query as Python has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tubeq_spark.storage.arrow.columns import array, records

MOMENT = pa.timestamp("us", "UTC")
TEXTS = ["", "a", "\u00e9\U0001f600", "a\0b", "x" * 1_000]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], pa.string()),
        ([], MOMENT),
        (TEXTS, pa.string()),
        (TEXTS * 10, pa.string()),
        (["a", None], pa.string()),
        ([None, "a"], pa.string()),
        ([None], pa.string()),
        ([None] * 100, pa.int32()),
        ([None, None], MOMENT),
        ([None, 5], MOMENT),
        ([-1, 2**62], pa.int64()),
        ([True, None], pa.bool_()),
    ],
)
def test_array_when_made_of_values_has_these(values: list[Any], kind: pa.DataType) -> None:
    found = array(values, kind)

    found.validate(full=True)
    assert found.type == kind
    assert (found.cast(pa.int64()) if kind == MOMENT else found).to_pylist() == values


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
