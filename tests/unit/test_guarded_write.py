"""Writes to a table that is not the queue's: under its lock, with a note of the JVM that may be committing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from filelock import FileLock, Timeout

from tubeq_spark import CommitUnknownError, StoreError, guarded_write
from tubeq_spark.storage.locks.committer import Committer, Host, JvmNote
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.storage.spark import guarded_write as module
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

HERE = Host("host", "machine", "boot", "pid:[1]")
MINE = Committer(1, HERE, "100")
OTHER = Committer(2, HERE, "200")


class Running:
    """What runs on this host."""

    def __init__(self, *committers: Committer) -> None:
        self._started = {one.pid: one.started for one in committers}

    def host(self) -> Host:
        return HERE

    def started(self, pid: int) -> str | None:
        return self._started.get(pid)


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "pages.lock"


@pytest.fixture
def note(tmp_path: Path) -> JvmNote:
    return JvmNote(tmp_path / "pages.lock")


@pytest.fixture(autouse=True)
def _lock(lock_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = TableLock(lock_file, ManualClock(), Running(MINE, OTHER))
    monkeypatch.setattr(module, "_lock_of", lambda *_: lock)
    monkeypatch.setattr(module, "committer_of", lambda _: MINE)


def write(action: Callable[[], object]) -> None:
    guarded_write(cast("SparkSession", None), "/tables/pages", action)


def is_held(lock_file: Path) -> bool:
    """Whether another process could not have it."""
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True


def test_write_holds_the_lock_and_names_its_jvm(lock_file: Path, note: JvmNote) -> None:
    seen: list[object] = []

    write(lambda: seen.extend([is_held(lock_file), note.read()]))

    assert seen == [True, MINE]
    assert not is_held(lock_file)
    assert note.read() is None


@pytest.mark.parametrize(
    ("error", "is_left"),
    [
        (ConnectionResetError(), True),
        (KeyboardInterrupt(), True),
        (CommitUnknownError("lost", 1), True),
        (StoreError(), False),
        # The program's own mistake: no statement was running.
        (ValueError(), False),
    ],
)
def test_write_when_it_fails_leaves_the_note_unless_it_was_answered(
    lock_file: Path, note: JvmNote, error: BaseException, *, is_left: bool
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        write(fail)

    assert note.read() == (MINE if is_left else None)
    assert not is_held(lock_file)
    # The same JVM goes on, and the note stays: nobody knows when that statement ends.
    write(lambda: None)
    assert note.read() == (MINE if is_left else None)


def test_write_when_another_jvm_may_be_committing_is_refused(
    lock_file: Path, note: JvmNote
) -> None:
    note.write(OTHER)

    with pytest.raises(StoreError, match="may still be committing"):
        write(lambda: pytest.fail("it was let in"))

    assert not is_held(lock_file)
