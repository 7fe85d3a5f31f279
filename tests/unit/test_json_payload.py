"""A payload comes back from JSON as it went in, and the verdict on a column is that on each of its texts."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import math
import sys
from collections import OrderedDict
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.cli.values import json_text
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import json_payload
from tubeq_spark.model.json_payload import (
    DEPTH_MAX,
    UnreadableError,
    decode,
    encode,
    is_bad_json,
    is_payload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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


# -- columns of texts --------------------------------------------------------------------------------


#: Each with whether it is a payload.
TEXTS = {
    "1": True,
    " \t\r\n1\n ": True,
    "1e-400": True,
    '"1e999"': True,
    "9" * 4_000: True,
    '"\\ud83d\\ude00"': True,
    '"\\u00e9\\n\\\\ud800"': True,
    '"\u2028\x7f"': True,
    '{"a": 1, "a": 2}': True,
    '"NaN, Infinity"': True,
    "[" * DEPTH_MAX + "]" * DEPTH_MAX: True,
    '"' + "[{" * 500 + '"': True,
    '["' + "x" * 3_000_000 + '"]': True,
    '{"a": {}}': True,
    '{"a": {"b": 1}': False,
    '{"a": 1}}': False,
    '{"a": [{}, {}': False,
    '{"a": 1}, {"b": 2}': False,
    '{"a": 1}\n{"b": 2}': False,
    "": False,
    "1, 2": False,
    '{"a":1}{"b":2}': False,
    '1}, {"d": 2': False,
    '1}\n{"d":2': False,
    '1, "d": 2': False,
    "01": False,
    "/*c*/1": False,
    "NaN": False,
    "[-Infinity]": False,
    "1e400": False,
    "-1.0E+0309": False,
    '{"a": 1e999}': False,
    "9" * 250 + "e99": False,
    "9" * 5_000: False,
    '"\\ud800"': False,
    '"\\udc00\\ud800"': False,
    '"\\ud800\\u0041"': False,
    '"\\u12"': False,
    '"a\tb"': False,
    "\ufeff1": False,
    '"\0"': False,
    "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1): False,
    "[" * 100_000 + "]" * 100_000: False,
}


def column(*texts: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:20]))
def test_bad_json_in_one_text_is_the_verdict_on_it(text: str) -> None:
    assert is_payload(text.encode("utf-8", "surrogatepass")) is TEXTS[text]
    assert is_bad_json(column(text)) == (not TEXTS[text])
    assert is_bad_json(column('{"x": 1}', text, "[2]")) == (not TEXTS[text])


PIECES = st.sampled_from(
    [
        '{"a":',
        "}",
        "}",
        *'[]{},:" \n0123456789-.eE+\\',
        "null",
        "NaN",
        '"a":',
        '"',
        "\\ud800",
        "\\udc00",
        "1e9",
        "99",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def written(value: Any, ensure_ascii: bool) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii).encode(errors="ignore").decode()


@given(
    st.lists(
        st.lists(PIECES, max_size=8).map("".join) | st.builds(written, VALUES, st.booleans()),
        max_size=6,
    )
)
def test_bad_json_in_any_texts_is_one_of_the_verdicts(texts: Sequence[str]) -> None:
    assert is_bad_json(column(*texts)) == any(
        not is_payload(text.encode("utf-8", "surrogatepass")) for text in texts
    )


def test_bad_json_in_what_is_no_utf8_is_found() -> None:
    offsets = pa.array([0, 1, 4, 5], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b'1"\xff"2')])

    assert is_bad_json(pa.chunked_array([texts])) == 1


def test_bad_json_in_plain_texts_looks_at_none_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: bytes) -> bool:
        raise AssertionError(text)

    monkeypatch.setattr(json_payload, "is_payload", refuse)
    texts = [json.dumps({"url": f"http://example.org/{n}", "é": [n, None]}) for n in range(1_000)]

    assert is_bad_json(column(*texts)) == 0
    assert is_bad_json(pa.chunked_array([texts[:7], [], texts[7:]])) == 0
