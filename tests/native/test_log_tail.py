"""Recovery after a boot drops only the part of a log that no reader can reach."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.native.damage import checkpoint, commit, data_file
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.storage.durability import recovery
from tubeq_spark.storage.durability.recovery import recover
from tubeq_spark.storage.durability.synced_log import SyncedLog, place_of


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The table of a tube with eleven tasks, of which version n has put the nth; version 9 has a checkpoint."""
    with Queue(None, str(tmp_path), engine="native", config=QueueConfig(durability="none")) as q:
        tube = q.create_tube("work")
        for number in range(9):
            tube.put(number)
        DeltaTable(str(tmp_path / "work")).create_checkpoint()
        tube.put("the tenth")
        tube.put("last")
    return tmp_path / "work"


def recovered(table: Path) -> SyncedLog:
    """The log, as the first process sees it that uses the table after the next boot."""
    synced = SyncedLog(table, places=lambda path: replace(place_of(path), boot="another boot"))
    recover(synced, nullcontext)
    return synced


@pytest.mark.parametrize(
    ("has_checkpoint", "gone", "empty", "aside", "rows"),
    {
        # Whoever shortened the log was stopped, and the disk has not removed the commits in their order.
        "hole behind a checkpoint": (False, [4], [], [], 11),
        "hole just behind it": (False, [8], [], [], 11),
        "last commit, of which a checkpoint has all": (True, [], [11], [], 11),
        "hole and a lost end": (False, [4], [11], [11], 10),
        # The commit of the checkpoint is gone, too, so that no commit leads to the hole.
        "hole after a checkpoint": (False, [9, 10], [], [11], 9),
    }.values(),
)
def test_log_loses_what_no_reader_can_reach_and_no_more(
    table: Path,
    has_checkpoint: bool,
    gone: list[int],
    empty: list[int],
    aside: list[int],
    rows: int,
) -> None:
    if has_checkpoint:
        DeltaTable(str(table)).create_checkpoint()
    for version in gone:
        commit(table, version).unlink()
    for version in empty:
        commit(table, version).write_bytes(b"")
    before = sorted(file.name for file in (table / "_delta_log").iterdir())

    assert recovered(table).damage == ""
    lost = [file.name for file in table.glob("_delta_log/_lost-*/*")]
    assert lost == [commit(table, version).name for version in aside]
    kept = sorted(file.name for file in (table / "_delta_log").iterdir() if file.is_file())
    assert kept == [name for name in before if name not in lost]
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == rows


def test_log_of_which_more_is_lost_than_was_read_is_left_as_it_is(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MOST_LOST", 3)
    log = table / "_delta_log"
    for name in ("_last_checkpoint", f"{9:020}.checkpoint.parquet"):
        (log / name).unlink()
    for version in (9, 10, 11):
        commit(table, version).write_bytes(b"")
    before = sorted(log.iterdir())

    assert "3 versions would be lost" in recovered(table).damage
    assert sorted(log.iterdir()) == before


def test_log_with_150_versions_whose_files_were_vacuumed_is_left_as_it_is(
    tmp_path: Path,
) -> None:
    config = QueueConfig(durability="none")
    with Queue(None, str(tmp_path), engine="native", config=config) as queue:
        tube = queue.create_tube("work", "fifottl")
        tube.put("old", pri=2)
        for number in range(75):
            tube.put(number, pri=1)
            task = tube.take(0)
            tube.ack(task.task_id)
    table, log = tmp_path / "work", tmp_path / "work" / "_delta_log"
    now = DeltaTable(str(table))
    live = {table / uri.removeprefix("file://") for uri in now.file_uris()}
    for file in table.glob("segment=*/**/*.parquet"):
        if file not in live:
            file.unlink()
    versions = [int(file.stem) for file in log.glob("*.json")]
    assert now.version() > 220
    assert len(versions) > 150
    before = {file: file.read_bytes() for file in log.iterdir() if file.is_file()}

    assert recovered(table).damage == ""

    assert {file: file.read_bytes() for file in log.iterdir() if file.is_file()} == before
    with Queue(None, str(tmp_path), engine="native") as queue:
        task = queue["work"].take(0)
        assert task.data == "old"


@pytest.mark.parametrize("name", ["commit", "data file"])
def test_log_with_a_newest_file_that_this_process_may_not_read_is_left_as_it_is(
    table: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Another user has put the last task, and nobody else may read what that user writes."""
    before = sorted((table / "_delta_log").iterdir())
    newest = commit(table, 11) if name == "commit" else data_file(table, 11)
    for method in ("read_bytes", "open"):
        real = getattr(Path, method)

        def refused(file: Path, *args: Any, _real: Any = real, **more: Any) -> Any:
            if file == newest:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
            return _real(file, *args, **more)

        monkeypatch.setattr(Path, method, refused)
    recovered(table)

    assert sorted((table / "_delta_log").iterdir()) == before


@pytest.mark.parametrize("act", ["merge", "delete"])
def test_log_with_changes_of_rows_by_the_library_is_left_as_it_is(tmp_path: Path, act: str) -> None:
    """The library counts files of changes among those that it adds."""
    place = tmp_path / "work"
    rows = pa.table({"segment": [1, 1, 1], "id": [1, 2, 3]})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(place, rows, partition_by=["segment"], configuration=feed)
    table = DeltaTable(place)
    if act == "merge":
        merger = table.merge(rows[:1], "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().execute()
    else:
        table.delete("id = 1")
    assert b'{"cdc":' in (place / "_delta_log" / f"{1:020}.json").read_bytes()
    before = sorted((place / "_delta_log").iterdir())

    recovered(place)

    assert sorted((place / "_delta_log").iterdir()) == before


def test_log_whose_last_commit_and_checkpoint_are_damaged_loses_its_last_version(
    table: Path,
) -> None:
    DeltaTable(str(table)).create_checkpoint()
    commit(table, 11).write_bytes(b"")
    newest = checkpoint(table, 11)
    text = newest.read_bytes()
    # A disk may have written its ends and not what is between them.
    newest.write_bytes(text[:4] + b"\0" * (len(text) - 12) + text[-8:])

    assert recovered(table).damage == ""
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 10
