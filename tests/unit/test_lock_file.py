"""The lock file of a table: who holds it, who waits for it, and in which order these get it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from filelock import FileLock, Timeout

from tubeq_spark.storage.locks.lock_file import STAY, LockFile
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
from tubeq_spark.storage.locks.lock_file import LockFile

lock = LockFile(Path(sys.argv[1]), SystemClock())
lock.acquire()
print("has it", flush=True)
sys.stdin.readline()
"""

#: Keeps the lock file for a moment that does not end by itself, and is forked.
FORKING = """
import os, sys, threading
from pathlib import Path
from tubeq_spark.storage.locks import lock_file
from tubeq_spark.testing import ManualClock
from tests.unit.test_lock_file import Moments, Waiting, ask_at_once, is_free

path = Path(sys.argv[1])
lock_file.threading.Timer = Moments()
lock = lock_file.LockFile(path, ManualClock())
ask_at_once(lock)
lock.acquire()
with Waiting(path):
    lock.release()
    kept = "free" if is_free(path) else "kept"
    if not os.fork():
        os._exit(0)
    os.wait()
print(kept + ", then " + ("free" if is_free(path) else "kept"))
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


def fails(_lock: FileLock) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def no_fcntl(name: str) -> None:
    raise ImportError(name)


@pytest.fixture(params=["waits", "polls"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the system has locks that can be waited for."""
    if request.param == "polls":
        monkeypatch.setattr("tubeq_spark.storage.locks.lock_file.importlib.import_module", no_fcntl)
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


class Moments:
    """In place of `threading.Timer`: each moment ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Moment] = []
        self.refuse: BaseException | None = None

    def __call__(self, _seconds: float, end: Callable[[], None]) -> Moment:
        return Moment(self, end)


class Moment:
    """One of them."""

    def __init__(self, moments: Moments, end: Callable[[], None]) -> None:
        self._moments = moments
        self.end = end

    def start(self) -> None:
        if self._moments.refuse is not None:
            raise self._moments.refuse
        self._moments.begun.append(self)

    def cancel(self) -> None:
        """It ends all the same, as one that is cancelled too late."""


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    moments = Moments()
    monkeypatch.setattr("tubeq_spark.storage.locks.lock_file.threading.Timer", moments)
    return moments


class Waiting:
    """Another process, which waits for the lock file, first in line, and then lets it go."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._done = self._pool.submit(self._wait)
        until = time.monotonic() + WAIT
        while is_free(self._path.with_suffix(".turn")):
            assert time.monotonic() < until
        return self

    def _wait(self) -> None:
        with LockFile(self._path, ManualClock()).holding():
            pass

    def is_done(self) -> bool:
        """Whether it had the lock file, as far as it was free."""
        return not wait([self._done], 0.1).not_done

    def __exit__(self, *_: object) -> None:
        self._done.result(WAIT)
        self._pool.shutdown()


def ask_at_once(lock: LockFile) -> None:
    """As a program that runs one verb after the other."""
    for _ in range(4):
        with lock.holding():
            pass


def test_release_when_others_wait_and_its_holder_asks_at_once_of_late_keeps_it_for_a_moment(
    path: Path, lock: LockFile, moments: Moments
) -> None:
    ask_at_once(lock)
    lock.acquire()
    with Waiting(path) as waiting:
        lock.release()
        with lock.holding():
            assert not is_free(path)
        assert not waiting.is_done()
        # That of the first release: it was asked for since.
        moments.begun[0].end()
        assert not is_free(path)
        moments.begun[1].end()


def test_release_when_its_holder_had_it_for_long_lets_whoever_waits_come_first(
    path: Path, moments: Moments
) -> None:
    clock = ManualClock()
    lock = LockFile(path, clock)
    for _ in range(20):
        ask_at_once(lock)
        lock.acquire()
        with Waiting(path):
            clock.advance(2 * STAY)
            lock.release()
            lock.acquire()
        lock.release()
    assert not moments.begun


def test_release_when_its_holder_works_in_between_lets_whoever_waits_come_first(
    path: Path, moments: Moments
) -> None:
    clock = ManualClock()
    lock = LockFile(path, clock)
    for _ in range(6):
        # A take at once after an ack, but no ack at once after a take.
        for seconds in (0.0, 0.002):
            clock.advance(seconds)
            lock.acquire()
            with Waiting(path):
                lock.release()
    assert not moments.begun


def test_release_when_nobody_waits_is_free_at_once(
    path: Path, lock: LockFile, moments: Moments
) -> None:
    ask_at_once(lock)
    assert is_free(path)
    assert not moments.begun


def test_release_when_it_is_kept_and_nobody_asks_is_whoever_waits(
    path: Path, lock: LockFile
) -> None:
    ask_at_once(lock)
    lock.acquire()
    with Waiting(path):
        lock.release()


@pytest.mark.parametrize("refuse", [RuntimeError, KeyboardInterrupt])
def test_release_when_it_cannot_be_kept_is_free(
    path: Path, lock: LockFile, moments: Moments, refuse: type[BaseException]
) -> None:
    ask_at_once(lock)
    lock.acquire()
    moments.refuse = refuse()
    # There are no new threads in a process that ends; and it may be interrupted anywhere.
    raised = nullcontext() if refuse is RuntimeError else pytest.raises(refuse)
    with Waiting(path), raised:
        lock.release()
    assert is_free(path)


def test_release_when_the_system_fails_is_made_good_by_the_next_release(
    path: Path, lock: LockFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock.acquire()
    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "release", fails)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            lock.release()
    assert not is_free(path)

    with lock.holding():
        assert not is_free(path)
    assert is_free(path)


@pytest.mark.processes
def test_release_when_the_process_is_forked_keeps_it_no_longer(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=WAIT,
    )
    assert done.stdout == b"kept, then free\n"


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

    monkeypatch.setattr("tubeq_spark.storage.locks.lock_file.os.close", interrupted)
    with pytest.raises(type(refuse())):
        lock.acquire()
    monkeypatch.undo()

    assert is_free(path)


def test_acquire_when_it_cannot_be_had_at_all_raises(tmp_path: Path) -> None:
    (tmp_path / "work.lock").mkdir()
    with pytest.raises(OSError, match=r"work\.lock"):
        LockFile(tmp_path / "work.lock", ManualClock()).acquire()


_FORKED = """
import os, sys
from pathlib import Path
from tubeq_spark import StoreError, SystemClock
from tubeq_spark.storage.locks.lock_file import LockFile

lock_file = LockFile(Path(sys.argv[1]), SystemClock())
with lock_file.holding():
    pass
if os.fork() == 0:
    try:
        lock_file.acquire()
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
