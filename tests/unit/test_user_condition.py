"""What a program may write as a condition, what it means, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark import InvalidOptionError
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.storage.user_condition import UserCondition

if TYPE_CHECKING:
    from tubeq_spark.storage.expression import Expression

TABLE = TubeTable("t", 1, ("pri", "task_id"))
R = row()


def read(text: str) -> Expression:
    return UserCondition(text, TABLE.shown).expression


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
    "ttl > 60": "ttl / 1000000D > 60.0D",
    "ttl = ttr AND .5 < ttl": "ttl / 1000000D = ttr / 1000000D AND 0.5D < ttl / 1000000D",
    "ttl IN (1, 2.5, 1e2)": "ttl / 1000000D = 1.0D OR ttl / 1000000D = 2.5D OR ttl / 1000000D = 100.0D",
    "created < TIMESTAMP '2026-11-21'": "created < TIMESTAMP'2026-11-21 00:00:00.000000+00:00'",
    "created < timestamp '2026-11-21T08:30:00.25+01:00'": (
        "created < TIMESTAMP'2026-11-21 07:30:00.250000+00:00'"
    ),
    "length(data) > 3": "length(data) > 3L",
    "contains(data, '%')": "instr(data, '%') > 0",
    "startswith(data, 'a_')": "data LIKE CAST(X'615c5f25' AS STRING)",
    "endsWith(data, 'a')": "data LIKE '%a'",
    "coalesce(utube, data, 'x') = 'y'": (
        "CASE WHEN utube IS NOT NULL THEN utube WHEN data IS NOT NULL THEN data ELSE 'x' END = 'y'"
    ),
    "coalesce(ttl, 5) = 5": "CASE WHEN ttl / 1000000D IS NOT NULL THEN ttl / 1000000D ELSE 5.0D END = 5.0D",
    "TRUE": "TRUE",
    "false OR TRUE": "FALSE OR TRUE",
}

REFUSED = {
    " ": "its end is not a column",
    "pri": "pri is a whole number, not a condition",
    "nothing = 1": "no column nothing; there are task_id, state, pri",
    "pri = 1 AND": "its end is not a column",
    "AND pri = 1": "no column AND",
    "pri = 1 2": "character 9 ('2') is not the end, AND or OR",
    "pri = (1": "its end is not )",
    "pri = 1)": "is not the end",
    "pri = 1;": "character 8 (';') is not understood",
    "pri = 1 -- all": "is not the end",
    "pri = 'a'": "pri is a whole number, and 'a' is a text",
    "pri = 1.5": "and 1.5 is a number",
    "created > '2026-11-21'": "created is a timestamp, and '2026-11-21' is a text",
    "created > TIMESTAMP '2026-11-31'": "is not of the form",
    "created > TIMESTAMP '20261121'": "is not of the form",
    "created > TIMESTAMP 5": "is not a text",
    "pri = NULL": "write IS NULL",
    "pri IN (1, NULL)": "write IS NULL",
    "pri IN ()": "is not a column",
    "pri IN 1": "is not (",
    "pri BETWEEN 1": "its end is not AND",
    "pri NOT = 1": "is not IN, BETWEEN or LIKE",
    "pri LIKE '1'": "pri is a whole number, not a text",
    "data LIKE utube": "is not a text",
    "(pri = 1) = TRUE": "is a condition, and TRUE is a condition",
    "NOT pri": "pri is a whole number, not a condition",
    "pri AND TRUE": "pri is a whole number, not a condition",
    "pri + 1 = 2": "is not understood",
    "pri = - data": "is not a number",
    "data = 'a\\n'": "is not understood",
    'data = "a"': "is not understood",
    "data = 'a": "is not understood",
    "`data` = 'a'": "is not understood",
    "pri = 10L": "is not understood",
    "pri = 1.2.3": "is not understood",
    "pri = 9223372036854775808": "more than 64 bits",
    f"pri = {'9' * 5_000}": "more than 64 bits",
    "ttl = 1e999": "is infinite",
    "TRUE = 1.5": "TRUE is a condition, and 1.5 is a number",
    "lower(data) = 'a'": "no function lower; there are coalesce",
    "length(data, 1) = 1": "length has 1 arguments, not 2",
    "length(pri) = 1": "pri is a whole number, not a text",
    "contains(data, utube)": "utube is no text in quotes",
    "coalesce(pri, 'a') = 1": "'a' is a text, not a whole number",
    "coalesce(pri = 1, TRUE)": "is not )",
    "coalesce(TRUE, TRUE)": "TRUE is a condition",
    "EXISTS (SELECT 1)": "no function EXISTS",
    f"{'(' * 51}TRUE{')' * 51}": "more than 50 levels deep",
    f"{'NOT ' * 51}TRUE": "more than 50 levels deep",
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


@pytest.mark.parametrize("text", ["", 5, None, ["pri = 1"]])
def test_condition_when_it_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="where"):
        read(text)


def test_condition_when_the_payload_has_a_schema_knows_no_text_of_it() -> None:
    typed = TubeTable("t", 1, ("task_id",), ("n",))

    assert text_of(UserCondition("data IS NULL", typed.shown).expression) == "data IS NULL"
    with pytest.raises(InvalidOptionError, match="data is a struct"):
        UserCondition("data = 'a'", typed.shown)
