"""The lock file between processes, and the line of processes that wait for it.

A process that asks again at once would always be faster than waiting processes. So processes wait in
line, at a second file beside the lock file. Only the first in line waits for the lock file. When it has
the lock, it lets the next one move up. Both waits are blocking locks of the operating system,
which wakes the next process. If the system has no blocking locks, the process polls the lock file. The
first in line can prepare its work while it waits.

A new holder must read the commits of the others. So a process that
mostly asks again at once keeps the lock file for a moment after each release, until it has had the lock
for long enough. If several programs run one verb after the other, each runs a few verbs before the
next program has its turn.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from filelock import FileLock, Timeout

from tubeq_spark.model.refusals import was_forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark.clock import Clock

#: The suffix of the file at which processes wait in line.
TURN_SUFFIX = ".turn"
#: Seconds between two attempts to get the lock file, if the system does not wake the process.
_POLL = 0.003
#: Seconds for which a process may keep the lock over several turns, before the next one in line gets it.
STAY = 0.05
#: A process that asks again within so many seconds asks "at once".
_AT_ONCE = 0.001
#: A score counts requests at once against later ones. From the first value on the process is expected to ask at once
#: again; the second value is the highest score.
_OFTEN, _MOST = 2, 3


def _nothing() -> None:
    """Prepare nothing."""


class LockFile:
    """The lock file of a table, held by one process at a time; its holder may enter it again."""

    def __init__(self, path: Path, wall: Clock) -> None:
        """Use a lock file, which may not exist yet; `wall` is real time."""
        self.path = path
        self._turn = path.with_suffix(TURN_SUFFIX)
        self._process = os.getpid()
        self._wall = wall
        self._polls = False
        #: The time of the last release, and the time until which the lock may be kept.
        self._released = self._until = float("-inf")
        #: The score of requests at once.
        self._returns = 0
        #: The timer that releases a lock which is kept for a thread of this process that asks at once.
        self._kept: threading.Timer | None = None
        #: Held to change `_kept`.
        self._keeping = threading.Lock()
        #: Whether the system has failed to release it.
        self._is_left = False
        _lock_files.add(self)

    @functools.cached_property
    def _file(self) -> FileLock:
        """The lock, created when it is first used, because a process commits to few of the tables that it reads."""
        # thread_local=False: the callers let in one thread at a time.
        return FileLock(self.path, thread_local=False)

    def acquire(self, prepare: Callable[[], None] = _nothing) -> None:
        """Wait until this process holds it.

        Args:
            prepare: Called while this process is the first in line. It must not raise.

        Raises:
            OSError: The lock cannot be used.
            StoreError: This process was forked from the one that uses the lock.
        """
        if os.getpid() != self._process:
            # A forked process has the ids and the session of its parent, too.
            raise was_forked(os.getpid(), self._process, f"uses {self.path.parent}")
        with self._keeping:
            if self._is_left:
                self._release()
            kept, self._kept = self._kept, None
            is_entered = kept is None and self._file.is_locked
        if is_entered:
            self._file.acquire()
            return
        try:
            self._count_return()
            if kept is not None:
                kept.cancel()
                return
            self._wait(prepare)
            self._until = self._wall.monotonic() + STAY
        except BaseException:
            # The acquisition was interrupted in its last steps.
            if self._file.is_locked:
                self._file.release()
            raise

    def release(self) -> None:
        """Release it to the next process, after as many releases as acquisitions."""
        stays = False
        try:
            stays = self._stays()
        finally:
            # After an interrupt the lock must be released, too.
            if not stays:
                with self._keeping:
                    self._kept = None
                    self._release()
        if self._polls and not self._file.is_locked:
            # The waiting processes get the lock first for once.
            self._wall.sleep(2 * _POLL)

    @contextmanager
    def holding(self, prepare: Callable[[], None] = _nothing) -> Iterator[None]:
        """Hold it during a block; argument as for `acquire`."""
        self.acquire(prepare)
        try:
            yield
        finally:
            self.release()

    def let_go(self, by: threading.Timer | None = None) -> None:
        """Stop keeping it for this process.

        Args:
            by: The timer that calls this. It does nothing if the lock was taken up again meanwhile. `None` releases
                the lock in any case.
        """
        with self._keeping:
            kept = self._kept
            if kept is not None and by in {None, kept}:
                self._kept = None
                self._release()
                kept.cancel()

    def _release(self) -> None:
        """Release it once. If the system fails, the next acquisition releases it first.

        Raises:
            OSError: The system has failed.
        """
        try:
            self._file.release()
        except OSError:
            self._is_left = True
            raise
        self._is_left = False

    def _count_return(self) -> None:
        at_once = self._wall.monotonic() - self._released < _AT_ONCE
        self._returns = min(self._returns + 1, _MOST) if at_once else max(self._returns - 1, 0)

    def _stays(self) -> bool:
        """Keep it for a moment if others wait but this process will likely ask again at once."""
        if self._file.lock_counter > 1:
            return False
        self._released = self._wall.monotonic()
        if self._returns < _OFTEN or self._released >= self._until or not self._is_waited_for():
            return False
        timer = threading.Timer(_AT_ONCE, lambda: self.let_go(timer))
        timer.daemon = True
        with self._keeping:
            try:
                timer.start()
            except RuntimeError:
                # A process that ends cannot start threads.
                return False
            self._kept = timer
        return True

    def _is_waited_for(self) -> bool:
        try:
            with _locked(self._turn, waits=False):
                return False
        except NoWaitsError:
            return False
        except BlockingIOError:
            return True

    def _wait(self, prepare: Callable[[], None]) -> None:
        if not self._polls:
            try:
                self._wait_in_line(prepare)
            except NoWaitsError:
                self._polls = True
        if not self._file.is_locked:
            self._file.acquire(poll_interval=_POLL)

    def _wait_in_line(self, prepare: Callable[[], None]) -> None:
        with _locked(self._turn):
            while True:
                try:
                    self._file.acquire(timeout=0)
                except Timeout:
                    prepare()
                    prepare = _nothing
                    # Wait until it is free. Only programs of earlier versions can come before this
                    # process.
                    with _locked(self.path):
                        continue
                return


class NoWaitsError(Exception):
    """The system, or this file system, has no blocking locks."""


@contextmanager
def _locked(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Hold a file's lock for a block.

    Args:
        path: The file.
        waits: Whether to wait for the lock.

    Raises:
        NoWaitsError: The system, or the file system, has no such locks.
        BlockingIOError: Another process has the lock, and `waits` is false.
    """
    try:
        fcntl: Any = importlib.import_module("fcntl")
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    except (ImportError, OSError) as error:
        raise NoWaitsError from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError as error:
            raise NoWaitsError from error
        try:
            yield
        finally:
            # Closing is not enough, because a child process may have the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


#: All lock files of this process.
_lock_files: WeakSet[LockFile] = WeakSet()


def _let_all_go() -> None:
    for lock_file in list(_lock_files):
        lock_file.let_go()


if hasattr(os, "register_at_fork"):
    # A child process would otherwise hold the kept locks, too.
    os.register_at_fork(before=_let_all_go)
