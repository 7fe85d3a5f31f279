"""The log of a busy table stays short, but keeps each version that somebody still reads."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.native.logs import HOUR, MINUTE, aged, versions
from tests.native.support import opened
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.locks import committer
from tubeq_spark.storage.locks.committer import LogReaders, without_readers
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention
from tubeq_spark.storage.native.plain_table import LocalTable

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark import Queue, Tube

#: In place of what it is else, for short tests.
EVERY, VERSIONS = 10, 20
#: Files of a version: its commit, and each tenth time a checkpoint; and the pointer to the last.
MOST = (2 * VERSIONS + 10) * 11 // 10 + 2


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "EVERY", EVERY)
    monkeypatch.setattr(LocalRetention, "versions", VERSIONS)


def busy(queue: Queue, name: str, commits: int) -> Tube:
    """A tube with so many commits, one task left."""
    tube = queue.create_tube(name, "fifo", if_not_exists=True)
    for _ in range(commits // 3):
        tube.put("done")
        task = tube.take(0)
        tube.ack(task.task_id)
    tube.put("left")
    return tube


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A location with a tube that had many commits, all of which are old by now."""
    place = tmp_path_factory.mktemp("worn")
    with pytest.MonkeyPatch.context() as patched, opened(place) as queue:
        patched.setattr(tidying, "EVERY", EVERY)
        patched.setattr(LocalRetention, "versions", VERSIONS)
        busy(queue, "worn", 2 * VERSIONS + EVERY)
    aged(place / "worn" / "_delta_log", MINUTE)
    return place


def copied(worn: Path, to: Path) -> Path:
    """A location of one's own: the log of its tube."""
    return shutil.copytree(worn, to, dirs_exist_ok=True) / "worn" / "_delta_log"


def test_log_of_a_busy_tube_keeps_the_newest_versions_only(worn: Path, tmp_path: Path) -> None:
    log = copied(worn, tmp_path)
    assert len(versions(log)) > VERSIONS + 2 * EVERY
    with opened(tmp_path) as queue:
        busy(queue, "worn", VERSIONS)
        kept = versions(log)
        assert len(list(log.iterdir())) <= MOST
        assert kept == list(range(kept[0], kept[-1] + 1))
        assert versions(log, r"checkpoint\.parquet")[0] == kept[0]
        assert queue.statistics("worn")["tasks"]["ready"] == 2
    assert DeltaTable(str(tmp_path / "worn")).version() == kept[-1]


@pytest.mark.parametrize(
    ("why", "young", "old"),
    [
        ("a reader", MINUTE, HOUR),
        ("delta.enableChangeDataFeed=true", HOUR, 3 * HOUR),
        ("delta.logRetentionDuration=interval 3 days", 48 * HOUR, 73 * HOUR),
    ],
)
def test_log_when_it_is_still_needed_is_kept_for_longer(
    worn: Path, tmp_path: Path, why: str, young: int, old: int
) -> None:
    log = copied(worn, tmp_path)
    readers = LogReaders(tmp_path / LOCKS)
    if why == "a reader":
        readers.enter()
        readers.enter()
    else:
        table = DeltaTable(str(tmp_path / "worn"))
        table.alter.set_table_properties(dict([why.split("=")]))
    before = versions(log)
    aged(log, young)
    with opened(tmp_path) as queue:
        for times in range(2 * VERSIONS + 1):
            queue["worn"].put("a")
            if times == VERSIONS:
                assert versions(log)[: len(before)] == before
                aged(log, old - young)
    assert len(versions(log)) <= 2 * VERSIONS + EVERY + 11


def test_readers_when_the_last_one_has_left_are_none(tmp_path: Path) -> None:
    two = [LogReaders(tmp_path) for _ in range(2)]
    for readers in two:
        readers.enter()
    for readers in two:
        with without_readers(tmp_path) as unread:
            assert not unread
        readers.leave()
    with without_readers(tmp_path) as unread:
        assert unread
    with without_readers(tmp_path / "no locks") as unread:
        assert not unread


def test_readers_when_a_child_process_was_forked_while_none_was_there_need_not_wait_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, of_child = committer._opened, list[int]()

    def shared(locks: Path) -> int:
        file = opened(locks)
        # A child process has the same open file, as a second descriptor of this one has.
        of_child.append(os.dup(file))
        return file

    monkeypatch.setattr(committer, "_opened", shared)
    with without_readers(tmp_path) as unread:
        assert unread
    with without_readers(tmp_path) as unread:
        assert unread
    for file in of_child:
        os.close(file)


def shorten(table: Path, newest: int, before: float) -> int:
    """Shorten the log of a table."""
    return LocalTable(table).tidying.shorten(newest, before)


#: Files that go with the versions 0 to 3, and one that stays.
OF_OTHERS = (
    f"{3:020}.crc",
    f".{0:020}.json.crc",
    f".{1:020}.crc.crc",
    f"{0:020}.{3:020}.compacted.json",
    f"{2:020}.checkpoint.0000000001.0000000002.parquet",
    f".{2:020}.checkpoint.parquet.crc",
)
LATER = f".{99:020}.json.crc"


def log_of(directory: Path, newest: int, checkpoints: dict[int, str], last: int | None) -> None:
    """A log of empty files with some of other programs, and checkpoints without actions."""
    directory.mkdir()
    for name in (*OF_OTHERS, LATER):
        (directory / name).touch()
    for version in range(newest + 1):
        (directory / f"{version:020}.json").touch()
    for version, kind in checkpoints.items():
        pq.write_table(pa.table({"n": [0]}), directory / f"{version:020}.checkpoint{kind}.parquet")
    if last is not None:
        (directory / "_last_checkpoint").write_text(json.dumps({"version": last, "size": 1}))


@pytest.mark.parametrize(
    ("checkpoints", "last", "first"),
    [
        ({}, None, 0),
        ({10: "", 20: ""}, 20, 20),
        # Readers begin with the one that is pointed to; what is not pointed to need not be whole.
        ({10: "", 20: ""}, 10, 10),
        ({10: "", 20: ""}, None, 0),
        # Several parts, or a kind that we do not know: whether they are complete is not for us to say.
        ({10: "", 20: ".0000000001.0000000002"}, 20, 10),
        ({20: ".80a083e8-7026-4e79-81be-64bd76c43a11"}, 20, 0),
        # The newest versions stay, however old.
        ({10: "", 29: "", 31: "", 200: ""}, 200, 29),
    ],
)
def test_shorten_when_there_is_a_whole_checkpoint_removes_what_lies_before_it(
    tmp_path: Path, checkpoints: dict[int, str], last: int | None, first: int
) -> None:
    log = tmp_path / "_delta_log"
    log_of(log, VERSIONS + 30, checkpoints, last)
    aged(log, HOUR)
    now = (log / f"{0:020}.json").stat().st_mtime + HOUR
    shorten(tmp_path, VERSIONS + 30, now - 10)
    assert versions(log) == list(range(first, VERSIONS + 31))
    assert [name for name in OF_OTHERS if (log / name).exists()] == [*OF_OTHERS][
        : 0 if first else 9
    ]
    assert (log / LATER).exists()
    assert shorten(tmp_path, VERSIONS + 30, now - 10) == 0


def test_shorten_removes_what_stopped_writers_left_behind_an_hour_ago(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log_of(log, 3, {}, None)
    old, young = (log / f"_commit_{age}.json.tmp" for age in ("old", "young"))
    for path in (old, young):
        path.touch()
    now = young.stat().st_mtime
    os.utime(old, (now - HOUR - 20, now - HOUR - 20))
    shorten(tmp_path, 3, now - 10)
    assert not old.exists()
    assert young.exists()
    assert versions(log) == [0, 1, 2, 3]
