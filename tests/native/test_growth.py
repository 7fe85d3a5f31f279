"""A tube keeps no more files after many tasks and a sweep than after few, and sweeps clear dropped tubes."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tubeq_spark import Queue, QueueConfig
from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention
from tubeq_spark.storage.native.tables import NativeTables
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOURS = dt.timedelta(hours=3)


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The system's clock is three hours back, until it is undone: so old are the commits."""
    now = SystemClock.now
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "now", lambda clock: now(clock) - HOURS)
        yield patch


def grow_old(table: Path) -> None:
    """All files and directories of a table are three hours old."""
    then = (dt.datetime.now(dt.UTC) - HOURS).timestamp()
    for path in sorted(table.rglob("*"), reverse=True):
        os.utime(path, (then, then))


def cycles(queue: Queue, count: int) -> None:
    tube = queue["work"]
    for number in range(count):
        tube.put(number)
        task = tube.take(0)
        tube.ack(task.task_id)


def swept(tmp_path: Path, count: int, long_ago: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """The directories, files and bytes of a tube after so many tasks have been done, and one sweep."""
    place, clock = tmp_path / str(count), ManualClock(dt.datetime.now(dt.UTC))
    config = QueueConfig(vacuum_hours=1)
    with Queue(None, str(place), engine="native", clock=clock, config=config) as queue:
        queue.create_tube("work").put("stays")
        assert queue["work"].take(0) is not None
        cycles(queue, count)
        grow_old(place)
        long_ago.undo()
        clock.advance(HOURS.total_seconds())
        assert queue.sweep().vacuumed == ["work", ""]
        assert queue.statistics("work")["tasks"]["done"] == count
    paths = list((place / "work").rglob("*"))
    files = [path for path in paths if path.is_file()]
    return len(paths) - len(files), len(files), sum(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    "count", [150, pytest.param(2_000, marks=pytest.mark.nightly)], ids=["some", "many"]
)
def test_tube_after_many_tasks_and_a_sweep_has_the_files_and_directories_of_after_few(
    tmp_path: Path, long_ago: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(LocalRetention, "SECONDS", 0.0)
    if count < LocalRetention.versions:
        monkeypatch.setattr(LocalRetention, "versions", 20)
        monkeypatch.setattr(tidying, "EVERY", 10)

    directories, files, size = swept(tmp_path, count, long_ago)

    # The log, the segment of the task that stays, and that of tombstones.
    assert directories <= 3
    assert files <= 2 * LocalRetention.versions + 60
    assert size < 4_000_000


def looks(monkeypatch: pytest.MonkeyPatch, method: str, among: str = "") -> list[str]:
    """The tables that a method of all tables is called for from now on, if their names have a text."""
    looked: list[str] = []
    asked = getattr(NativeTables, method)

    def noted(tables: NativeTables, table: str) -> Any:
        looked.extend([table] * (among in table))
        return asked(tables, table)

    monkeypatch.setattr(NativeTables, method, noted)
    return looked


def at_place(tmp_path: Path, clock: ManualClock, **settings: float) -> Queue:
    """A queue whose sweeps remove dead files once an hour."""
    config = QueueConfig(**{"vacuum_hours": 1, "retention_hours": 1, **settings})  # type: ignore[arg-type]
    return Queue(None, str(tmp_path), engine="native", clock=clock, config=config)


def test_sweep_after_a_drop_removes_the_files_of_the_tube_and_then_leaves_its_table_alone(
    tmp_path: Path, long_ago: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(dt.datetime.now(dt.UTC))
    with at_place(tmp_path, clock) as queue:
        queue.create_tube("work")
        cycles(queue, 3)
        queue["work"].put("secret")
        queue["work"].drop()
        grow_old(tmp_path / "work")
        long_ago.undo()
        clock.advance(HOURS.total_seconds())
        queue.create_tube("other")

        assert queue.sweep().vacuumed == ["work", ""]
        kept = [path.read_bytes() for path in (tmp_path / "work").rglob("*.parquet")]
        assert not any(b"secret" in content for content in kept)

        clock.advance(HOURS.total_seconds())
        queue.sweep()
        looked = looks(monkeypatch, "last_write")
        for _ in range(3):
            clock.advance(HOURS.total_seconds())
            assert "work" not in queue.sweep().vacuumed
        assert looked
        assert not any("work" in table for table in looked)


def test_sweeps_leave_few_files_and_rows_of_notes_about_vacuum(tmp_path: Path) -> None:
    clock = ManualClock()
    with at_place(tmp_path, clock, fold_heartbeats=10) as queue:
        names = [f"tube_{number}" for number in range(3)]
        for name in names:
            queue.create_tube(name)
        for _ in range(12):
            for name in names:
                queue[name].put("a")
            clock.advance(HOURS.total_seconds())
            assert queue.sweep().vacuumed == [*names, ""]
        sessions = DeltaTable(tmp_path / "_tubeq_sessions")
        files = [uri for uri in sessions.file_uris() if "bucket=2000" in uri]
        kinds = sessions.to_pyarrow_table(columns=["kind"]).column("kind").to_pylist()
    # Two for each tube and the system tables, and those that are not folded yet.
    notes = [kind for kind in kinds if kind in ("vacuum", "vacuum_tried")]
    assert len(files) <= len(notes) <= 2 * 4 + 10


def test_sweep_when_files_of_a_dropped_tube_were_too_young_asks_its_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(dt.datetime.now(dt.UTC))
    looked = looks(monkeypatch, "last_write", "work")
    with at_place(tmp_path, clock) as queue:
        queue.create_tube("work").drop()
        for _ in range(2):
            clock.advance(1.1 * 3600)
            assert "work" in queue.sweep().vacuumed

    assert len(looked) == 1


@pytest.mark.parametrize("by", ["argument", "clock"])
def test_sweep_after_one_for_a_moment_that_lies_ahead_removes_dead_files_when_it_is_time(
    tmp_path: Path, by: str
) -> None:
    # They are behind the clock of the storage, by which nothing was written before the last removal.
    clock, wrong = ManualClock(), ManualClock()
    with at_place(tmp_path, clock) as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        clock.advance(HOURS.total_seconds())
        ahead = clock.now() + dt.timedelta(days=365)
        if by == "argument":
            queue.sweep(ahead)
        else:
            wrong.advance((ahead - wrong.now()).total_seconds())
            with at_place(tmp_path, wrong) as other:
                assert "work" in other.sweep().vacuumed
        for _ in range(2):
            tube.put("b")
            clock.advance(HOURS.total_seconds())
            assert "work" in queue.sweep().vacuumed
