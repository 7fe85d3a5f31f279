"""The translation of the queue's own SQL, run by DataFusion on a small table."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.native.support import NOW, Place
from tubeq_spark.storage.native.dialect import translated
from tubeq_spark.storage.native.tokens import columns_of
from tubeq_spark.storage.sql.quoting import bigint, integer, moment, string

if TYPE_CHECKING:
    from pathlib import Path

FAR = 253_402_300_799_999_999
#: Tasks 1 to 4: priorities 2, 1, 1, 0; sub-queues a, b, NULL, a; the last two have a next event.
TASKS = {
    "pri": [2, 1, 1, 0],
    "utube": ["a", "b", None, "a"],
    "next_event": [None, None, NOW, FAR],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root: Path = tmp_path_factory.mktemp("dialect")
    place = Place(root, -1).create()
    place.put(5, [1, 2, 3, 4], **TASKS)
    return place


VALUES = [
    (bigint(-(2**62)), -(2**62)),
    (bigint(None), None),
    (integer(7), 7),
    (integer(None), None),
    (string("plain"), "plain"),
    (string("it's \\ {x} é\n"), "it's \\ {x} é\n"),
    (string(""), ""),
    (string(None), None),
    (f"unix_micros({moment(FAR)})", FAR),
    (f"unix_micros({moment(-1)})", -1),
    (f"unix_micros({moment(None)})", None),
    (f"unix_micros(timestamp_micros({NOW}L))", NOW),
    (f"timestamp_micros({NOW}L) = {moment(NOW)}", True),
    ("7L DIV 2L", 3),
    ("-7L DIV 2L", -3),
    ("5L / 1000000D", 5e-6),
    ("IF(1 = 1, 2, 3)", 2),
    ("IF(NULL, 2, 3)", 3),
    ("NULL <=> NULL", True),
    ("1 <=> NULL", False),
    ("greatest(1L, 3L, 2L)", 3),
    ("instr('abc', 'c') > 0", True),
    ("lower('ABC')", "abc"),
    ("concat('a', CAST(1L AS STRING), 'b')", "a1b"),
    ("CAST('12' AS BIGINT)", 12),
    ("coalesce(NULL, 0L)", 0),
    ("abs(-3L)", 3),
    ("struct(1 AS a, 'x' AS b)", {"a": 1, "b": "x"}),
    ("map('a', 1L, 'b', 2L)", {"a": 1, "b": 2}),
    ("map_entries(map('a', 1L))", [{"key": "a", "value": 1}]),
]

QUERIES: list[tuple[str, list[dict[str, Any]]]] = [
    ("SELECT count_if(utube = 'a') AS n FROM {t}", [{"n": 2}]),
    (
        "SELECT min(struct(pri, task_id)) AS first, max(struct(pri, t.task_id)) AS last FROM {t} t",
        [{"first": {"pri": 0, "task_id": 4}, "last": {"pri": 2, "task_id": 1}}],
    ),
    (
        "SELECT max_by(struct(utube, unix_micros(next_event) AS until), pri) AS last FROM {t}",
        [{"last": {"utube": "a", "until": None}}],
    ),
    (
        "SELECT utube, max(struct(pri, task_id)) AS last FROM {t} GROUP BY utube ORDER BY last LIMIT 2",
        [
            {"utube": "b", "last": {"pri": 1, "task_id": 2}},
            {"utube": None, "last": {"pri": 1, "task_id": 3}},
        ],
    ),
    (
        "SELECT bool_or(state = 't') AS x, every(state = 'r') AS y FROM {t}",
        [{"x": False, "y": True}],
    ),
    (
        (
            "SELECT DISTINCT utube, every(pri > 0) OVER (PARTITION BY utube) AS x FROM {t} "
            "ORDER BY utube NULLS LAST"
        ),
        [{"utube": "a", "x": False}, {"utube": "b", "x": True}, {"utube": None, "x": True}],
    ),
    ("SELECT collect_set(owner) AS x FROM {t}", [{"x": []}]),
    ("SELECT collect_set(utube) AS x FROM {t} WHERE utube = 'a'", [{"x": ["a"]}]),
    (
        (
            "SELECT array_distinct(flatten(collect_set(x))) AS x FROM "
            "(SELECT collect_set(utube) AS x FROM {t} WHERE utube = 'b' GROUP BY segment)"
        ),
        [{"x": ["b"]}],
    ),
    (
        "SELECT pri, count(*) AS n FROM {t} GROUP BY 1 HAVING n > 1 AND count_if(state = 't') = 0",
        [{"pri": 1, "n": 2}],
    ),
    ("SELECT 1 AS one FROM {t} HAVING count_if(pri = 9) = 0", [{"one": 1}]),
    ("SELECT 1 AS one FROM {t} HAVING count_if(pri = 1) = 0", []),
    (
        (
            "SELECT r.a, r.b FROM (SELECT * FROM VALUES (1L, 'x'), (2L, CAST(NULL AS STRING)) "
            "AS rows(a, b)) r ORDER BY a"
        ),
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
    ),
    (
        (
            "SELECT entry.key AS k, sum(entry.value) AS n FROM "
            "(SELECT explode(map_entries(map('a', 1L, 'b', 2L))) AS entry) GROUP BY entry.key ORDER BY k"
        ),
        [{"k": "a", "n": 1}, {"k": "b", "n": 2}],
    ),
    (
        (
            "SELECT map_from_arrays(collect_list(utube), collect_list(n)) AS m FROM "
            "(SELECT utube, count(*) AS n FROM {t} WHERE utube = 'a' GROUP BY utube)"
        ),
        [{"m": {"a": 2}}],
    ),
    (f"SELECT task_id FROM {{t}} WHERE next_event <= {moment(NOW)}", [{"task_id": 3}]),
    (f"SELECT task_id FROM {{t}} WHERE next_event > {moment(NOW)}", [{"task_id": 4}]),
    ("SELECT `task_id` FROM {t} WHERE utube IS NULL", [{"task_id": 3}]),
    (
        (
            "SELECT task_id FROM (SELECT * EXCEPT (pri), IF(utube = 'a', NULL, pri) AS pri FROM {t}) "
            "WHERE pri IS NULL ORDER BY task_id"
        ),
        [{"task_id": 1}, {"task_id": 4}],
    ),
    (
        (
            "SELECT task_id FROM (SELECT *, row_number() OVER (PARTITION BY utube ORDER BY pri, task_id) "
            "AS place FROM {t}) WHERE place <= 1 ORDER BY task_id LIMIT 2147483647"
        ),
        [{"task_id": 2}, {"task_id": 3}, {"task_id": 4}],
    ),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_expression_when_translated_has_the_same_value(
    small: Place, text: str, value: object
) -> None:
    assert small.engine.rows(f"SELECT {text} AS x") == [{"x": value}]


@pytest.mark.parametrize(("text", "rows"), QUERIES)
def test_query_when_translated_finds_the_same_rows(
    small: Place, text: str, rows: list[dict[str, Any]]
) -> None:
    assert small.engine.rows(text.replace("{t}", small.tube)) == rows


def test_moment_when_read_is_in_utc(small: Place) -> None:
    (row,) = small.engine.rows(f"SELECT next_event FROM {small.tube} WHERE task_id = 3")
    assert row["next_event"] == dt.datetime(2027, 1, 15, 8, tzinfo=dt.UTC)


def test_literal_when_it_looks_like_sql_stays_as_it_is() -> None:
    text = "SELECT 'count_if(x) 1L DIV `a` delta.`b`' AS x, `a``b\"c`"
    assert translated(text) == 'SELECT \'count_if(x) 1L DIV `a` delta.`b`\' AS x, "a`b""c"'


def test_table_when_it_has_a_path_is_named_by_its_alias() -> None:
    named = translated("SELECT 1 FROM delta.`/a b/``c` t, {rows}", lambda name: f"<{name}>")
    assert named == "SELECT 1 FROM <delta.`/a b/``c`> t, {rows}"


def test_columns_of_a_condition_are_told_without_types_functions_and_aliases() -> None:
    text = (
        "t.Segment IN (1L) AND CAST(`a b` AS STRING) <> 'x y' AND abs(tube) = 1L AND NOT z IS NULL"
    )
    assert columns_of(text) == {"segment", "a b", "tube", "z"}
