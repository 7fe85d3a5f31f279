"""A lock file has one holder at a time, and lets those who wait have it in a fair order."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout

from tubeq_spark.storage.locks.table_lock import LockFile

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
WAIT = 60.0


#: Holds the lock file while its child, which was forked meanwhile, outlives it.
FORKING = """
import os, signal, sys
from pathlib import Path
from tubeq_spark.storage.locks.table_lock import LockFile

lock = LockFile(Path(sys.argv[1]))
with lock.holding():
    if os.fork():
        signal.pause()
print("child", flush=True)
sys.stdin.readline()
print("end", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


@pytest.fixture
def lock(path: Path) -> LockFile:
    """As of one process: each object opens the files for itself, as processes do."""
    return LockFile(path)


def is_free(path: Path) -> bool:
    """Whether a program that does not wait in line could have it."""
    try:
        with FileLock(path, timeout=0):
            return True
    except Timeout:
        return False


def fails(_file: int, _operation: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(params=["waits", "polls"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the system has locks that can be waited for; on Windows the file is polled."""
    if request.param == "polls":
        monkeypatch.setattr("tubeq_spark.storage.locks.table_lock.fcntl", None)
    return str(request.param)


def test_acquire_when_it_is_entered_twice_is_free_after_the_second_release(
    kind: str, path: Path, lock: LockFile
) -> None:
    with lock.holding():
        with lock.holding():
            assert not is_free(path)
        assert not is_free(path)
    assert is_free(path)


def test_acquire_when_another_holds_it_prepares_once_before_it_is_there(path: Path) -> None:
    steps: list[str] = []
    is_next = threading.Event()

    def prepare() -> None:
        steps.append("prepared")
        is_next.set()

    def second() -> None:
        with LockFile(path).holding(prepare):
            steps.append("second")

    with ThreadPoolExecutor(1) as pool:
        with LockFile(path).holding(prepare):
            assert not steps
            waiting = pool.submit(second)
            assert is_next.wait(WAIT)
            steps.append("first")
        waiting.result(WAIT)
    assert steps == ["prepared", "first", "second"]


def test_acquire_when_its_last_holder_asks_again_is_the_waiting_ones_first(
    kind: str, path: Path, lock: LockFile
) -> None:
    steps: list[str] = []

    def second() -> None:
        with LockFile(path).holding():
            steps.append("second")

    with ThreadPoolExecutor(1) as pool:
        with lock.holding():
            waiting = pool.submit(second)
            until = time.monotonic() + WAIT
            while is_free(path.with_suffix(".turn")):
                assert time.monotonic() < until
        with lock.holding():
            steps.append("first")
        waiting.result(WAIT)
    assert steps == ["second", "first"]


def test_acquire_when_the_file_is_removed_meanwhile_locks_the_new_one(
    path: Path, lock: LockFile
) -> None:
    is_next = threading.Event()

    def second() -> None:
        with LockFile(path).holding(is_next.set):
            assert not is_free(path)

    with ThreadPoolExecutor(1) as pool:
        with lock.holding():
            waiting = pool.submit(second)
            assert is_next.wait(WAIT)
            path.unlink()
        waiting.result(WAIT)
    assert is_free(path)


def test_release_when_the_system_fails_warns_and_closes_the_file(
    path: Path,
    lock: LockFile,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch, lock.holding():
        patch.setattr("tubeq_spark.storage.locks.table_lock.fcntl.flock", fails)
    assert "could not be released" in caplog.text
    assert is_free(path)

    with lock.holding():
        assert not is_free(path)
    assert is_free(path)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_lock_when_its_process_is_forked_ends_with_the_parent(path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    # The child has left the block, and waits.
    assert parent.stdout.readline() == b"child\n"
    assert not is_free(path)
    parent.kill()
    parent.wait(WAIT)
    assert is_free(path)
    parent.stdin.close()
    assert parent.stdout.read() == b"end\n"
    parent.stdout.close()


@pytest.mark.parametrize("refuse", [OSError, KeyboardInterrupt])
def test_acquire_when_it_is_interrupted_at_the_end_holds_nothing(
    path: Path, lock: LockFile, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[], BaseException]
) -> None:
    # The file of the line is closed when the lock file is had already.
    closes = iter([refuse()])
    close = __import__("os").close

    def interrupted(file: int) -> None:
        close(file)
        error = next(closes, None)
        if error is not None:
            raise error

    monkeypatch.setattr("tubeq_spark.storage.locks.table_lock.os.close", interrupted)
    with pytest.raises(type(refuse())), lock.holding():
        pass
    monkeypatch.undo()

    assert is_free(path)


_FORKED = """
import os, sys
from pathlib import Path
from tubeq_spark import StoreError
from tubeq_spark.storage.locks.table_lock import LockFile

lock_file = LockFile(Path(sys.argv[1]))
with lock_file.holding():
    pass
if os.fork() == 0:
    try:
        with lock_file.holding():
            pass
    except StoreError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(0)
_, status = os.wait()
with lock_file.holding():
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_acquire_in_a_forked_process_is_refused(path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _FORKED, str(path)], check=False)
    assert ended.returncode == 7
