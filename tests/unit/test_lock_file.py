"""The lock file of a table: who holds it, who waits for it, and in which order these get it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout

from tubeq_spark.storage.lock_file import LockFile
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
WAIT = 60.0

#: Takes the lock file, says so, and keeps it until it is killed.
HOLDER = """
import sys
from pathlib import Path
from tubeq_spark import SystemClock
from tubeq_spark.storage.lock_file import LockFile

lock = LockFile(Path(sys.argv[1]), SystemClock())
lock.acquire()
print("has it", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


@pytest.fixture
def lock(path: Path) -> LockFile:
    """As of one process: each object opens the files for itself, as processes do."""
    return LockFile(path, ManualClock())


def is_free(path: Path) -> bool:
    """Whether a program of an earlier version, which knows no line, could have it."""
    try:
        with FileLock(path, timeout=0):
            return True
    except Timeout:
        return False


def no_fcntl(name: str) -> None:
    raise ImportError(name)


@pytest.fixture(params=["waits", "polls"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the system has locks that can be waited for."""
    if request.param == "polls":
        monkeypatch.setattr("tubeq_spark.storage.lock_file.importlib.import_module", no_fcntl)
    return str(request.param)


def test_acquire_when_it_is_entered_twice_is_free_after_the_second_release(
    kind: str, path: Path, lock: LockFile
) -> None:
    with lock.holding():
        with lock.holding():
            assert not is_free(path)
        assert not is_free(path)
    assert is_free(path)


def test_acquire_when_another_holds_it_waits_for_its_release(kind: str, path: Path) -> None:
    steps: list[str] = []
    holds = threading.Event()

    def second() -> None:
        with LockFile(path, ManualClock()).holding():
            steps.append("second")

    with ThreadPoolExecutor(1) as pool:
        with LockFile(path, ManualClock()).holding():
            waiting = pool.submit(second)
            holds.wait(0.1)
            steps.append("first")
        waiting.result(WAIT)
    assert steps == ["first", "second"]


def test_acquire_when_another_holds_it_prepares_once_before_it_is_there(path: Path) -> None:
    steps: list[str] = []
    is_next = threading.Event()

    def prepare() -> None:
        steps.append("prepared")
        is_next.set()

    def second() -> None:
        with LockFile(path, ManualClock()).holding(prepare):
            steps.append("second")

    with ThreadPoolExecutor(1) as pool:
        with LockFile(path, ManualClock()).holding(prepare):
            assert not steps
            waiting = pool.submit(second)
            assert is_next.wait(WAIT)
            steps.append("first")
        waiting.result(WAIT)
    assert steps == ["prepared", "first", "second"]


def test_acquire_when_its_holder_asks_again_at_once_lets_whoever_waits_come_first(
    path: Path, lock: LockFile
) -> None:
    got: list[str] = []

    def wait() -> None:
        with LockFile(path, ManualClock()).holding():
            got.append("who waited")

    turn = path.with_suffix(".turn")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            got.clear()
            lock.acquire()
            waiting = pool.submit(wait)
            # Until it is the first of the line.
            until = time.monotonic() + WAIT
            while is_free(turn):
                assert time.monotonic() < until
            lock.release()
            with lock.holding():
                got.append("who asked again")
            waiting.result(WAIT)
            assert got == ["who waited", "who asked again"]


@pytest.mark.processes
def test_acquire_when_its_holder_is_killed_is_ours_at_once(path: Path, lock: LockFile) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"has it\n"
    assert not is_free(path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        holder.kill()
        holder.wait()
        waiting.result(WAIT)
    assert not is_free(path)
    lock.release()
    holder.stdin.close()
    holder.stdout.close()


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

    monkeypatch.setattr("tubeq_spark.storage.lock_file.os.close", interrupted)
    with pytest.raises(type(refuse())):
        lock.acquire()
    monkeypatch.undo()

    assert is_free(path)


def test_acquire_when_it_cannot_be_had_at_all_raises(tmp_path: Path) -> None:
    (tmp_path / "work.lock").mkdir()
    with pytest.raises(OSError, match=r"work\.lock"):
        LockFile(tmp_path / "work.lock", ManualClock()).acquire()
