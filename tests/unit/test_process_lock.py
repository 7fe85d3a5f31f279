"""The lock of a table that is not the queue's: threads together, processes one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout

from tubeq_spark.storage.disk import FileError
from tubeq_spark.storage.spark.guarded_write import WriterLock

if TYPE_CHECKING:
    from pathlib import Path

WAIT = 30.0


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "pages.lock"


def is_held(lock_file: Path) -> bool:
    """Whether another process could not have it."""
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True


def test_holding_when_two_threads_write_ends_with_the_last(lock_file: Path) -> None:
    lock = WriterLock(lock_file)
    go_on = threading.Event()
    inside = threading.Barrier(2)

    def write() -> None:
        with lock.holding():
            inside.wait(WAIT)
            assert go_on.wait(WAIT)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        with lock.holding():
            inside.wait(WAIT)
        assert is_held(lock_file)
        go_on.set()
        writing.result(WAIT)
    assert not is_held(lock_file)


def test_holding_when_a_write_fails_lets_go(lock_file: Path) -> None:
    lock = WriterLock(lock_file)

    with pytest.raises(ValueError, match="mine"), lock.holding():
        raise ValueError("mine")

    assert not is_held(lock_file)
    with lock.holding():
        assert is_held(lock_file)


def test_holding_when_the_lock_file_cannot_be_made_is_refused(lock_file: Path) -> None:
    lock_file.parent.touch()

    with pytest.raises(FileError, match="cannot be used"), WriterLock(lock_file).holding():
        pytest.fail("it was let in")
