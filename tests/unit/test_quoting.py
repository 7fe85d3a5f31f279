"""No value, name or condition of a program ends a literal or names a source in SQL text."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark import InvalidOptionError
from tubeq_spark.clock import to_us
from tubeq_spark.storage import location
from tubeq_spark.storage.expression import TRUE, Call, Literal, Type, at, integer, literal, null
from tubeq_spark.storage.spark import quoting, render
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.storage.user_condition import condition_of, shown
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.storage.expression import Expression


TEXT = st.text(st.characters(codec="utf-8"))


def text_of(literal: str) -> str:
    """What Spark makes of a STRING literal."""
    if literal.startswith("'"):
        return literal[1:-1]
    found = re.fullmatch(r"CAST\(X'([0-9a-f]*)' AS STRING\)", literal)
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
        (integer(2**31 - 1), "2147483647"),
        (integer(-(2**31)), "-2147483648"),
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


# -- conditions of programs --------------------------------------------------------------------------


TABLE = TubeTable("t", 1, ("pri", "task_id"))


def read(text: str) -> Expression:
    found = condition_of(text, shown(TaskState.BURIED, typed=False))
    assert isinstance(found, Call)
    assert (found.function, found.parts[1]) == ("<=>", TRUE)
    return found.parts[0]


READ = {
    "PRI == 1": "pri = 1L",
    "(pri) != (-1)": "pri <> -1L",
    "1 <= pri\n\tand pri<2": "1L <= pri AND pri < 2L",
    "pri = 1 OR pri = 2 AND attempts = 3": "pri = 1L OR (pri = 2L AND attempts = 3L)",
    "(pri = 1 OR pri = 2) AND attempts = 3": "(pri = 1L OR pri = 2L) AND attempts = 3L",
    "pri BETWEEN 1 AND 2 AND pri NOT BETWEEN 3 AND 4": (
        "pri >= 1L AND pri <= 2L AND NOT (pri >= 3L AND pri <= 4L)"
    ),
    "utube NOT IN ('a')": "NOT (utube = 'a')",
    "utube IS NULL OR (pri = 1) IS NOT NULL": "utube IS NULL OR NOT ((pri = 1L) IS NULL)",
    "data NOT LIKE 'x'": "NOT (data LIKE 'x')",
    "utube = 'it''s'": "utube = CAST(X'69742773' AS STRING)",
    "ttl = ttr AND .5 < ttl": "(ttl / 1000000D) = (ttr / 1000000D) AND 0.5D < (ttl / 1000000D)",
    "ttl IN (1, 2.5, 1e2)": "(ttl / 1000000D) = 1.0D OR (ttl / 1000000D) = 2.5D OR (ttl / 1000000D) = 100.0D",
    "created < TIMESTAMP '2026-11-21'": "created < TIMESTAMP'2026-11-21 00:00:00.000000+00:00'",
    "created < timestamp '2026-11-21T08:30:00.25+01:00'": (
        "created < TIMESTAMP'2026-11-21 07:30:00.250000+00:00'"
    ),
    "length(data) > 3": "length(data) > 3L",
    "contains(data, '%')": "data LIKE CAST(X'255c2525' AS STRING)",
    "startswith(data, 'a_')": "data LIKE CAST(X'615c5f25' AS STRING)",
    "endsWith(data, 'a')": "data LIKE '%a'",
    "coalesce(utube, data, 'x') = 'y'": (
        "CASE WHEN utube IS NOT NULL THEN utube WHEN data IS NOT NULL THEN data ELSE 'x' END = 'y'"
    ),
    "coalesce(ttl, 5) = 5": "CASE WHEN (ttl / 1000000D) IS NOT NULL THEN ttl / 1000000D ELSE 5.0D END = 5.0D",
    "false OR TRUE": "FALSE OR TRUE",
    "`Data` = 'a'": "data = 'a'",
    "NOT utube IS NOT NULL": "NOT (NOT (utube IS NULL))",
    "-1.5 < ttl -- a comment": "-1.5D < (ttl / 1000000D)",
}

REFUSED = {
    " ": "No expression was parsed",
    "pri": "pri is not possible: Function 'equal' has no kernel matching input types (int64, bool)",
    "nothing = 1": "nothing is not possible",
    "pri = 1 AND": "a value is missing. Line 1, Col: 11; possible are",
    "pri >": "a value is missing. Line 1, Col: 5; possible are",
    "pri = 1 2": "Unexpected token. Line 1, Col: 9",
    "pri = 1; pri = 2": "pri = 1; pri = 2 is not possible",
    "pri = 'a'": "pri = 'a' is not possible: Function 'equal' has no kernel matching input types (int64, string)",
    "pri = 1.5": "cannot be compared with fractions",
    "coalesce(task_id, 0) = 1.5": "cannot be compared with fractions",
    "created > TIMESTAMP '2026-11-31'": "day is out of range",
    "created > TIMESTAMP 5": "Invalid isoformat string: '5'",
    "created > CAST('2026-11-21' AS DATE)": "AS DATE) is not possible",
    "pri IN (1, NULL)": "NULL is not possible",
    "pri IN ()": "pri IN () is not possible",
    "pri IN (SELECT 1)": "pri IN (SELECT 1) is not possible",
    "pri NOT = 1": "startswith and the columns task_id, state, ",
    "pri IS TRUE": "pri IS TRUE is not possible",
    "pri LIKE '1'": "pri LIKE '1' is not possible: Function 'match_like' has no kernel",
    "data LIKE 'a' ESCAPE '!'": "is not possible",
    "pri + 1 = 2": "pri + 1 is not possible",
    "pri = - data": "-data cannot be",
    "data = 'a\\n'": "engines differ in the meaning of a backslash",
    "data LIKE '100\\%'": "engines differ in the meaning of a backslash",
    'data = "a"': "Unexpected token",
    "data = 'a' 'b'": "CONCAT('a', 'b') is not possible",
    "pri = 9223372036854775808": "int too big to convert",
    f"pri = {'9' * 5_000}": "inf is no literal",
    "length(data, 1) = 1": "LENGTH(data, 1) is not possible",
    "length(pri) = 1": "LENGTH(pri) is not possible: Function 'utf8_length' has no kernel",
    "contains(data, utube)": "CONTAINS(data, utube) is not possible",
    "coalesce(pri, 'a') = 1": "COALESCE(pri, 'a') is not possible",
    f"{'(' * 500}TRUE{')' * 500}": "recursion",
    "utube = '\ud800'": "without lone surrogates",
}


@pytest.mark.parametrize("text", READ)
def test_condition_when_all_engines_answer_it_alike_becomes_an_expression(text: str) -> None:
    assert render.text_of(read(text)) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_condition_when_it_is_none_or_engines_differ_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"^where=") as refused:
        read(text)

    assert REFUSED[text] in str(refused.value)


@pytest.mark.parametrize("text", ["", 5, None, ["pri = 1"]])
def test_condition_when_it_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="where"):
        read(text)


def test_condition_when_the_payload_has_a_schema_knows_no_text_of_it() -> None:
    typed = TubeTable("t", 1, ("task_id",), ("n",))

    assert (
        render.text_of(typed.fulfils("data IS NULL", TaskState.BURIED)) == "(data IS NULL) <=> TRUE"
    )
    with pytest.raises(InvalidOptionError, match="struct"):
        typed.fulfils("data = 'a'", TaskState.BURIED)
