"""The file that keeps processes apart, and the line of those that wait for it.

Who asks again at once would always be faster than those that wait. So processes wait in line, at a
second file beside the lock file: its first alone waits for the lock file, and lets the next one come
up when it has that. Both waits are the system's, which wakes whoever is next; where there are no such
waits the lock file is asked for now and then. The first in line has time to prepare for what it will do.
"""

from __future__ import annotations

import importlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark.clock import Clock

__all__ = ["TURN_SUFFIX", "LockFile"]

#: How the file ends at which processes wait in line.
TURN_SUFFIX = ".turn"
#: Seconds between two tries to get the lock file, where the system does not wake us.
_POLL = 0.003


def _nothing() -> None:
    """Prepare nothing."""


class LockFile:
    """The lock file of a table, held by one process at a time; may be entered again by its holder."""

    def __init__(self, path: Path, wall: Clock) -> None:
        """Use a lock file, which need not be there; `wall` is real time."""
        self.path = path
        # thread_local=False: whoever uses it lets in one thread at a time.
        self._file = FileLock(path, thread_local=False)
        self._turn = path.with_suffix(TURN_SUFFIX)
        self._wall = wall
        self._polls = False

    def acquire(self, prepare: Callable[[], None] = _nothing) -> None:
        """Wait until it is ours.

        Args:
            prepare: Called while the first in line waits, which may raise nothing.

        Raises:
            OSError: It cannot be had at all.
        """
        if self._is_held():
            self._file.acquire()
            return
        try:
            self._wait(prepare)
        except BaseException:
            # Interrupted on the last steps.
            if self._is_held():
                self._file.release()
            raise

    def release(self) -> None:
        """Let the next one have it, once it was released as often as it was acquired."""
        self._file.release()
        if self._polls and not self._is_held():
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

    def _is_held(self) -> bool:
        return self._file.is_locked

    def _wait(self, prepare: Callable[[], None]) -> None:
        if not self._polls:
            try:
                self._wait_in_line(prepare)
            except NoWaitsError:
                self._polls = True
        if not self._is_held():
            self._file.acquire(poll_interval=_POLL)

    def _wait_in_line(self, prepare: Callable[[], None]) -> None:
        with _locked(self._turn):
            while True:
                try:
                    self._file.acquire(timeout=0)
                except Timeout:
                    prepare()
                    prepare = _nothing
                    # Until it is free. Nobody else is before it, but for programs without a line.
                    with _locked(self.path):
                        continue
                return


class NoWaitsError(Exception):
    """The system, or this file system, has no locks that can be waited for."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for a file's lock and hold it for a block.

    Raises:
        NoWaitsError: There is no such lock.
    """
    try:
        fcntl: Any = importlib.import_module("fcntl")
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    except (ImportError, OSError) as error:
        raise NoWaitsError from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise NoWaitsError from error
        try:
            yield
        finally:
            # Not by closing alone: a child of ours may have the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)
