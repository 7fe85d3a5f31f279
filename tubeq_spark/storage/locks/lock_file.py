"""The lock file between processes, and the line of processes that wait for it.

A process that asks again at once would always be faster than the waiting ones. So processes wait in
line, at a second file beside the lock file. Only the first in line waits for the lock file, and
when it has the lock, it lets the next one move up. Both waits are those of the operating system,
which wakes the next process; if the system has no such waits, the process polls the lock file. The
first in line has time to prepare its work.

After each change of the holder, the new one must read the commits of the others. So a process that
mostly asks again at once keeps the lock file for a moment after each release, until it has had it
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

#: How the file ends at which processes wait in line.
TURN_SUFFIX = ".turn"
#: Seconds between two tries to get the lock file, where the system does not wake us.
_POLL = 0.003
#: Seconds that a process may have it, from turn to turn, before the line goes on.
STAY = 0.05
#: A process that asks again within this many seconds asks "at once".
_AT_ONCE = 0.001
#: How often more it asked at once than not, of late, until it is expected to do so again.
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
        #: When it was released last, and until when it may be kept.
        self._released = self._until = float("-inf")
        #: How often more it was asked for at once than not, of late.
        self._returns = 0
        #: What lets it go in a moment, while it is kept for whoever of this process asks at once.
        self._kept: threading.Timer | None = None
        #: Held to change that.
        self._keeping = threading.Lock()
        #: Whether the system has failed to release it.
        self._is_left = False
        _lock_files.add(self)

    @functools.cached_property
    def _file(self) -> FileLock:
        """The lock, made when it is used: who looks at many tables commits to few of them."""
        # thread_local=False: whoever uses it lets in one thread at a time.
        return FileLock(self.path, thread_local=False)

    def acquire(self, prepare: Callable[[], None] = _nothing) -> None:
        """Wait until this process holds it.

        Args:
            prepare: Called while the first in line waits, which may raise nothing.

        Raises:
            OSError: It cannot be had at all.
            StoreError: It is of a process that this one was forked from.
        """
        if os.getpid() != self._process:
            # It has the numbers and the session of that one as well.
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
            # Interrupted on the last steps.
            if self._file.is_locked:
                self._file.release()
            raise

    def release(self) -> None:
        """Release it to the next process, after as many releases as acquisitions."""
        stays = False
        try:
            stays = self._stays()
        finally:
            # Interrupted as well.
            if not stays:
                with self._keeping:
                    self._kept = None
                    self._release()
        if self._polls and not self._file.is_locked:
            # Let them be faster than us for once.
            self._wall.sleep(2 * _POLL)

    @contextmanager
    def holding(self, prepare: Callable[[], None] = _nothing) -> Iterator[None]:
        """Hold it for a block; argument as of `acquire`."""
        self.acquire(prepare)
        try:
            yield
        finally:
            self.release()

    def let_go(self, by: threading.Timer | None = None) -> None:
        """Stop keeping it for this process.

        Args:
            by: What lets it go; it does nothing where it has been taken up. Anything by default.
        """
        with self._keeping:
            kept = self._kept
            if kept is not None and by in {None, kept}:
                self._kept = None
                self._release()
                kept.cancel()

    def _release(self) -> None:
        """Release it once; where the system fails, whoever acquires it next does so before.

        Raises:
            OSError: The system fails.
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
                # There are no new threads in a process that ends.
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
        waits: Whether it is waited for.

    Raises:
        NoWaitsError: There is no such lock.
        BlockingIOError: Another has it, and is not waited for.
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


#: All of this process.
_lock_files: WeakSet[LockFile] = WeakSet()


def _let_all_go() -> None:
    for lock_file in list(_lock_files):
        lock_file.let_go()


if hasattr(os, "register_at_fork"):
    # Otherwise a child process would hold the kept lock, too.
    os.register_at_fork(before=_let_all_go)
