"""Each durability makes verbs sync exactly the files that it promises, in order, also after a failed sync."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from tubeq_spark import CommitUnknownError, Queue, QueueConfig, StoreError
from tubeq_spark.config import Durability
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.storage.durability import background
from tubeq_spark.storage.durability.recovery import recover
from tubeq_spark.storage.durability.synced_log import LOCKS, MARK_SUFFIX, SyncedLog, synced_log_of
from tubeq_spark.storage.store import local_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark import Tube

LEVELS = ("commit", "table", "none")


class Syncs:
    """The syncs of this process, by kind and path below a location; a test may have some fail."""

    def __init__(self, location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], bool] = lambda kind, path: False
        self._location = location
        for kind in ("sync_file", "sync_directory", "sync_file_system"):
            monkeypatch.setattr(
                local_files, kind, self._recording(kind, getattr(local_files, kind))
            )

    def _recording(self, kind: str, sync: Callable[[Path], None]) -> Callable[[Path], None]:
        def recorded(path: Path | str) -> None:
            name = os.path.relpath(path, self._location)
            if name.startswith(".."):
                # A queue of an earlier test, which is flushed a second after its last commit.
                sync(Path(path))
                return
            self.found.append((kind.removeprefix("sync_"), name))
            if self.fails(kind.removeprefix("sync_"), name):
                raise OSError(errno.EIO, os.strerror(errno.EIO), name)
            sync(Path(path))

        return recorded

    def of(self, verb: Callable[[], object]) -> list[str]:
        """The kinds of files that a verb syncs, in their order."""
        self.found.clear()
        verb()
        return [kind if kind == "file_system" else _kind(name) for kind, name in self.found]


def _kind(name: str) -> str:
    if name.endswith(".parquet"):
        return "data"
    if name.endswith("_delta_log"):
        return "log"
    if "segment=" in name:
        return "segment"
    return "commit" if "_delta_log" in name else "table"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def syncs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(place, monkeypatch)


def opened(place: Path, durability: str) -> Queue:
    return Queue(None, str(place), engine="native", config=QueueConfig(durability=durability))


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tube(place: Path) -> Iterator[Tube]:
    """A tube of a queue that syncs each commit, whose session has begun."""
    with opened(place, "commit") as queue:
        tube = queue.create_tube("work")
        tube.put("first")
        tube.take(0)
        yield tube


def test_durability_when_the_environment_names_one_is_that_of_new_locations(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUBEQ_DURABILITY", "table")
    assert QueueConfig().new_durability() == "table"
    assert QueueConfig(durability="none").new_durability() == "none"
    with Queue(None, str(place), engine="native") as queue:
        queue.create_tube("work")
        assert synced_log_of(place / "work").durability == "table"
    monkeypatch.setenv("TUBEQ_DURABILITY", "always")
    with pytest.raises(InvalidOptionError, match="one of commit, table, none"):
        QueueConfig()
    monkeypatch.delenv("TUBEQ_DURABILITY")
    assert QueueConfig().new_durability() == "commit"
    with Queue(None, str(place), engine="native") as queue:
        assert queue["work"].put("a").data == "a"
        assert synced_log_of(place / "work").durability == "table"


def test_durability_when_it_is_not_that_of_the_location_is_refused(place: Path, level: str) -> None:
    with opened(place, level):
        pass
    for other in LEVELS:
        if other != level:
            with pytest.raises(InvalidOptionError) as refused:
                opened(place, other)
            assert str(refused.value) == (
                f"durability={other!r}: must be {level!r}, with which {place} was made: leave it out, or make a new "
                "queue"
            )
    with opened(place, level) as queue, Queue(None, str(place), engine="native") as follows:
        queue.create_tube("work")
        assert synced_log_of(place / "work").durability == level
        follows["work"].put("a")
        assert synced_log_of(place / "work").durability == level


@pytest.mark.parametrize("durability", ["commit", "table"])
def test_queue_when_directories_above_it_are_new_syncs_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    syncs = Syncs(tmp_path, monkeypatch)
    with opened(tmp_path / "a" / "b" / "queue", durability):
        assert {name for kind, name in syncs.found if kind == "directory"} >= {".", "a", "a/b"}


def test_verbs_at_commit_sync_contents_before_their_names(tube: Tube, syncs: Syncs) -> None:
    assert syncs.of(lambda: tube.put("a")) == ["data", "segment", "table", "commit", "log"]
    assert syncs.of(lambda: tube.take(0)) == ["data", "segment", "table", "commit", "log"]
    # Nothing is committed where nothing is found.
    assert syncs.of(lambda: tube.take(0)) == []
    (task,) = (each for each in tube.tasks_by_state("t") if each.data == "a")
    assert syncs.of(lambda: tube.ack(task.task_id)) == ["commit", "log"]


@pytest.mark.parametrize("durability", ["table", "none"])
def test_verbs_below_commit_sync_nothing_themselves(
    place: Path, syncs: Syncs, durability: str
) -> None:
    with opened(place, durability) as queue:
        tube = queue.create_tube("work")
        tube.put("first")
        task = tube.take(0)
        assert syncs.of(lambda: tube.ack(task.task_id)) == []
        assert syncs.of(lambda: tube.put("a")) == []
        background.flusher.flush()
        written = [kind for kind, name in syncs.found if name.startswith("work")]
        assert written == (["file_system"] if durability == "table" else [])


@pytest.mark.parametrize("durability", ["commit", "table"])
def test_tables_that_others_rely_on_are_synced_with_each_commit(
    place: Path, syncs: Syncs, durability: str
) -> None:
    """Numbers would be given out twice, and sub-queues be held twice."""
    with opened(place, durability) as queue:
        hosts = queue.create_tube("hosts", "utube")
        names = {name.split("/")[0] for kind, name in syncs.found if _kind(name) == "log"}
        assert {"_tubeq_sessions", "_tubeq_tubes", "hosts"} <= names
        syncs.found.clear()
        hosts.put("a", utube="x")
        hosts.take(0)
        names = {name.split("/")[0] for kind, name in syncs.found if _kind(name) == "log"}
        assert {"_tubeq_sessions"} <= names


def test_commit_on_what_others_have_not_synced_syncs_that_first(
    place: Path, tube: Tube, syncs: Syncs, caplog: pytest.LogCaptureFixture
) -> None:
    """A version is worth no more than those that it stands on; and a writer that is no queue is told of once."""
    table = DeltaTable(str(place / "work"))
    rows = table.to_pyarrow_table().slice(0, 0)
    write_deltalake(table, rows, mode="append")
    found = syncs.of(lambda: tube.put("a"))
    tube.put("b")
    assert found == ["file_system", "log", "data", "segment", "table", "commit", "log"]
    assert [task.data for task in tube.take_many(2)] == ["a", "b"]
    (told,) = [record for record in caplog.records if "is no queue" in record.getMessage()]
    assert "was committed by delta-rs" in told.getMessage()


def test_log_of_which_more_is_damaged_than_a_power_cut_takes_at_commit_is_left_as_it_is(
    place: Path, level: str
) -> None:
    with opened(place, "none") as queue:
        tube = queue.create_tube("work")
        for number in range(12):
            tube.put(number)
    log = place / "work" / "_delta_log"
    for version in range(2, 13):
        (log / f"{version:020}.json").write_bytes(b"")
    (place / LOCKS / f"work{MARK_SUFFIX}").unlink()
    synced = SyncedLog(place / "work")
    synced.follow(Durability(level))
    recover(synced, nullcontext)
    assert bool([*log.glob("_lost-*")]) == (level != "commit")
    assert ("11 versions would be lost" in synced.damage) == (level == "commit")


def test_put_when_its_files_cannot_be_synced_writes_nothing(
    place: Path, tube: Tube, syncs: Syncs
) -> None:
    before = {*place.rglob("*.parquet"), *place.rglob("*.json"), *place.rglob("*.tmp")}
    for kind in ("data", "segment", "commit"):
        syncs.fails = lambda _, name, kind=kind: _kind(name) == kind  # type: ignore[misc]
        with pytest.raises(StoreError, match="nothing was written"):
            tube.put("a")
    syncs.fails = lambda kind, name: False
    assert {*place.rglob("*.parquet"), *place.rglob("*.json"), *place.rglob("*.tmp")} == before
    assert tube.put("b").data == "b"


def test_put_when_the_log_cannot_be_synced_is_unknown_and_all_is_synced_before_the_next(
    tube: Tube, syncs: Syncs
) -> None:
    syncs.fails = lambda kind, name: _kind(name) == "log"
    with pytest.raises(CommitUnknownError, match="a power cut may undo it"):
        tube.put("a")
    # As long as that fails nothing more is committed.
    with pytest.raises(StoreError, match="nothing is committed"):
        tube.put("b")
    syncs.fails = lambda kind, name: False
    assert syncs.of(lambda: tube.put("c"))[:2] == ["file_system", "log"]
    assert [task.data for task in tube.tasks_by_state("r")] == ["a", "c"]


def test_commit_at_table_when_no_thread_can_be_started_is_on_the_disk_before_it_returns(
    place: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "flusher", background._Flusher())
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "tubeq-background":
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with opened(place, "table") as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        syncs.found.clear()
        assert tube.take(0) is not None
        assert ("file_system", "work/_delta_log") in syncs.found


def test_log_when_an_old_file_is_missing_is_left_as_it_is(place: Path) -> None:
    """No power cut takes a file that was written an hour before the last commit."""
    with opened(place, "none") as queue:
        tube = queue.create_tube("work")
        tube.put("old")
        tube.put("new")
        (old, *_) = sorted(place.glob("work/segment=*/*.parquet"), key=os.path.getmtime)
    log = place / "work" / "_delta_log"
    before = sorted(log.iterdir())
    for commit in before[:-1]:
        os.utime(commit, (0, 0))
    old.unlink()
    (place / LOCKS / f"work{MARK_SUFFIX}").unlink()
    synced = SyncedLog(place / "work")
    recover(synced, nullcontext)
    assert sorted(log.iterdir()) == before
    assert "s before the last one" in synced.damage
