"""The queries that the modules of storage build, run without Spark: what they find."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake, write_deltalake

from tests.native.support import NOW, OWNER, Place, at
from tests.queries import counted, select
from tubeq_spark.errors import StoreError
from tubeq_spark.model.membership import Member
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.model.takes import UtubeMoments
from tubeq_spark.model.times import US, to_us
from tubeq_spark.storage.arrow.columns import records
from tubeq_spark.storage.arrow.statement import RefusedError
from tubeq_spark.storage.expression import Column, Micros
from tubeq_spark.storage.expression import row as columns
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.outcome import EngineError, is_missing_table
from tubeq_spark.storage.query import Select, least, named
from tubeq_spark.storage.rows import (
    DueGroup,
    SegmentSpan,
    Waiting,
)
from tubeq_spark.storage.tables.counts import counts, depth, waiting
from tubeq_spark.storage.tables.registry import TubeRecord
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_table import GATES, TubeTable
from tubeq_spark.storage.user_condition import condition_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MINUTE = 60_000_000
HELD = -50


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Ready tasks 50 to 52, buried 60 and 61, delayed 70 and 71, taken 80 and 81."""
    root: Path = tmp_path_factory.mktemp("reads")
    place = Place(root, -(10**9), ("pri", "task_id")).create()
    place.put(5, [50, 51, 52], utube=["a", "b", None], pri=[1, 0, 2])
    place.put(6, [60, 61], state="!")
    place.put(7, [70, 71], state="~", next_event=NOW + 1000, utube="x")
    place.put(8, [80, 81], utube="y")
    place.take({8: [80, 81]}, HELD)
    return place


def reader_of(place: Place, max_attempts: int) -> TubeReader:
    table = replace(place.table, max_attempts=max_attempts)
    return TubeReader(place.engine, table)  # type: ignore[arg-type]


def test_tasks_are_found_by_their_ids_however_many(place: Place) -> None:
    assert sorted(row.task_id for row in place.tasks.by_ids([50, 60, 99])) == [50, 60]
    many = place.tasks.by_ids(range(300))
    assert sorted(row.task_id for row in many) == [50, 51, 52, 60, 61, 70, 71, 80, 81]


@pytest.mark.parametrize("max_attempts", [None, 3])
def test_ready_tasks_come_in_order(place: Place, max_attempts: int | None) -> None:
    table = replace(place.table, max_attempts=max_attempts)
    ready, later = table.is_ready(NOW), table.is_ready(NOW + 1000)
    assert place.ready(10, ready) == [51, 50, 52]
    assert place.ready(9, later) == [51, 70, 71, 50, 52]


def test_buried_and_due_tasks_are_found(place: Place) -> None:
    tasks, table = place.tasks, place.table
    buried, due = table.is_buried(NOW), table.is_due(NOW + 1000)
    assert place.ready(10, buried & table.up_to(at(60, 0))) == [60]
    assert [row.task_id for row in tasks.of(due, order=["task_id"], limit=10)] == [70, 71]
    assert tasks.groups(due, NOW + 1000, 10) == [DueGroup(7, TaskState.DELAYED, False, False, 2)]
    worn = reader_of(place, 1).groups(table.is_due(NOW + MINUTE), NOW + MINUTE, 10)
    assert worn[0] == DueGroup(HELD, TaskState.TAKEN, False, True, 2)


@pytest.mark.parametrize("where", ["error LIKE '%x%'", "pri >= 0 AND NOT owner = 'x'"])
def test_buried_tasks_of_a_condition_on_a_column_without_values_are_none(
    place: Place, where: str
) -> None:
    """DataFusion takes `… AND NULL` for the first part alone."""
    condition = condition_of(where, place.table.shown)
    assert place.tasks.ids(place.table.is_buried(NOW) & condition) == []


def test_taken_tasks_are_found_by_take_id_and_owner(place: Place) -> None:
    tasks, table = place.tasks, place.table
    held = table.is_held(OWNER, [HELD])
    assert tasks.ids(held, order=["task_id"]) == [80, 81]
    assert tasks.of(table.is_held("another", [HELD])) == []
    assert (tasks.count(held), tasks.count_in(HELD), tasks.count_in(9)) == (2, 2, 0)
    assert tasks.lease_segments(HELD, OWNER) == [HELD]
    places = tasks.places(columns().segment == HELD).to_pylist()
    assert sorted(place["task_id"] for place in places) == [80, 81]
    assert {place["segment"] for place in places} == {HELD}
    assert tasks.owners(5) == [OWNER]


def test_tasks_are_counted_by_a_column(place: Place) -> None:
    counts = place.tasks.counts
    assert counts("utube") == {"a": 1, "b": 1, None: 3, "x": 2, "y": 2}
    assert counts("segment", place.table.is_ready(NOW)) == {5: 3}
    assert counts("segment", limit=1) == {5: 3}


def test_states_are_counted_at_a_moment(place: Place) -> None:
    def found(now_us: int, table: TubeTable) -> Mapping[str, int]:
        return counts(place.engine, [table], now_us)[table.id]  # type: ignore[arg-type]

    table = place.table
    assert found(NOW, table) == {"r": 3, "!": 2, "~": 2, "t": 2}
    assert found(NOW + MINUTE, replace(table, max_attempts=1)) == {"r": 5, "!": 4}
    of = depth(place.engine, table, NOW + 1000, NOW + MINUTE)  # type: ignore[arg-type]
    assert (of.unswept, of.unswept_since_us) == (2, NOW + 1000)
    assert (of.leases_ending, of.oldest_ready_us) == (2, NOW)
    behind = table.is_in(TaskState.READY, NOW) & ~table.up_to(at(50, 1))
    assert place.ready(10, behind) == [52]
    assert place.tasks.one(least(columns().pri), behind) == 2


def test_segments_are_told_apart_for_a_sweep(place: Place) -> None:
    segments = TubeReader(place.engine, place.table)  # type: ignore[arg-type]
    assert segments.newest_ids() == {0: 81}
    assert segments.segments_up_to({0: 60}, 9) == [
        SegmentSpan(5, True, False),
        SegmentSpan(6, False, False),
    ]
    assert segments.segments_up_to({0: 81, 1: 9_999}, 1) == [SegmentSpan(HELD, True, True)]
    assert segments.segments_up_to({1: 9_999}, 9) == []
    assert segments.tiny_segments(10, 100) == [5, 6, 7]
    assert segments.tiny_segments(10, 3) == [5]
    assert segments.gone_segments() == []
    assert waiting(place.engine, place.table, NOW + 1000, 10) == Waiting(
        2, (OWNER,), 0, 3, is_dropped=False
    )


def test_subqueues_are_found_by_their_first_tasks(place: Place) -> None:
    heads = [
        {"utube": "b", "first": {"pri": 0, "task_id": 51}, "n": 1},
        {"utube": "a", "first": {"pri": 1, "task_id": 50}, "n": 1},
        {"utube": None, "first": {"pri": 2, "task_id": 52}, "n": 1},
    ]

    def found(but: list[str | None], limit: int = 10) -> list[dict[str, Any]]:
        ready = place.table.is_ready(NOW) & place.table.is_of(None, but)
        return records(place.tasks.heads(ready, limit))

    assert found([]) == heads
    assert found(["a", None]) == heads[:1]
    assert found([None, *map(str, range(300))]) == heads[:2]
    assert found([], 1) == heads[:1]


@pytest.mark.parametrize("others", [0, 300])
def test_the_next_tasks_of_subqueues_are_found_within_their_quotas(
    place: Place, others: int
) -> None:
    quotas: dict[str | None, int] = {str(n): 1 for n in range(others)}
    quotas |= {None: 2, "a": 1}
    tasks, ready = place.tasks, place.table.is_ready(NOW)
    found = tasks.first_of_each(named("task_id", "pri", "utube"), ready, quotas)
    assert found.column("task_id").to_pylist() == [50, 52]


def test_taken_tasks_are_counted_by_subqueue(place: Place) -> None:
    def taken(now_us: int, leaving: Sequence[int] = (), *, skips: bool) -> list[dict[str, Any]]:
        seen = place.gates.read_with_taken(now_us, leaving, with_rows=True, skips=skips)
        return records(seen.taken.select(["utube", "n", "lasting"]))

    (held, *_) = place.tasks.ids(place.table.is_held(OWNER))
    assert taken(NOW, skips=False) == [{"utube": "y", "n": 2, "lasting": 2}]
    assert taken(NOW, [held], skips=False) == [{"utube": "y", "n": 1, "lasting": 1}]
    assert taken(NOW + MINUTE, skips=True) == [{"utube": "y", "n": 2, "lasting": 0}]


def test_gates_are_read_as_they_were_written(place: Place) -> None:
    place.run(place.gates.begin(NOW, several=True))
    seen = place.gates.read(with_rows=True)
    assert seen.numbers == dict.fromkeys(GATES, 0)
    assert not seen.moments()
    for several in (True, False):
        with pytest.raises(RefusedError):
            place.run(place.gates.begin(NOW, several=several))
    texts: dict[str | None, str | None] = {"a": "1 5", None: "2 5 6"}

    place.run(place.takes.tidy(seen.raised(texts, texts, all_takes=False), NOW))

    raised = {*seen.gates_of(["a", None])}
    after = place.gates.read(with_rows=True)
    assert after.numbers == {gate: int(gate in raised) for gate in GATES}
    assert after.moments() == {"a": UtubeMoments((5,), 1), None: UtubeMoments((5, 6), 2)}
    assert after.moments(["a", "b"]) == {"a": UtubeMoments((5,), 1), "b": UtubeMoments()}
    turns, leases = (
        dict(zip(after.rows["utube"].to_pylist(), each.to_pylist(), strict=True))
        for each in after.leases(2)
    )
    assert (turns, leases) == ({"a": 1, None: 2}, {"a": None, None: 5})


def test_a_tube_is_registered_once_and_changed_by_its_status(place: Place) -> None:
    options = TubeOptions.from_json("{}")

    def tube(name: str, table: str) -> TubeRecord:
        return TubeRecord(name, table, 0, "fifo", options, NOW)

    foo = tube("Foo", "Foo")
    registry = place.registry
    assert registry.records() == []
    found = registry.add(foo)
    assert found is not None
    assert registry.live("Foo") == found
    assert (found.id, found.created_us) == (1, NOW)
    assert registry.add(tube("fOO", "other")) is None
    assert registry.add(tube("bar", "fOO")) is None
    assert registry.add(tube("bar", "bar")) == registry.live("bar")
    assert registry.live("bar").id == 2
    registry.alter(found, lambda record: replace(record, owner="s/1"), "own")
    registry.alter(found, lambda record: replace(record, is_live=False), "drop")
    assert [record.name for record in registry.records()] == ["bar"]
    assert registry.add(foo) is None
    assert registry.add(tube("foo", "foo__2")) == registry.live("foo")


def test_sessions_are_marked_counted_and_folded(place: Place) -> None:
    sessions = place.sessions

    def member(session: str, seq: int, *, live: bool = True, **calls: int) -> Member:
        return Member(session, f"{session}-m", 1, seq, live, NOW + 10, calls)

    for beat in (member("one", 1, put=3), member("two", 9, live=False, put=7, z=1)):
        sessions.beat(beat, NOW)
    assert sessions.renew(member("one", 2, put=4), NOW)
    assert sessions.renew(member("one", 3), NOW)
    assert not sessions.mark_dead("one", 1, NOW, 0)
    sessions.beat(member("three", 1), NOW)
    assert sessions.mark_dead("three", 1, NOW + 10, 0)
    assert not sessions.renew(member("three", 2), NOW)
    views = sessions.views()
    assert {name: (view.epoch, view.dead_epoch) for name, view in views.items()} == {
        "one": (1, 0),
        "two": (1, 0),
        "three": (1, 1),
    }
    assert sessions.views("one")["one"].members[0].seq == 3
    assert sessions.last_written(5) == dict.fromkeys(("one", "two", "three"), NOW)
    place.notes.note_vacuum(3, NOW)
    place.notes.ask_to_wait(["t"], NOW)
    assert place.notes.asked_to_wait("t", NOW)
    assert not place.notes.asked_to_wait("t", NOW + 1_200 * US)
    survey = sessions.survey(NOW + 10)
    assert (survey.replaced, survey.vacuums) == (3, {3: NOW})
    assert sessions.compact(1) == 3
    sessions.beat(member("four", 1, live=False, put=7, z=1), NOW)
    assert sessions.compact(1) == 1
    assert [calls for calls in sessions.calls("nobody") if calls] == [{"put": 14, "z": 2}]
    assert sessions.compact(1) == 0


def test_slots_are_leased_extended_and_folded(place: Place) -> None:
    slots = place.slots
    number = slots.lease("holder", NOW, 1_000).slot
    lease = slots._leased()[number]
    after = slots.extend(lease, lease.bound + 10**9)
    assert after is not None
    assert (after.slot, after.holder) == (lease.slot, "holder")
    assert slots._leased()[lease.slot].bound == lease.bound + 10**9
    assert slots.extend(lease, lease.bound + 2 * 10**9) is not None
    assert place.sessions.compact(1) == 2
    assert slots._leased()[lease.slot].bound == lease.bound + 2 * 10**9


def test_a_table_is_measured_and_cleaned_up(place: Place) -> None:
    engine = place.engine
    found = engine.tables.extent(place.tube)
    assert (found.files > 0, found.size_bytes > 0) == (True, True)
    assert found.version == place.version(place.tube)
    assert 0 <= found.log_commits <= 10
    before = place.stored()
    engine.tables.vacuum(place.tube)
    assert engine.tables.extent(place.tube).log_commits == 0
    assert place.stored() == before


def test_a_table_that_is_not_there_is_missing(place: Place, tmp_path: Path) -> None:
    engine, name = place.engine, path_table(str(tmp_path / "nothing"))
    assert not engine.tables.is_table(name)
    with pytest.raises(EngineError, match=r"exist|tube") as missing:
        engine.rows(counted(name))
    assert is_missing_table(missing.value)
    with pytest.raises(EngineError, match=r"exist|tube"):
        Place(tmp_path, -1).put(5, [1])


def test_a_query_that_fails_is_told_as_an_error_of_the_storage(place: Place) -> None:
    with pytest.raises(StoreError, match="storage could not be read"):
        place.engine.rows(select(place.tube, "nothing"))


def test_moments_far_away_as_spark_writes_them_are_read_as_they_are(tmp_path: Path) -> None:
    far = [
        dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    ]
    moments = pa.array(far, pa.timestamp("us", "UTC"))
    rows = pa.table({"at": moments, "inner": pa.StructArray.from_arrays([moments], names=["at"])})
    place = tmp_path / "spark"
    place.mkdir()
    pq.write_table(
        rows, place / "x.parquet", use_deprecated_int96_timestamps=True, store_schema=False
    )
    convert_to_deltalake(place)

    columns = {"at": Micros(Column("at")), "inner": Micros(Column("at", "inner"))}
    found = NativeEngine().arrow(Select(path_table(str(place)), columns))

    assert found.to_pylist() == [{"at": to_us(at), "inner": to_us(at)} for at in far]


def test_moments_as_spark_writes_them_are_read_without_the_library(tmp_path: Path) -> None:
    far = [
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        None,
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    ]
    rows = pa.table({"at": pa.array(far, pa.timestamp("us", "UTC")), "n": [1, 2, 3]})
    write_deltalake(tmp_path, rows)
    (file,) = tmp_path.glob("*.parquet")
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True, store_schema=False)
    engine = NativeEngine()

    query = Select(path_table(str(tmp_path)), {"at": Column("at"), "n": Column("n")})
    assert engine.arrow(query).to_pylist() == rows.to_pylist()
