"""The log that a process reads and writes by itself is what the library reads and writes."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.logs import log_files_of, versions
from tests.native.support import NOW, Place, new_rows
from tubeq_spark import Queue
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import StoreError
from tubeq_spark.storage.arrow.columns import grouped, nested
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.log import (
    checkpoints,
    data_files,
    reading,
    tidying,
)
from tubeq_spark.storage.log.actions import UnknownLogError, hours_of
from tubeq_spark.storage.log.snapshot import Shape
from tubeq_spark.storage.log.tidying import LocalRetention
from tubeq_spark.storage.log.versions import checkpoint_name
from tubeq_spark.storage.native.plain_table import LocalTable
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.statement import Affected, Statement
from tubeq_spark.storage.store.local_store import LocalStore
from tubeq_spark.storage.tables import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.storage.log.log import Log
    from tubeq_spark.storage.log.snapshot import Snapshot

HOUR = 3_600_000
#: In place of what it is else, for short tests.
EVERY = 5


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A process that reads and writes the logs by itself, at a location with empty tables."""
    return Place(tmp_path, -(10**9)).create()


@pytest.fixture
def other(place: Place, tmp_path: Path) -> Place:
    """Another such process."""
    assert place.engine.tables.is_table(place.tube)
    return Place(tmp_path, -2 * 10**9)


def log_of(place: Place) -> Path:
    local = place.engine._handles.table(place.tube)
    assert isinstance(local, LocalTable)
    return local.directory / "_delta_log"


def seen(place: Place) -> Snapshot:
    return place.engine._handles.table(place.tube).newest()


def once(place: Place, app: str, version: int) -> Statement:
    rows = pa.table({"segment": pa.array([5], pa.int64()), "tube": pa.array([1], pa.int64())})
    return Statement(place.tube, new=rows, once=(app, version), size=1)


# -- what others read ------------------------------------------------------------------------------


def assert_as_the_library_reads_it(place: Place) -> None:
    found = seen(place)
    table = DeltaTable(str(log_of(place).parent))
    assert found.version == table.version()
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {
        (file.path, file.size, file.rows, file.partition["segment"], file.at_ms)
        for file in found.files.values()
    } == {
        (
            action["path"],
            action["size_bytes"],
            action["num_records"],
            action["partition.segment"],
            action["modification_time"],
        )
        for action in actions
    }
    for action in actions:
        file = found.files[action["path"]]
        for name in ("task_id", "pri", "state", "utube", "claim"):
            for which in ("min", "max"):
                assert file.bound(f"{which}Values", name) == action.get(f"{which}.{name}"), name
    for app, (version, _) in found.transactions.items():
        assert table.transaction_version(app) == version
    metadata = table.metadata()
    assert found.shape.properties == metadata.configuration
    assert list(found.shape.by) == metadata.partition_columns
    assert found.shape.schema == pa.schema(table.schema().to_arrow())


def test_log_when_both_write_it_by_turns_is_the_same_to_both(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", EVERY)
    sides, table = [place, other], DeltaTable(str(log_of(place).parent))
    for n in range(24):
        side, rival = sides[n % 2], sides[n // 2 % 2]
        first = 1_000 + n * 10
        side.put(first, [first, first + 1, first + 2], utube=["a", None, "é" * 80])
        rival.run(once(rival, f"app-{n % 5}", n))
        to = side.fresh()
        assert rival.take({first: [first, first + 1]}, to).updated == 2
        if n % 3:
            assert side.run(side.statements.delete_segments([to])).deleted == 2
        table.update_incremental()
        rows = table.to_pyarrow_table().slice(0, 1)
        there = rows.set_column(0, "segment", pa.array([50_000 + n], pa.int64()))
        write_deltalake(table, there, mode="append")
        if n % 2:
            table.delete(f"segment = {50_000 + n}")
        assert place.stored() == other.stored()
        assert_as_the_library_reads_it(place)
    assert versions(log_of(place), r"checkpoint\.parquet")


def test_table_when_only_a_checkpoint_is_left_is_read_by_the_library(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", EVERY)
    place.run(once(place, "app", 3))
    for n in range(EVERY - 1):
        place.put(10 + n, [100 + n])
    log = log_of(place)
    assert versions(log, r"checkpoint\.parquet") == [EVERY]
    for version in range(EVERY):
        (log / f"{version:020}.json").unlink()
    assert_as_the_library_reads_it(place)
    table = DeltaTable(str(log.parent))
    assert table.transaction_version("app") == 3
    assert table.to_pyarrow_table(columns=["task_id"]).num_rows == EVERY
    fresh = Place(log.parents[1], -7)
    assert fresh.stored() == place.stored()
    assert_as_the_library_reads_it(fresh)
    assert fresh.put(99, [999]).inserted == 1
    assert_as_the_library_reads_it(fresh)


def test_checkpoint_when_the_last_one_is_the_librarys_keeps_what_that_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        place.put(10 + n, [100 + n])
    log = log_of(place)
    table = DeltaTable(str(log.parent))
    for n in range(3):
        table.delete(f"segment = {10 + n}")
    table.create_checkpoint()
    gone = set(told_gone(log, table.version()))
    assert len(gone) == 3
    monkeypatch.setattr(tidying, "EVERY", 2)
    place.put(50, [500])
    place.run(place.statements.delete_segments([50]))
    assert gone < set(told_gone(log, seen(place).version))
    assert len(told_gone(log, seen(place).version)) == 4
    assert_as_the_library_reads_it(place)


def test_tasks_of_sub_queues_with_long_names_are_taken_one_by_one(tmp_path: Path) -> None:
    """Queries of the library fail where a file tells the least text and not the greatest."""
    utubes = ["plain", "a", "x" * 65, "é" * 20_000]
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("subs", "utube")
        for utube in utubes:
            tube.put({"text": "y" * 300_000}, utube=utube)
        for utube in utubes:
            (task,) = tube.take_many(1)
            assert task.utube == utube
            tube.ack(task.task_id)


def told_gone(log: Path, version: int) -> list[str]:
    """The files that a checkpoint tells to be gone."""
    found = pa.parquet.read_table(log / checkpoint_name(version)).column("remove")
    return [action["path"] for action in found.to_pylist() if action is not None]


def test_vacuum_after_a_checkpoint_keeps_the_files_that_went_a_moment_ago(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 2)
    place.put(5, [50])
    place.run(place.statements.delete_segments([5]))
    log = log_of(place)
    (file,) = log.parent.glob("segment=5/*.parquet")
    old = file.stat().st_mtime - 30 * 86_400
    os.utime(file, (old, old))
    table = DeltaTable(str(log.parent))
    assert table.vacuum(dry_run=True) == []
    assert table.vacuum(0, enforce_retention_duration=False, dry_run=True) == [
        str(file.relative_to(log.parent))
    ]


def test_checkpoint_tells_what_is_over_for_as_long_as_the_table_says(place: Place) -> None:
    place.run(once(place, "app", 3))
    place.put(6, [60])
    place.run(replace(place.statements.delete_segments([6]), ended=Ended(1)))
    found, log = seen(place), log_of(place)
    _, at_ms = found.transactions["app"]
    assert at_ms is not None
    # Two hours for files, thirty days for transactions, and for ever for how many tasks have ended.
    for hours, gone, known in ((1, 1, 2), (3, 0, 2), (29 * 24, 0, 2), (31 * 24, 0, 1)):
        checkpoints.write(log_files_of(log), found, at_ms + hours * HOUR)
        assert len(told_gone(log, found.version)) == gone, hours
        assert len(reading.newest(log_files_of(log), None).transactions) == known
    assert_as_the_library_reads_it(Place(log.parents[1], -7))


def test_checkpoint_when_a_table_tells_much_is_made_more_seldom(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 2)
    monkeypatch.setattr(tidying, "_ACTIONS", 1)
    for n in range(16):
        place.put(10 + n, [100 + n])
    # The first has two files, the protocol and the metadata: four versions until the next.
    assert versions(log_of(place), r"checkpoint\.parquet") == [2, 6, 14]


def test_checkpoint_when_removed_files_came_back_tells_them_to_be_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an addition and a removal of one path readers may take either."""
    place.put(5, [50, 51])
    place.run(place.statements.delete_segments([5]))
    log = log_of(place)
    DeltaTable(str(log.parent)).restore(1)
    monkeypatch.setattr(tidying, "EVERY", 1)
    for segment in (6, 7):
        place.put(segment, [segment * 10])
        version = seen(place).version
        assert told_gone(log, version) == []
        added = pa.parquet.read_table(log / checkpoint_name(version)).column("add")
        paths = {action["path"] for action in added.to_pylist() if action is not None}
        assert paths == seen(place).files.keys()
    assert [row[1] for row in place.stored()] == [50, 51, 60, 70]


def test_vacuum_removes_what_stopped_writers_left_and_what_checkpoints_forgot(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(place)
    place.put(5, [50])
    (gone,) = log.parent.glob("segment=5/*.parquet")
    left = gone.with_name("part-00000-left-c000.snappy.parquet")
    left.write_bytes(gone.read_bytes())
    place.run(place.statements.delete_segments([5]))
    place.put(6, [60])
    monkeypatch.setattr(
        DeltaTable, "cleanup_metadata", lambda _: pytest.fail("it removes in any order")
    )
    place.engine.tables.vacuum(place.tube)
    assert gone.exists()
    assert left.exists()
    found = seen(place)
    last = max(file.at_ms for file in found.files.values())
    # As if three hours had passed: no checkpoint tells of it any more.
    checkpoints.write(log_files_of(log), found, last + 3 * HOUR)
    for file in (gone, left, *log.glob("*.json"), *log.parent.glob("segment=6/*.parquet")):
        at_s = file.stat().st_mtime - 3 * 3600
        os.utime(file, (at_s, at_s))
    fresh = Place(log.parents[1], -7)
    fresh.engine.tables.vacuum(fresh.tube)
    assert not gone.exists()
    assert not left.exists()
    kept = versions(log)
    assert kept == list(range(kept[0], kept[-1] + 1))
    assert place.stored() == fresh.stored() == [(6, 60, "r")]


# -- rivals ----------------------------------------------------------------------------------------

Act = dict[str, "Callable[[Place], object]"]
MINE: Act = {
    "put": lambda p: p.put(9, [90]),
    "take": lambda p: p.take({5: [50]}, -5),
    "ack": lambda p: p.run(p.statements.delete_segments([6])),
    "capacity": lambda p: p.run(
        p.put_gate.put(new_rows(8, [80]), 1, [8], p.put_gate.read(NOW, counts=True), now_us=NOW)
    ),
}
RIVAL: Act = {
    "put": lambda p: p.put(19, [190]),
    "ack": lambda p: p.run(p.statements.delete_segments([7])),
    "append": lambda p: p.run(once(p, "app", 1)),
}


@pytest.mark.parametrize(("mine", "rival"), [*product(MINE, RIVAL)])
def test_statement_when_anybody_has_committed_before_is_committed_behind_it(
    place: Place, other: Place, mine: str, rival: str
) -> None:
    """The lock keeps writers apart; who commits without it is noticed by the version."""
    for segment in (5, 6, 7):
        place.put(segment, [segment * 10, segment * 10 + 1])
    place.writer.rival = lambda: RIVAL[rival](other)
    before = seen(place).version
    if (mine, rival) == ("take", "append"):
        # The new row is in the segment from which the take has chosen.
        with pytest.raises(EngineError) as failed:
            MINE[mine](place)
        assert failed.value.outcome is Outcome.CONFLICT
        assert seen(place).version == before + 1
    MINE[mine](place)
    assert seen(place).version >= before + 2
    assert_as_the_library_reads_it(place)


def test_append_when_anybody_has_committed_before_is_written_once_more(
    place: Place, other: Place
) -> None:
    place.writer.rival = lambda: other.put(9, [90])
    assert place.run(once(place, "app", 4)) == Affected(inserted=1)
    place.writer.rival = lambda: other.run(once(other, "app", 5))
    assert place.run(once(place, "app", 5)) == Affected()
    assert place.run(once(place, "app", 5)) == Affected()
    assert len(place.stored()) == 3


# -- stops and failures ----------------------------------------------------------------------------


class StopError(BaseException):
    """The process ends here."""


def stopping(*_args: Any, **_options: Any) -> None:
    raise StopError


def full(*_args: Any, **_options: Any) -> None:
    raise OSError(28, "No space left on device")


#: What is done one after the other, and whether the commit is there when it fails.
STEPS: list[tuple[Any, str, bool]] = [
    (LocalStore, "put", False),
    (LocalStore, "put_if_absent", False),
    (os, "link", False),
    (os, "unlink", True),
    (checkpoints, "write", True),
    (Path, "replace", True),
]


@pytest.mark.parametrize(
    ("owner", "name", "is_there", "verb"),
    # An ack writes no rows.
    [(*step, verb) for step in STEPS for verb in MINE if (step[1], verb) != ("put", "ack")],
)
@pytest.mark.parametrize("end", [stopping, full])
def test_commit_when_it_ends_at_any_step_is_there_or_is_not(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    is_there: bool,
    end: Callable[..., None],
    verb: str,
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 1)
    for segment in (5, 6):
        place.put(segment, [segment * 10, segment * 10 + 1])
    before = place.stored()
    before_that = getattr(owner, name)

    def ends(*args: Any, **options: Any) -> object:
        is_ours = name != "unlink" or str(args[0]).endswith(".json.tmp")
        return end() if is_ours else before_that(*args, **options)

    monkeypatch.setattr(owner, name, ends)
    if is_there and end is full:
        assert MINE[verb](place)
    else:
        with pytest.raises((StopError, EngineError)):
            MINE[verb](place)
    monkeypatch.undo()
    fresh = Place(log_of(place).parents[1], -7)
    assert (fresh.stored() != before) is is_there
    assert fresh.stored() == place.stored()
    assert_as_the_library_reads_it(fresh)
    if not is_there:
        assert MINE[verb](place)
    assert fresh.put(29, [290]).inserted == 1
    assert_as_the_library_reads_it(fresh)


def test_reading_when_the_log_is_shortened_meanwhile_finds_the_newest_version(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", EVERY)
    monkeypatch.setattr(LocalRetention, "versions", 1)
    monkeypatch.setattr(LocalRetention, "SECONDS", 0.0)
    (log_of(place).parents[1] / "_tubeq_locks").mkdir()
    place.put(5, [50])
    commit, asked = reading.commit, list[int]()

    def later(log: Log, version: int) -> Any:
        asked.append(version)
        if len(asked) == 1:
            # One that was asked for is gone when it is read.
            for n in range(4 * EVERY):
                other.put(10 + n, [100 + n])
        return commit(log, version)

    fresh = Place(log_of(place).parents[1], -7)
    monkeypatch.setattr(reading, "commit", later)
    assert seen(fresh).version == 1 + 4 * EVERY
    assert versions(log_of(place))[0] > 2
    monkeypatch.undo()
    assert seen(place).version == 1 + 4 * EVERY
    assert fresh.stored() == place.stored() == other.stored()


def test_reading_when_there_is_no_log_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not exist"):
        reading.newest(log_files_of(tmp_path / "nothing" / "_delta_log"), None)


def test_statement_when_the_log_cannot_be_read_is_known_to_have_written_nothing(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(5, [50])
    other.put(6, [60])
    monkeypatch.setattr(reading, "commit", full)
    with pytest.raises(EngineError) as failed:
        place.put(7, [70])
    assert failed.value.outcome is Outcome.FAILED
    monkeypatch.undo()
    assert [row[1] for row in place.stored()] == [50, 60]


def test_commit_when_its_request_is_sent_twice_is_known_as_its_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(source: Any, to: Any) -> None:
        link(source, to)
        link(source, to)

    monkeypatch.setattr(os, "link", twice)
    assert place.put(5, [50]).inserted == 1
    monkeypatch.undo()
    assert place.stored() == [(5, 50, "r")]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_table_when_it_was_removed_and_made_anew_is_read_from_its_beginning(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_noticed: bool
) -> None:
    place.put(5, [50])
    assert place.stored() == [(5, 50, "r")]
    shutil.rmtree(log_of(place).parent)
    if is_noticed:
        assert not place.engine.tables.is_table(place.tube)
    anew = Place(tmp_path, -2 * 10**9)
    table = schema.new_tube_table(anew.tube, QueueConfig(), None, change_feed=False)
    anew.engine.tables.create(table)
    anew.put(6, [60])
    anew.put(7, [70])
    assert place.stored() == anew.stored() == [(6, 60, "r"), (7, 70, "r")]
    monkeypatch.setattr(tidying, "EVERY", 1)
    place.put(8, [80])
    assert [row[1] for row in Place(tmp_path, -7).stored()] == [60, 70, 80]


# -- what only the library knows -------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}},
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }
        },
        {"add": {"path": "a%20b", "partitionValues": {"segment": "5"}, "size": 1}},
        {"add": {"path": "/x/y", "partitionValues": {"segment": "5"}, "size": 1}},
        {
            "add": {
                "path": "a",
                "partitionValues": {"segment": "5"},
                "size": 1,
                "modificationTime": 1,
                "deletionVector": {"storageType": "u"},
            }
        },
        {"add": {"path": "a", "partitionValues": {"segment": "x"}, "size": 1}},
        {"nonsense": {}},
    ],
)
def test_log_when_it_has_what_is_not_known_is_refused(place: Place, action: Any) -> None:
    found = seen(place)
    (log_of(place) / f"{found.version + 1:020}.json").write_text(f"{json.dumps(action)}\n")
    with pytest.raises(UnknownLogError):
        reading.newest(log_files_of(log_of(place)), found)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"configuration": {"delta.appendOnly": "true"}}, "delta.appendOnly"),
        ({"configuration": {"delta.constraints.few": "pri < 5"}}, "delta.constraints.few"),
        ({"minWriterVersion": 6}, "columnMapping, identityColumns"),
        ({"minWriterVersion": 7, "writerFeatures": ["invariants", "later"]}, "the feature later"),
    ],
)
def test_table_when_writers_need_more_is_read_and_not_written(
    place: Place, change: dict[str, Any], named: str
) -> None:
    place.put(5, [50])
    shape = seen(place).shape
    metadata = {**shape.metadata, **{k: v for k, v in change.items() if k in shape.metadata}}
    protocol = {**shape.protocol, **{k: v for k, v in change.items() if k not in metadata}}
    commit = [{"protocol": protocol}, {"metaData": metadata}]
    text = "".join(f"{json.dumps(action)}\n" for action in commit)
    version = seen(place).version + 1
    (log_of(place) / f"{version:020}.json").write_text(text)
    for attempt in (
        lambda: place.put(6, [60]),
        lambda: place.engine.tables.set_property(place.tube, "tubeq.x", "1"),
        lambda: place.engine.tables.vacuum(place.tube),
    ):
        with pytest.raises(StoreError, match=f"nothing was written.*{named}"):
            attempt()
    assert [row[1] for row in place.stored()] == [50]
    assert place.version(place.tube) == version


def test_table_when_its_feed_was_switched_on_by_the_protocol_of_today_keeps_it_in_checkpoints(
    place: Place,
) -> None:
    features = ["appendOnly", "changeDataFeed", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    version = seen(place).version + 1
    text = json.dumps({"protocol": protocol})
    (log_of(place) / f"{version:020}.json").write_text(f"{text}\n")
    place.put(5, [50])
    place.engine.tables.vacuum(place.tube)
    (log_of(place) / f"{version:020}.json").unlink()
    anew = Place(log_of(place).parents[1], -7)
    assert sorted(seen(anew).shape.protocol["writerFeatures"]) == features
    assert anew.put(6, [60]).inserted == 1
    theirs = DeltaTable(str(log_of(place).parent)).protocol()
    assert sorted(theirs.writer_features or ()) == features


# -- files and arrays ------------------------------------------------------------------------------

_KINDS = pa.schema(
    [
        ("segment", pa.int64()),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_MOMENTS = st.integers(-(10**17), 253_402_300_799_999_999)
#: Long ones, too, of characters that have no next one, or one far from them.
_TEXTS = st.text(max_size=80) | st.text("a\x00\ud7ff\uffff\U0010ffff", min_size=60, max_size=70)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "segment": st.integers(-2, 2),
                "n": st.none() | st.integers(-(2**63), 2**63 - 1),
                "text": st.none() | _TEXTS,
                "at": st.none() | _MOMENTS,
            }
        ),
        min_size=1,
    )
)
@settings(max_examples=100, deadline=None)
def test_files_hold_the_rows_of_a_partition_within_what_their_statistics_say(
    rows: list[dict[str, Any]],
) -> None:
    table = pa.table({f.name: pa.array([r[f.name] for r in rows], f.type) for f in _KINDS})
    shape = Shape(_KINDS, ["segment"], {}, {}, {})
    written = list(data_files.encoded(shape, table, 7))
    assert sum(part.num_rows for _, part, _ in written) == len(rows)
    for file, part, content in written:
        assert (file.rows, file.at_ms) == (part.num_rows, 7)
        assert file.size == len(content)
        read = pa.parquet.ParquetFile(pa.BufferReader(content)).read()
        assert read.equals(part.select(read.column_names))
        missing = {*part.column_names} - {*read.column_names, "segment"}
        assert all(part.column(name).null_count == part.num_rows for name in missing)
        assert part.column("segment").unique().to_pylist() == [file.partition["segment"]]
        for name in ("n", "text"):
            known = [value for value in part.column(name).to_pylist() if value is not None]
            low, high = file.bound("minValues", name), file.bound("maxValues", name)
            assert all(low <= value <= high for value in known)
            assert (low is None) is (not known)
        moments = part.column("at").cast(pa.int64()).drop_null().to_pylist()
        for which, fits in (("minValues", min), ("maxValues", max)):
            told = file.bound(which, "at")
            if told is not None:
                limit = pa.scalar(told).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
                assert fits([limit, *moments]) == limit


def test_rows_when_grouped_are_those_of_each_partition_in_their_order() -> None:
    rows = pa.table(
        {"a": pa.array([2, 1, 2, 1, 2], pa.int64()), "n": pa.array(range(5), pa.int64())}
    )
    found = {key: part.column("n").to_pylist() for key, part in grouped(rows, ["a"])}
    assert found == {(2,): [0, 2, 4], (1,): [1, 3]}
    assert [key for key, _ in grouped(rows, [])] == [()]
    assert dict(grouped(rows.slice(1, 1), ["a"])).keys() == {(1,)}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, None, -(2**63)]),
        (pa.struct({"a": pa.string(), "b": pa.int64()}), [{"a": "x", "b": None}, None]),
        (pa.list_(pa.string()), [["a", "b"], [], None, ["c"]]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", None), ("c", 3)]]),
        (
            pa.struct({"m": pa.map_(pa.string(), pa.string()), "l": pa.list_(pa.string())}),
            [{"m": None, "l": ["x"]}, {"m": [("k", "v")], "l": None}, None],
        ),
        (pa.list_(pa.string()), []),
    ],
)
def test_values_of_any_type_make_an_array_that_holds_them(
    kind: pa.DataType, values: list[Any]
) -> None:
    made = nested(values, kind)
    made.validate(full=True)
    assert made.type == kind
    assert made.to_pylist() == values


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("interval 2 hours", 2),
        ("interval 1 hour", 1),
        ("interval 30 days", 720),
        ("interval 2 weeks", 336),
        ("30 days", None),
        ("INTERVAL 30 DAYS", None),
        ("interval 1 weeks 2 days", None),
        (None, 7),
    ],
)
def test_hours_of_a_property_are_told_where_its_words_are_known(
    text: str | None, hours: int | None
) -> None:
    properties = {} if text is None else {"delta.x": text}
    assert hours_of(properties, "delta.x", 7) == hours
