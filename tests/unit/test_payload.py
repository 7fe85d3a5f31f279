"""Payloads as JSON text: what goes in comes out, and what would not is refused."""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.payload import decode, encode

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


class Number(IntEnum):
    ONE = 1


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@given(VALUES)
def test_decode_of_encode_is_the_value(value: Any) -> None:
    back = decode(encode(value))

    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2,)), [1, [2]]),
        (OrderedDict(a=1), {"a": 1}),
        (Number.ONE, 1),
        (10**400, 10**400),
        (-0.0, -0.0),
        ("\u2028\0", "\u2028\0"),
    ],
)
def test_encode_of_what_json_has_in_another_form_comes_back_in_jsons(
    value: Any, expected: Any
) -> None:
    assert decode(encode(value)) == expected


@pytest.mark.parametrize(
    "value",
    [
        {1: "a"},
        {None: 1},
        {"a": {2: 3}},
        {True: 1},
        {("a",): 1},
        math.nan,
        [math.inf],
        {"a": -math.inf},
        "\ud800",
        ["\udfff"],
        {"\ud800": 1},
        b"bytes",
        {1, 2},
        object(),
        Hostile(),
        1j,
        cyclic(),
        deep(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_encode_of_what_would_not_come_back_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"^data="):
        encode(value)
