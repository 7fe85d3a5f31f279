"""Literals in the text that DataFusion is given: it reads each as the same value."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.native.grid import plain_values
from tests.unit.golden.sample_values import NAMES
from tubeq_spark.storage.expression import Literal, Type
from tubeq_spark.storage.native.datafusion.running import ArrowHandover, RunningQuery
from tubeq_spark.storage.native.datafusion.text import DataFusionRenderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.expression import Expression

LEAST, LAST = -(2**63), 2**63 - 1
TEXTS: Sequence[str | None] = (
    *NAMES,
    "'",
    "''",
    "'''; --",
    "\\",
    "\\'",
    "\\n\\u0041",
    '"',
    "{}",
    "{rows} {{note}}",
    "$1 ? :a @b",
    "%_",
    "E'x' X'ff' U&'\\0041'",
    "a\tb\r\n",
    "\x00\x01\x7f\x80",
    "\u2028\u00a0\ufeff",
    "\U0010ffff\ue000",
    "e\u0301 é",
    "/* x */ -- y",
    "NULL",
    "x" * 10_000,
)
VALUES: dict[Type, Sequence[Any]] = {
    Type.STRING: TEXTS,
    Type.BIGINT: (0, 1, -1, LEAST, LEAST + 1, LAST, 2**31, -(2**53) - 1, None),
    Type.INT: (0, 1, -1, -(2**31), 2**31 - 1, None),
    Type.BOOLEAN: (True, False, None),
    Type.TIMESTAMP: (
        0,
        1,
        -1,
        -62_135_596_800_000_000,
        -62_135_596_800_000_001,
        253_402_300_799_999_999,
        253_402_300_800_000_000,
        # What a moment in nanoseconds has no number for.
        10_000_000_000_000_001,
        LEAST,
        LAST,
        None,
    ),
    Type.COUNTS: ({"a": 1}, {}, None, {"O'Neil {x}": LAST, "漢字": LEAST, "": 0}),
}


def read_back(expressions: Sequence[Expression]) -> pa.Table:
    """Some values as DataFusion reads them."""
    renderer = DataFusionRenderer()
    texts = (f"{renderer.expression(each)} AS x{n}" for n, each in enumerate(expressions))
    return RunningQuery(ArrowHandover()).rows(f"SELECT {', '.join(texts)}", {})


def values_read(values: Sequence[Any], kind: Type) -> list[Any]:
    (found,) = plain_values(read_back([Literal(value, kind) for value in values]))
    return list(found.values())


@pytest.mark.parametrize("kind", VALUES)
def test_literals_when_they_are_rendered_are_read_as_the_same_values(kind: Type) -> None:
    assert values_read(VALUES[kind], kind) == list(VALUES[kind])


def test_literals_when_they_are_null_have_the_types_of_others() -> None:
    for kind, values in VALUES.items():
        some = next(value for value in values if value)
        types = read_back([Literal(None, kind), Literal(some, kind)]).schema.types
        assert types[0] == types[1] or pa.types.is_null(types[0]), kind


def test_texts_of_any_characters_when_they_are_rendered_are_read_as_the_same() -> None:
    chance = random.Random(7)
    points = [*range(0x250), 0x2028, 0x6F22, 0xFFFD, 0x1F407, *map(ord, "'\\{}\"`;-/*$?%")] * 2
    texts = ["".join(map(chr, chance.choices(points, k=40))) for _ in range(200)]
    assert values_read(texts, Type.STRING) == texts


def test_small_number_when_it_is_rendered_is_read_as_the_same() -> None:
    ends = [-(2**31), 2**31 - 1, 0]
    found = read_back([Literal(value, Type.INT, is_small=True) for value in ends])
    assert list(found.to_pylist()[0].values()) == ends
