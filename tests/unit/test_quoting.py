"""Values and names in SQL text: nothing that they hold can end a literal or name a source."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.model.times import to_us
from tubeq_spark.storage import location
from tubeq_spark.storage.expression import Literal, Type, at, integer, literal, null, small
from tubeq_spark.storage.spark import quoting, render

if TYPE_CHECKING:
    from tubeq_spark.storage.expression import Expression

TEXT = st.text(st.characters(codec="utf-8"))


def text_of(literal: str) -> str:
    """What Spark makes of a STRING literal."""
    if literal.startswith("'"):
        return literal[1:-1]
    found = re.fullmatch(r"CAST\(X'([0-9a-f]*)' AS STRING\)", literal)
    assert found is not None
    return bytes.fromhex(found[1]).decode()


@given(TEXT)
def test_string_of_any_text_is_that_text_and_harmless(text: str) -> None:
    literal = quoting.string(text)

    assert text_of(literal) == text
    assert literal.isascii()
    assert literal.count("'") == 2
    assert not set(literal) & set('\\{}\n"`')


def test_identifier_of_parts_is_dotted() -> None:
    assert location.identifier("a.b", "c`d") == "`a.b`.`c``d`"
    assert location.path_table("/q/it's`") == "delta.`/q/it's```"


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), "2026-01-02 03:04:05.000006+00:00"),
        (dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC), "1969-12-31 23:59:59.000000+00:00"),
        (dt.datetime(8999, 12, 31, tzinfo=dt.UTC), "8999-12-31 00:00:00.000000+00:00"),
        # Spark knows no year of fewer figures.
        (dt.datetime(1, 1, 1, tzinfo=dt.UTC), "0001-01-01 00:00:00.000000+00:00"),
        (dt.datetime.max.replace(tzinfo=dt.UTC), "9999-12-31 23:59:59.999999+00:00"),
    ],
)
def test_moment_names_its_zone_and_every_microsecond(moment: dt.datetime, expected: str) -> None:
    assert quoting.moment(to_us(moment)) == f"TIMESTAMP'{expected}'"


def test_moment_when_it_is_out_of_pythons_years_is_told_in_microseconds() -> None:
    assert quoting.moment(2**63 - 1) == "timestamp_micros(9223372036854775807L)"
    assert quoting.moment(-(2**63)) == "timestamp_micros(-9223372036854775808L)"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (literal(2**63 - 1), "9223372036854775807L"),
        (literal(-(2**63)), "-9223372036854775808L"),
        (literal(5) - -(2**63), "5L - -9223372036854775808L"),
        (integer(-(2**31)), "CAST(-2147483648 AS INT)"),
        (small(2**31 - 1), "2147483647"),
        (small(-(2**31)), "-2147483648"),
        (literal("{rows} 'x'"), "CAST(X'7b726f77737d20277827' AS STRING)"),
        (literal(True), "TRUE"),
        (at(-1), "TIMESTAMP'1969-12-31 23:59:59.999999+00:00'"),
        (null(Type.BOOLEAN), "CAST(NULL AS BOOLEAN)"),
        (null(Type.COUNTS), "CAST(NULL AS MAP<STRING, BIGINT>)"),
        (Literal({}, Type.COUNTS), "CAST(map() AS MAP<STRING, BIGINT>)"),
        (
            Literal({"7/a": 1, "{n}": -2}, Type.COUNTS),
            "map('7/a', 1L, CAST(X'7b6e7d' AS STRING), -2L)",
        ),
    ],
)
def test_literal_of_each_type_is_a_text_of_that_type(expression: Expression, text: str) -> None:
    assert render.text_of(expression) == text
