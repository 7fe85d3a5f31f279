"""Payloads of a schema: kept as they are, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tubeq_spark import InvalidOptionError
from tubeq_spark.cli.call import json_text
from tubeq_spark.payloads.codecs import TypedCodec

CODEC = TypedCodec(
    pa.struct(
        {
            "n": pa.int32(),
            "part": pa.float32(),
            "text": pa.string(),
            "bytes": pa.binary(),
            "numbers": pa.list_(pa.int32()),
            "inner": pa.struct({"text": pa.string()}),
            "by_name": pa.map_(pa.string(), pa.int64()),
            "price": pa.decimal128(10, 2),
            "day": pa.date32(),
        }
    )
)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"n": 1, "text": "a"},
        {"n": 2.0},
        {"n": None, "inner": None},
        {"part": 0.1},
        {"numbers": (1, 2)},
        {"inner": {"text": "a"}},
        {"by_name": {"a": 1}},
        {"bytes": bytearray(b"a"), "price": Decimal("1.20"), "day": dt.date(2026, 1, 1)},
    ],
    ids=str,
)
def test_payload_that_fits_its_columns_is_stored(data: dict[str, Any]) -> None:
    stored = CODEC.encode(data)

    assert stored.keys() == set(CODEC.arrow_type.names)


def test_json_text_of_a_payload_with_maps_has_texts_for_their_keys() -> None:
    data = {"m": [{dt.date(2026, 1, 2): {Decimal("1.5"): b"a"}, "k": {1: None}}]}

    assert json_text(data) == '{"m": [{"2026-01-02": {"1.5": "61"}, "k": {"1": null}}]}'


@pytest.mark.parametrize(
    "data",
    [
        {"n": 1.5},
        {"n": True},
        {"n": 2**31},
        {"n": "1"},
        {"part": False},
        {"text": b"a"},
        {"text": 1},
        {"bytes": "a"},
        {"numbers": [1.5]},
        {"inner": {"text": "a", "more": 1}},
        {"by_name": {"a": 1.5}},
        {"more": 1},
        [1],
    ],
    ids=str,
)
def test_payload_that_would_be_changed_or_cut_is_refused(data: Any) -> None:
    with pytest.raises(InvalidOptionError, match="data="):
        CODEC.encode(data)
