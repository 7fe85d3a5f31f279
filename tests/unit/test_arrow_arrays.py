"""Arrays of Python values: those of a few values are made in other ways than those of many."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tubeq_spark.storage.arrow.columns import array

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
