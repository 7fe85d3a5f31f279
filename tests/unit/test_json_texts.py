"""Columns of JSON texts: the verdict on many is that on each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.model import json_payload
from tubeq_spark.model.json_payload import DEPTH_MAX, bad_texts, is_payload

if TYPE_CHECKING:
    from collections.abc import Sequence

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
def test_bad_texts_of_one_is_the_verdict_on_it(text: str) -> None:
    assert is_payload(text) is TEXTS[text]
    assert bad_texts(column(text)) == (not TEXTS[text])
    assert bad_texts(column('{"x": 1}', text, "[2]")) == (not TEXTS[text])


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
def test_bad_texts_of_any_is_the_sum_of_the_verdicts(texts: Sequence[str]) -> None:
    assert bad_texts(column(*texts)) == sum(not is_payload(text) for text in texts)


def test_bad_texts_of_what_is_no_utf8_is_counted() -> None:
    offsets = pa.array([0, 1, 4, 5], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b'1"\xff"2')])

    assert bad_texts(pa.chunked_array([texts])) == 1


def test_bad_texts_of_plain_ones_looks_at_none_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> bool:
        raise AssertionError(text)

    monkeypatch.setattr(json_payload, "is_payload", refuse)
    texts = [json.dumps({"url": f"http://example.org/{n}", "é": [n, None]}) for n in range(1_000)]

    assert bad_texts(column(*texts)) == 0
    monkeypatch.setattr(json_payload, "_PART", 10_000)
    assert bad_texts(column(*texts)) == 0
