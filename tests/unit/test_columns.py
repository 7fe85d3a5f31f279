"""Rows of a query as Python has them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tubeq_spark.storage.arrow.columns import records


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
