"""Queries of groups that are answered without DataFusion are answered as DataFusion does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.native.support import NOW, OWNER, Place, at
from tubeq_spark.rules.lease_times import NewLease
from tubeq_spark.rules.membership import Member
from tubeq_spark.storage.native import grouped_select
from tubeq_spark.storage.sql import predicates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Tasks of several segments and sub-queues, some of them taken, and sessions."""
    root = tmp_path_factory.mktemp("grouped")
    writing = Place(root, -1, ("pri", "task_id"), local=True).create()
    for number, segment in enumerate((5, 6, 7)):
        writing.put(
            segment,
            [segment * 10 + n for n in range(4)],
            pri=[2, number, -1, number],
            utube=["a", None, "é", "b"],
            ttl=[None, number, 7, None],
        )
    writing.run(writing.statements.take([5], [(at(53, 2), -50)], NewLease(OWNER, NOW), NOW, 4))
    for seq in range(3):
        writing.sessions.beat(Member("s", "m", 1, seq, seq < 2, NOW + seq, {"1/put": seq}), NOW)
    writing.sessions.beat(Member("s", "n", 2, 1, True, None, {}), NOW)
    # One that has to read what was written.
    return Place(root, -1_000, ("pri", "task_id"), local=True)


def in_order(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, found))


MINE = f"tube = 1L AND {predicates.is_ready(NOW, None)}"


@pytest.mark.parametrize(
    "sql",
    [
        (
            f"SELECT min(struct(pri, task_id)) AS first, count(*) AS n FROM {{tube}} WHERE {MINE} "
            "GROUP BY segment ORDER BY first LIMIT 2"
        ),
        (
            f"SELECT utube, min(struct(pri, task_id)) AS first, count(*) AS n, "
            f"bool_or(state = 't') AS held FROM {{tube}} t WHERE {MINE} GROUP BY utube"
        ),
        (
            "SELECT segment, state, max(ttl) AS longest, min(ttl) AS shortest, count(*) AS n "
            "FROM {tube} WHERE tube = 1L GROUP BY segment, state"
        ),
        "SELECT DISTINCT utube FROM {tube} WHERE tube = 1L",
        "SELECT DISTINCT owner FROM {tube} WHERE tube = 1L AND state = 't' LIMIT 1000",
        "SELECT count(*) AS n FROM {tube}",
        "SELECT count(*) AS n, max(task_id) AS last FROM {tube} WHERE FALSE",
        "SELECT min(utube) AS first, max(utube) AS last FROM {tube}",
        "SELECT bool_or(pri > 1) AS some, bool_or(pri > 9) AS none FROM {tube} WHERE tube = 1L",
        "SELECT segment FROM {tube} WHERE FALSE GROUP BY segment",
        (
            "SELECT kind, session, member, max(epoch) AS epoch, max(seq) AS seq, "
            "max_by(struct(status, unix_micros(lease_until) AS until, epoch), seq) AS last "
            "FROM {sessions} WHERE kind IN ('member', 'dead') GROUP BY kind, session, member"
        ),
        (
            "SELECT session, unix_micros(max(at)) AS last FROM {sessions} WHERE kind = 'member' "
            "GROUP BY session"
        ),
        (
            "SELECT max_by(calls, seq) AS calls FROM {sessions} WHERE kind = 'member' "
            "GROUP BY bucket, member"
        ),
    ],
)
def test_query_of_groups_when_answered_without_the_library_is_the_same(
    place: Place, sql: str
) -> None:
    text = sql.format(tube=place.tube, sessions=place.sessions_table)
    found = place.engine._plain(text)
    assert found is not None
    by_library = place.engine._run(text, {}, 0, {})
    assert found.column_names == by_library.column_names
    if "ORDER BY" in text:
        assert found.to_pylist() == by_library.to_pylist()
    else:
        assert in_order(found.to_pylist()) == in_order(by_library.to_pylist())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(pri) AS n FROM {tube}",
        "SELECT count(utube) AS n FROM {tube}",
        "SELECT max(next_event) AS last FROM {tube}",
        "SELECT task_id, count(*) AS n FROM {tube} GROUP BY segment",
        "SELECT segment, count(*) AS n FROM {tube} GROUP BY segment HAVING count(*) > 1",
        "SELECT segment, count(*) AS n FROM {tube} GROUP BY segment ORDER BY n DESC",
        "SELECT segment, count(*) AS n FROM {tube} GROUP BY segment ORDER BY pri",
        "SELECT utube, count(*) AS n FROM {tube} GROUP BY utube ORDER BY utube",
        "SELECT min(struct(ttl, pri)) AS first FROM {tube}",
        "SELECT max_by(pri, utube, 2) AS x FROM {tube}",
        "SELECT bool_or(ttl > 5L) AS some FROM {tube}",
        "SELECT count(*) AS n FROM (SELECT * FROM {tube})",
        "SELECT lower(utube) AS x FROM {tube} GROUP BY utube",
        "SELECT segment FROM {tube} GROUP segment",
    ],
)
def test_query_of_groups_when_it_is_not_known_is_left_to_the_library(
    place: Place, sql: str
) -> None:
    assert place.engine._plain(sql.format(tube=place.tube)) is None


def test_query_of_groups_when_it_is_about_many_rows_is_left_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50, 51, 52])
    count = f"SELECT count(*) AS n FROM {place.tube} WHERE task_id > 50L"
    monkeypatch.setattr(grouped_select, "MOST", 2)
    assert place.engine._plain(count) is not None
    monkeypatch.setattr(grouped_select, "MOST", 1)
    assert place.engine._plain(count) is None
    assert place.engine.rows(count) == [{"n": 2}]
