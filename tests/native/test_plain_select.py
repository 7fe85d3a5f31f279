"""What is read and computed without DataFusion is what DataFusion reads and computes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.support import NOW, OWNER, Place, at
from tubeq_spark.rules.lease_times import NewLease
from tubeq_spark.storage.native import expressions, small_files
from tubeq_spark.storage.native.expressions import UnknownTextError
from tubeq_spark.storage.native.plain_select import PlainSelect
from tubeq_spark.storage.native.small_files import SmallFiles
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.quoting import bigint, integer, moment, string

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LEASE = NewLease(OWNER, NOW)
MINUTE = 60_000_000
SEGMENTS = range(5, 12)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Seven segments: each state, NULLs and values in each column that may be either."""
    root = tmp_path_factory.mktemp("plain")
    place = Place(root, -1, ("pri", "task_id"), local=True).create()
    ends = [None, NOW - 5, NOW, NOW + 5]
    for number, segment in enumerate(SEGMENTS):
        ids = [segment * 10 + n for n in range(4)]
        place.put(
            segment,
            ids,
            state=["r", "~", "!", "r"],
            pri=[number - 3, 0, -number, 2],
            utube=["a", None, "it's \\ é", "b"],
            next_event=ends[number % 4 :] + ends[: number % 4],
            expires_at=ends,
            ttl=[None, 1, MINUTE, 2**62],
            ttr=[None, 7, MINUTE, -9],
        )
    taken = place.statements.take([5, 6], [(at(999, 99), -50)], LEASE, NOW, 4)
    assert place.run(taken).updated
    # One that has to read what was written.
    return Place(root, -1_000, ("pri", "task_id"), local=True)


def by_library(place: Place, sql: str) -> pa.Table:
    """What DataFusion answers."""
    return place.engine._run(sql, {}, 0, {})


def without(place: Place, sql: str) -> pa.Table:
    """What is answered without it, if it is."""
    found = place.engine._plain(sql)
    assert found is not None
    return found


CONDITIONS = [
    f"tube = 1L AND {predicates.is_ready(NOW, None)}",
    f"tube = 1L AND {predicates.is_ready(NOW, 2)}",
    predicates.is_takeable(NOW, "t."),
    predicates.is_buried(NOW),
    predicates.is_over(NOW, "t."),
    predicates.is_due(NOW),
    predicates.has_lapsed(NOW),
    predicates.of_utubes(["a", None]),
    predicates.of_utubes(["it's \\ é"]),
    f"{predicates.effective_state(NOW, 1)} = 'r'",
    f"{predicates.effective_state(NOW, None, over=[OWNER])} = 't'",
    f"{predicates.effective_state(NOW, None)} IS NULL",
    "(pri < -1 OR (pri = -1 AND task_id <= 71L))",
    "NOT (pri < 2 OR (pri = 2 AND task_id <= 71L))",
    "task_id IN (50L, 51L, 999L) OR utube IN ('a', 'b')",
    "task_id NOT IN (50L, 51L) AND NOT utube IN ('a', 'b')",
    "NOT (ttl > 5L) OR ttr IS NULL",
    "(ttl > 5L) IS NULL",
    "instr(utube, 's') > 0",
    "pri >= 0 AND pri <> 2 AND expires_at IS NOT NULL",
    "owner = 'owner/1' OR claim = -50L",
    "segment IN (5L, -50L, 7L)",
    "TRUE",
    "FALSE",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_condition_when_evaluated_without_the_library_finds_the_same_rows(
    place: Place, condition: str
) -> None:
    sql = f"SELECT task_id FROM {place.tube} t WHERE {condition} ORDER BY task_id"
    assert without(place, sql).equals(by_library(place, sql))


VALUES = [
    "unix_micros(next_event)",
    "timestamp_micros(1795485829364842L + t.ttr)",
    predicates.lease_end(NewLease(OWNER, NOW, headroom_us=10_203), "t.ttr"),
    predicates.plus_us("t.next_event", MINUTE, NOW + MINUTE),
    predicates.readied_state(2, "t."),
    predicates.due_at(),
    "CASE WHEN t.state = '~' THEN 'delay take' ELSE 'take' END",
    "CASE WHEN t.pri < 0 OR t.ttl > 5L THEN t.ttl + 5L END",
    "t.attempts + 1",
    "t.ttr DIV 8L",
    "pri - 2L - 1L",
    bigint(-(2**62)),
    bigint(None),
    integer(None),
    string("it's \\ {x} é\n"),
    string(None),
    moment(NOW + 1),
    moment(None),
    "greatest(t.ttr, t.ttl)",
    "NOT state = 'r' AND ttl IS NULL",
]


@pytest.mark.parametrize("value", VALUES)
def test_value_when_computed_without_the_library_is_the_same(place: Place, value: str) -> None:
    sql = f"SELECT task_id AS id, {value} AS x FROM {place.tube} t ORDER BY task_id"
    assert without(place, sql).to_pylist() == by_library(place, sql).to_pylist()


@pytest.mark.parametrize("limit", ["", " LIMIT 0", " LIMIT 3", " LIMIT 2147483647"])
def test_rows_in_order_when_limited_are_the_first(place: Place, limit: str) -> None:
    sql = f"{place.tasks.select('pri > -3', 'pri, task_id')}{limit}"
    assert without(place, sql).to_pylist() == by_library(place, sql).to_pylist()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(pri) AS pri FROM {t} ORDER BY pri",
        "SELECT * FROM {t}",
        "SELECT task_id FROM {t} ORDER BY task_id DESC",
        "SELECT task_id FROM {t} ORDER BY utube",
        "SELECT task_id AS x FROM {t} ORDER BY x",
        "SELECT task_id FROM {t} WHERE pri BETWEEN 0 AND 2",
        "SELECT task_id FROM {t} WHERE task_id IN (SELECT 50L)",
        "SELECT a.task_id FROM {t} a JOIN {t} b ON a.pri = b.pri",
        "SELECT 1 AS one",
        "SELECT task_id FROM (SELECT * FROM {t})",
        "SELECT task_id FROM {t} WHERE unknown = 1L",
        "SELECT ttl + 9223372036854775807L AS x FROM {t}",
        "SELECT 0L - task_id AS task_id FROM {t} ORDER BY task_id",
        "SELECT task_id FROM {t} WHERE claim = -9223372036854775808L",
        "SELECT task_id FROM {t} WHERE pri = CAST(2147483648 AS INT)",
        "SELECT task_id FROM {t} WHERE task_id IN ()",
        "SELECT task_id FROM {t} WHERE utube = CAST(X'ff' AS STRING)",
    ],
)
def test_query_when_it_is_not_plain_is_left_to_the_library(place: Place, sql: str) -> None:
    assert place.engine._plain(sql.replace("{t}", place.tube)) is None


@pytest.mark.parametrize(
    "text", ["", "pri +", "CASE pri WHEN 1L THEN 2L END", "lower(utube)", "1.5D", "?"]
)
def test_expression_when_it_is_not_known_is_refused(text: str) -> None:
    lookup = expressions.of_table(pa.table({"pri": [1], "utube": ["a"]}))
    with pytest.raises(UnknownTextError):
        expressions.column(expressions.read(text), lookup, None, 1)


def conditions() -> st.SearchStrategy[str]:
    columns = st.sampled_from(["pri", "task_id", "ttl", "segment"])
    sign = st.sampled_from(["<", "<=", "=", ">", ">=", "<>"])
    number = st.sampled_from([-3, -1, 0, 1, 2, 53, 60, 80, 2**62])
    numbers = st.builds(lambda c, s, n: f"{c} {s} {n}", columns, sign, number)
    state = st.sampled_from(["state = 't'", "state IN ('r', '~')", "utube = 'a'", "utube IS NULL"])
    moments = st.builds(
        lambda c, s, n: f"{c} {s} {moment(NOW + n)}",
        st.sampled_from(["next_event", "expires_at"]),
        sign,
        st.sampled_from([-6, -5, 0, 5, 6, MINUTE]),
    )
    return st.recursive(
        st.one_of(numbers, state, moments),
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
            st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
            st.builds(lambda a: f"NOT ({a})", inner),
        ),
        max_leaves=6,
    )


@given(condition=conditions())
@settings(max_examples=200, deadline=None)
def test_files_when_left_out_have_no_row_of_the_condition(place: Place, condition: str) -> None:
    sql = f"SELECT task_id FROM {place.tube} WHERE {condition} ORDER BY task_id"
    assert without(place, sql).equals(by_library(place, sql))


def files_of(place: Place, where: str) -> set[int]:
    """The segments of the files that are read for a condition."""
    table = place.engine._handles.of(place.tube)
    newest, local = table.seen(), table.local
    assert newest is not None
    assert local is not None
    listed = SmallFiles.listed(local, newest, {}, expressions.read(where))
    assert listed is not None
    return {file.partition["segment"] for file in listed.files}


def test_files_when_their_statistics_exclude_a_condition_are_not_read(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, ("pri", "task_id"), local=True).create()
    for segment in SEGMENTS:
        place.put(segment, [segment * 10, segment * 10 + 1])
    assert place.run(place.statements.take([5], [(at(51), -50)], LEASE, NOW, 2)).updated == 2
    ready = f"{place.table.mine()} AND {predicates.is_ready(NOW, None)}"
    assert files_of(place, ready) == {*SEGMENTS} - {5}
    assert files_of(place, f"{ready} AND {place.table.up_to(at(70))}") == {6, 7}
    # What was taken for ever has no end that could have passed.
    place.put(13, [130], ttr=None)
    place.run(place.statements.take([13], [(at(130), -130)], LEASE, NOW, 1))
    assert files_of(place, ready) == {*SEGMENTS} - {5}
    # Its lease has ended by then.
    assert files_of(place, predicates.is_ready(NOW + MINUTE, None)) == {*SEGMENTS, -50} - {5}


def test_files_when_bounds_of_long_texts_exclude_a_name_are_not_read(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, local=True).create()
    names = {5: "x" * 70, 6: "x" * 63 + "z\U00020bb7", 7: "y" * 63 + "\U0010ffff" * 3}
    for segment, name in names.items():
        place.put(segment, [segment], utube=name)
    for segment, name in names.items():
        assert files_of(place, f"utube = '{name}'") == {segment}
        assert files_of(place, f"utube IN ('a', '{name}')") == {segment}
        assert (
            len(place.engine.rows(f"SELECT task_id FROM {place.tube} WHERE utube = '{name}'")) == 1
        )
    # Its first characters are those of a bound, which is no less than it.
    assert files_of(place, f"utube = '{names[5][:65]}'") == {5}
    assert files_of(place, f"utube > '{names[7]}'") == {7}
    assert files_of(place, "utube > 'z'") == set()


@pytest.mark.parametrize("name", ["plain", "a b", "\u00e9+#"])
def test_take_of_a_small_tube_runs_no_query_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = Place(tmp_path / name, -1, local=True).create()
    place.put(5, [50, 51, 52])
    place.tasks.ready(NOW, 1, None)
    runs: list[str] = []
    run = place.engine._run
    monkeypatch.setattr(
        place.engine, "_run", lambda sql, *rest: runs.append(sql) or run(sql, *rest)
    )
    (first,) = place.tasks.ready(NOW, 1, None)
    assert first.task_id == 50
    assert place.run(place.statements.take([5], [(at(50), -50)], LEASE, NOW, 1)).updated == 1
    assert runs == []
    assert place.stored() == [(-50, 50, "t"), (5, 51, "r"), (5, 52, "r")]


def test_take_when_there_are_too_many_files_asks_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "FILES", 2)
    place = Place(tmp_path, -1, local=True).create()
    for segment in (5, 6, 7):
        place.put(segment, [segment * 10, segment * 10 + 1])
    sql = place.tasks.select(predicates.is_ready(NOW, None), "task_id")
    assert place.engine._plain(sql) is None
    assert [row.task_id for row in place.tasks.ready(NOW, 3, None)] == [50, 51, 60]
    taken = place.statements.take([5, 6, 7], [(at(60), -50)], LEASE, NOW, 3)
    assert place.run(taken).updated == 3
    assert [(row[1], row[2]) for row in place.stored()] == [
        (50, "t"), (51, "t"), (60, "t"), (61, "r"), (70, "r"), (71, "r"),
    ]  # fmt: skip


@pytest.mark.parametrize("at_once", [small_files._AT_ONCE, 0])
def test_take_when_a_small_file_has_large_rows_asks_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(small_files, "_AT_ONCE", at_once)
    place = Place(tmp_path, -1, local=True).create()
    ids = range(50, 1_250)
    place.put(5, ids, data=["x" * 10_000] * len(ids))
    sql = place.tasks.select(predicates.is_ready(NOW, None), "task_id")
    assert place.engine._plain(sql) is None
    (kept,) = place.engine._handles.files._kept.values()
    assert kept is None
    assert place.engine._plain(sql) is None
    assert place.run(place.statements.take([5], [(at(50), -50)], LEASE, NOW, 1)).updated == 1
    assert [row.task_id for row in place.tasks.ready(NOW, 2, None)] == [51, 52]


def test_rows_when_they_are_read_bit_by_bit_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, range(3_000), data=[f"{n}" for n in range(3_000)])
    monkeypatch.setattr(small_files, "_AT_ONCE", 0)
    place.engine._handles.files.forget()
    sql = place.tasks.select("TRUE", "task_id")
    assert without(place, sql).to_pylist() == by_library(place, sql).to_pylist()


def test_query_when_it_is_not_known_reads_no_file(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50])
    place.engine._handles.files.forget()
    assert place.engine._plain(f"SELECT sum(pri) AS n FROM {place.tube}") is None
    assert place.engine._plain(place.tasks.select("lower(utube) = 'a'")) is None
    assert not place.engine._handles.files._kept


def test_take_when_another_rows_lease_cannot_be_computed_takes_as_the_library(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50, 51], ttr=[7, 2**63 - 1])
    assert place.run(place.statements.take([5], [(at(50), -50)], LEASE, NOW, 1)).updated == 1
    assert place.stored() == [(-50, 50, "t"), (5, 51, "r")]


def test_file_when_it_is_gone_is_asked_of_the_library(tmp_path: Path) -> None:
    place = Place(tmp_path, -1, local=True).create()
    place.put(5, [50])
    for file in tmp_path.glob("tube/segment=5/*.parquet"):
        file.unlink()
    place.engine._handles.files.forget()
    assert place.engine._plain(place.tasks.select("TRUE")) is None


def test_rows_when_a_rival_has_committed_are_the_newest(tmp_path: Path) -> None:
    ours, theirs = Place(tmp_path, -1, local=True).create(), Place(tmp_path, -1_000, local=True)
    ours.put(5, [50, 51])
    assert [row.task_id for row in ours.tasks.ready(NOW, 2, None)] == [50, 51]
    theirs.run(theirs.statements.take([5], [(at(50), -50)], LEASE, NOW, 1))
    assert [row.task_id for row in ours.tasks.ready(NOW, 2, None)] == [51]


def test_kept_rows_when_there_are_too_many_are_the_last_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "_KEPT_FILES", 2)
    place = Place(tmp_path, -1, local=True).create()
    for segment in (5, 6, 7):
        place.put(segment, [segment])
    files = place.engine._handles.files
    assert len(without(place, place.tasks.select("TRUE"))) == 3
    assert len(files._kept) == 2
    assert files._bytes == sum(rows.nbytes for rows in files._kept.values())
    files.forget()
    assert (len(files._kept), files._bytes) == (0, 0)
    assert len(without(place, place.tasks.select("TRUE"))) == 3


def ordered(columns: Sequence[str]) -> str:
    return f"SELECT {', '.join(columns)} FROM delta.`/a b/``c` t WHERE pri = 1 ORDER BY pri LIMIT 5"


def test_plain_select_when_read_tells_its_parts() -> None:
    select = PlainSelect.of(ordered(["pri", "`data`", "ttl + 1L AS x"]))
    assert select.table == "delta.`/a b/``c`"
    assert [name for name, _ in select.columns] == ["pri", "data", "x"]
    assert (list(select.order), select.limit) == (["pri"], 5)
    assert list(itertools.chain(select.where)) == ["pri", "=", "1"]
