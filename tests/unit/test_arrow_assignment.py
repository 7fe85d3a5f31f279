"""Columns of Arrow as they are stored: what a put of single values makes of the same, in any layout."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tubeq_spark import InvalidOptionError
from tubeq_spark.payloads.arrow_values import lacking
from tubeq_spark.payloads.assignment import assigned
from tubeq_spark.payloads.values import converter

ROW = pa.struct({"n": pa.int64(), "by": pa.map_(pa.string(), pa.list_(pa.int64()))})
WANTED = pa.struct({"n": pa.int8(), "by": pa.map_(pa.string(), pa.list_(pa.float32()))})
ROWS: list[Any] = [
    {"n": 1, "by": {"a": [1, None, 3], "b": None}},
    None,
    {"n": None, "by": {}},
    {"n": -128, "by": None},
    {"n": 127, "by": {"c": [], "d": [2]}},
]
CASES = {
    "structs": (ROW, WANTED, ROWS),
    "lists": (pa.list_(ROW), pa.list_(WANTED), [ROWS, None, [], ROWS[1:3], ROWS[:1]]),
    "large lists": (pa.large_list(ROW), pa.list_(WANTED), [None, ROWS, ROWS[:2], [None], []]),
    "pairs": (pa.list_(pa.int64(), 2), pa.list_(pa.int16()), [[1, 2], None, [3, None], [4, 5]]),
    "decimals": (pa.int64(), pa.decimal128(5, 2), [1, None, -999, 0, 7]),
    "whole": (pa.decimal128(20, 3), pa.int16(), [Decimal("7.000"), None, Decimal(-3), None]),
    "texts": (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), ["a", None, "b", "a"]),
    "nothing": (pa.list_(pa.null()), pa.list_(WANTED), [[None], None, [], [None, None]]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 4), (2, 3), (4, 4)])
def test_column_when_assigned_has_what_a_put_stores(name: str, first: int, last: int) -> None:
    given, wanted, values = CASES[name]
    column = pa.chunked_array([pa.array(values, given)[first:last], pa.array(values, given)])

    found = assigned(column, pa.field("c", wanted))

    found.validate(full=True)
    assert found.type == wanted
    of = converter(wanted)
    stored = [of(value) for value in [*values[first:last], *values]]
    assert found.equals(pa.chunked_array([pa.array(stored, wanted)]))


def test_column_with_a_bad_value_deep_in_a_row_names_the_row_and_the_path() -> None:
    column = pa.chunked_array([pa.array(ROWS, ROW), pa.array([{"n": 128, "by": {}}] * 2, ROW)])

    with pytest.raises(InvalidOptionError, match=r"; row 5: c\.n must be TINYINT .*, not 128$"):
        assigned(column, pa.field("c", WANTED))
    bad = pa.chunked_array([pa.array([{"n": 1, "by": {"a": [1, 2**24 + 1]}}], ROW)])
    with pytest.raises(InvalidOptionError, match=r"; row 0: c\.by\['a'\]\[1\] must be FLOAT "):
        assigned(bad, pa.field("c", WANTED))


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        ([{"n": 1}, None, {"n": 2}], 0),
        ([{"n": 1}, {"n": None}], 1),
        ([None, None], 0),
    ],
    ids=["all", "one", "no rows"],
)
def test_column_within_which_a_value_must_be_lacks_it_only_where_there_is_a_row(
    rows: list[Any], bad: int
) -> None:
    wanted = pa.struct([pa.field("n", pa.int32(), nullable=False)])
    for kind, values in (
        (wanted, rows),
        (pa.list_(wanted), [rows]),
        (pa.map_(pa.string(), wanted), [dict(zip("abc", rows, strict=False))]),
    ):
        column = pa.chunked_array([pa.array(values, _nullable(kind))])
        assert lacking(column, pa.field("c", kind)) == bad
    assert (
        lacking(pa.chunked_array([pa.nulls(3, wanted)]), pa.field("c", wanted, nullable=False)) == 3
    )


def _nullable(kind: pa.DataType) -> pa.DataType:
    part = pa.struct({"n": pa.int32()})
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), part)
    return pa.list_(part) if pa.types.is_list(kind) else part
