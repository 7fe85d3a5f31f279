"""What a program may write as a condition, what it means, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import InvalidOptionError
from tubeq_spark.storage.expression import TRUE, Compared
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.storage.user_condition import condition_of

if TYPE_CHECKING:
    from tubeq_spark.storage.expression import Expression

TABLE = TubeTable("t", 1, ("pri", "task_id"))


def read(text: str) -> Expression:
    found = condition_of(text, TABLE.shown)
    assert isinstance(found, Compared)
    assert (found.sign, found.right) == ("<=>", TRUE)
    return found.left


READ = {
    "pri = 1": "pri = 1L",
    "PRI == 1": "pri = 1L",
    "(pri) != (-1)": "pri <> -1L",
    "1 <= pri\n\tand pri<2": "1L <= pri AND pri < 2L",
    "pri = 1 OR pri = 2 AND attempts = 3": "pri = 1L OR (pri = 2L AND attempts = 3L)",
    "(pri = 1 OR pri = 2) AND attempts = 3": "(pri = 1L OR pri = 2L) AND attempts = 3L",
    "NOT pri = 1 AND NOT NOT pri = 2": "NOT (pri = 1L) AND NOT (NOT (pri = 2L))",
    "pri BETWEEN 1 AND 2 AND pri NOT BETWEEN 3 AND 4": (
        "pri >= 1L AND pri <= 2L AND NOT (pri >= 3L AND pri <= 4L)"
    ),
    "pri IN (1, 2)": "pri = 1L OR pri = 2L",
    "utube NOT IN ('a')": "NOT (utube = 'a')",
    "utube IS NULL OR (pri = 1) IS NOT NULL": "utube IS NULL OR (pri = 1L) IS NOT NULL",
    "data LIKE '%x_'": "data LIKE '%x_'",
    "data NOT LIKE 'x'": "NOT (data LIKE 'x')",
    "utube = ''": "utube = ''",
    "utube = 'it''s'": "utube = CAST(X'69742773' AS STRING)",
    "ttl > 60": "(ttl / 1000000D) > 60.0D",
    "ttl = ttr AND .5 < ttl": "(ttl / 1000000D) = (ttr / 1000000D) AND 0.5D < (ttl / 1000000D)",
    "ttl IN (1, 2.5, 1e2)": "(ttl / 1000000D) = 1.0D OR (ttl / 1000000D) = 2.5D OR (ttl / 1000000D) = 100.0D",
    "created < TIMESTAMP '2026-11-21'": "created < TIMESTAMP'2026-11-21 00:00:00.000000+00:00'",
    "created < timestamp '2026-11-21T08:30:00.25+01:00'": (
        "created < TIMESTAMP'2026-11-21 07:30:00.250000+00:00'"
    ),
    "length(data) > 3": "length(data) > 3L",
    "length(data) > 3.5": "length(data) > 3.5D",
    "contains(data, '%')": "data LIKE CAST(X'255c2525' AS STRING)",
    "startswith(data, 'a_')": "data LIKE CAST(X'615c5f25' AS STRING)",
    "endsWith(data, 'a')": "data LIKE '%a'",
    "coalesce(utube, data, 'x') = 'y'": (
        "CASE WHEN utube IS NOT NULL THEN utube WHEN data IS NOT NULL THEN data ELSE 'x' END = 'y'"
    ),
    "coalesce(ttl, 5) = 5": "CASE WHEN (ttl / 1000000D) IS NOT NULL THEN ttl / 1000000D ELSE 5.0D END = 5.0D",
    "TRUE": "TRUE",
    "false OR TRUE": "FALSE OR TRUE",
    "`Data` = 'a'": "data = 'a'",
    "(pri = 1) = TRUE": "(pri = 1L) = TRUE",
    "NOT utube IS NOT NULL": "utube IS NULL",
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
    "ttl = '5'": "(double, string)",
    "created > '2026-11-21'": "(timestamp[us, tz=UTC], string)",
    "created > TIMESTAMP '2026-11-31'": "day is out of range",
    "created > TIMESTAMP 'x'": "Invalid isoformat string: 'x'",
    "created > TIMESTAMP 5": "Invalid isoformat string: '5'",
    "created > CAST('2026-11-21' AS DATE)": "AS DATE) is not possible",
    "pri = NULL": "NULL is not possible",
    "pri IN (1, NULL)": "NULL is not possible",
    "pri IN ()": "pri IN () is not possible",
    "pri IN (SELECT 1)": "pri IN (SELECT 1) is not possible",
    "pri NOT = 1": "; possible are",
    "pri IS TRUE": "pri IS TRUE is not possible",
    "pri LIKE '1'": "pri LIKE '1' is not possible: Function 'match_like' has no kernel",
    "data LIKE utube": "data LIKE utube is not possible",
    "data LIKE 'a' ESCAPE '!'": "is not possible",
    "pri AND TRUE": "pri AND TRUE is not possible",
    "pri + 1 = 2": "pri + 1 is not possible",
    "pri = - data": "-data cannot be",
    "data = 'a\\n'": "engines differ in the meaning of a backslash",
    "data LIKE '100\\%'": "engines differ in the meaning of a backslash",
    'data = "a"': "Unexpected token",
    "data = 'a' 'b'": "CONCAT('a', 'b') is not possible",
    "pri = 9223372036854775808": "int too big to convert",
    f"pri = {'9' * 5_000}": "inf is no literal",
    "lower(data) = 'a'": "LOWER(data) is not possible",
    "length(data, 1) = 1": "LENGTH(data, 1) is not possible",
    "length(pri) = 1": "LENGTH(pri) is not possible: Function 'utf8_length' has no kernel",
    "contains(data, utube)": "CONTAINS(data, utube) is not possible",
    "coalesce(pri, 'a') = 1": "COALESCE(pri, 'a') is not possible",
    "EXISTS (SELECT 1)": "EXISTS(SELECT 1) is not possible",
    f"{'(' * 500}TRUE{')' * 500}": "recursion",
    f"{'NOT ' * 1000}TRUE": "recursion",
    "utube = '\ud800'": "without lone surrogates",
}


@pytest.mark.parametrize("text", READ)
def test_condition_when_all_engines_answer_it_alike_becomes_an_expression(text: str) -> None:
    assert text_of(read(text)) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_condition_when_it_is_none_or_engines_differ_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"^where=") as refused:
        read(text)

    assert REFUSED[text] in str(refused.value)


def test_condition_when_it_is_refused_names_what_is_possible() -> None:
    with pytest.raises(
        InvalidOptionError, match=r"IS NULL, .* length, .* the columns task_id, state"
    ):
        read("nothing = 1")


@pytest.mark.parametrize("text", ["", 5, None, ["pri = 1"]])
def test_condition_when_it_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="where"):
        read(text)


def test_condition_when_the_payload_has_a_schema_knows_no_text_of_it() -> None:
    typed = TubeTable("t", 1, ("task_id",), ("n",))

    assert text_of(condition_of("data IS NULL", typed.shown)) == "(data IS NULL) <=> TRUE"
    with pytest.raises(InvalidOptionError, match="struct"):
        condition_of("data = 'a'", typed.shown)
