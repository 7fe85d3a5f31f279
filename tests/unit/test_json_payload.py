"""Payloads as JSON text: what goes in comes out, and what would not is refused."""

from __future__ import annotations

import datetime as dt
import inspect
import math
import sys
from collections import OrderedDict
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tubeq_spark.cli.call import json_text
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.json_payload import DEPTH_MAX, UnreadableError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


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
        {"a": b"inside"},
        {1, 2},
        int,
        (number for number in ()),
        object(),
        Hostile(),
        1j,
        cyclic(),
        deep(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_encode_of_what_would_not_come_back_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"^data"):
        encode(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = (value,) if level % 2 else {"k": value}
    return value


def at_the_end_of_the_stack(call: Callable[[], T]) -> T:
    """Call something where Python's stack has room for little more."""

    def descend(levels: int) -> T:
        return descend(levels - 1) if levels else call()

    room = sys.getrecursionlimit() - len(inspect.stack()) - 60
    return descend(room)


def test_payload_of_the_greatest_depth_is_encoded_and_decoded_wherever_the_caller_is() -> None:
    value = nested(DEPTH_MAX)

    text = at_the_end_of_the_stack(lambda: encode(value))
    back = at_the_end_of_the_stack(lambda: decode(text))

    assert encode(back) == text


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 900, 990])
def test_encode_of_what_is_nested_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(InvalidOptionError, match=f"{DEPTH_MAX} deep"):
        encode(nested(depth))


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, "9" * 5_000, "\ufeff1"])
def test_decode_of_what_python_cannot_read_says_why(text: str) -> None:
    with pytest.raises(UnreadableError, match="it is "):
        decode(text)


def test_json_text_of_a_payload_with_maps_has_texts_for_their_keys() -> None:
    data = {"m": [{dt.date(2026, 1, 2): {Decimal("1.5"): b"a"}, "k": {1: None}}]}

    assert json_text(data) == '{"m": [{"2026-01-02": {"1.5": "61"}, "k": {"1": null}}]}'
