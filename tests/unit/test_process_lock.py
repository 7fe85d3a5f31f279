"""The lock of a table that is not the queue's: threads together, processes one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout

from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.locks.committer import Committer, Host, JvmNote
from tubeq_spark.storage.spark.guarded_write import ProcessLock
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = Host("host", "machine", "boot", "pid:[1]")
MINE = Committer(1, HERE, "100")
OTHER = Committer(2, HERE, "200")
WAIT = 30.0


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


@pytest.fixture
def lock(lock_file: Path) -> ProcessLock:
    return ProcessLock(lock_file, ManualClock(), Running(MINE, OTHER))


def mine() -> Committer:
    return MINE


def is_held(lock_file: Path) -> bool:
    """Whether another process could not have it."""
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True


def test_holding_when_two_threads_write_ends_with_the_last(
    lock: ProcessLock, lock_file: Path, note: JvmNote
) -> None:
    go_on = threading.Event()
    inside = threading.Barrier(2)

    def write() -> None:
        with lock.holding(mine):
            inside.wait(WAIT)
            assert go_on.wait(WAIT)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        with lock.holding(mine):
            inside.wait(WAIT)
        assert is_held(lock_file)
        assert note.read() == MINE
        go_on.set()
        writing.result(WAIT)
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
def test_holding_when_a_write_fails_leaves_the_note_unless_it_was_answered(
    lock: ProcessLock, lock_file: Path, note: JvmNote, error: BaseException, *, is_left: bool
) -> None:
    with pytest.raises(type(error)), lock.holding(mine):
        raise error

    assert note.read() == (MINE if is_left else None)
    assert not is_held(lock_file)
    # The same JVM goes on, and the note stays: nobody knows when that statement ends.
    with lock.holding(lambda: replace(MINE)):
        assert is_held(lock_file)
    assert note.read() == (MINE if is_left else None)


@pytest.mark.parametrize(
    "leave", [lambda note: note.write(OTHER), lambda note: note.path.write_text("?")]
)
def test_holding_when_another_jvm_may_be_committing_refuses_and_lets_go(
    lock: ProcessLock, lock_file: Path, note: JvmNote, leave: Callable[[JvmNote], None]
) -> None:
    leave(note)

    with pytest.raises(StoreError, match="may still be committing"), lock.holding(mine):
        pytest.fail("it was let in")

    assert not is_held(lock_file)
