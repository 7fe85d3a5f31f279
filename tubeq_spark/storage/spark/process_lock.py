"""Keeps other processes from a table, while threads of this process write to it in parallel.

It is for tables of programs, not of the queue. A write to such a table may take as long as the work
whose results it stores, so threads must not wait for each other; within one JVM Delta itself
detects their conflicts. The lock file and the note beside it are those of a `TableLock`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.storage.committer import CommitterFile
from tubeq_spark.storage.jvm_note import NOTE_SUFFIX, is_answered, wait_for_other_jvm, write_note
from tubeq_spark.storage.lock_file import LockFile
from tubeq_spark.storage.locking import LOCK_SUFFIX
from tubeq_spark.storage.processes import processes
from tubeq_spark.storage.spark.conflicts import is_from_engine, is_unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.committer import Committer
    from tubeq_spark.storage.processes import Processes

__all__ = ["ProcessLock", "process_lock"]


class ProcessLock:
    """The lock file of one table, held from the first writer of the process to the last."""

    def __init__(
        self, lock_file: Path, wall: Clock | None = None, here: Processes | None = None
    ) -> None:
        """Guard a table.

        Args:
            lock_file: Keeps out other processes.
            wall: Real time by default.
            here: What runs on this host, as the system tells by default.
        """
        self._wall = SystemClock() if wall is None else wall
        # The last writer need not be the thread that was the first one.
        self._file = LockFile(lock_file, self._wall)
        self._note = CommitterFile(lock_file.with_suffix(NOTE_SUFFIX))
        self._here = processes() if here is None else here
        self._state = threading.Condition()
        self._writers = 0
        #: In which JVM they write.
        self._jvm: Committer | None = None
        #: Whether a statement that was left in that JVM may still be running.
        self._is_left = False

    @contextmanager
    def holding(self, committer: Callable[[], Committer]) -> Iterator[None]:
        """Run a statement while other processes and writers of other JVMs are excluded.

        Args:
            committer: Tells the JVM that is going to commit.

        Raises:
            StoreError: Another JVM may be committing, and did not end while it was waited for; or
                the note cannot be written. The statement was not run.
        """
        self._enter(committer())
        has_ended = False
        try:
            yield
            has_ended = True
        except Exception as error:
            has_ended = is_answered(error) or not _is_of_storage(error)
            raise
        finally:
            self._leave(has_ended=has_ended)

    def _enter(self, jvm: Committer) -> None:
        with self._state:
            while self._jvm is not None and not self._jvm.is_same(jvm):
                self._state.wait()
            if not self._writers:
                # Nobody is in, so nobody waits for this one to let him out.
                self._acquire()
                try:
                    self._is_left = wait_for_other_jvm(
                        lambda: jvm, self._note, self._wall, self._here
                    )
                    if not self._is_left:
                        write_note(self._note, jvm)
                except BaseException:
                    self._file.release()
                    raise
                self._jvm = jvm
            self._writers += 1

    def _acquire(self) -> None:
        try:
            self._file.acquire()
        except OSError as error:
            msg = f"the lock file {self._file.path} cannot be had, nothing was written: {reason_of(error)}"
            raise StoreError(msg) from error

    def _leave(self, *, has_ended: bool) -> None:
        with self._state:
            self._is_left |= not has_ended
            self._writers -= 1
            if self._writers:
                return
            try:
                if not self._is_left:
                    self._note.clear()
            finally:
                self._jvm = None
                self._file.release()
                self._state.notify_all()


def _is_of_storage(error: Exception) -> bool:
    """Whether an error may come from a running statement, and not from the program's code."""
    own = (CommitUnknownError, OSError, EOFError)
    return isinstance(error, own) or is_from_engine(error) or is_unreachable(error)


_locks: dict[Path, ProcessLock] = {}
_locks_lock = threading.Lock()


def process_lock(directory: Path, name: str) -> ProcessLock:
    """Return the lock of a table: one object for each process.

    Args:
        directory: Where lock files go.
        name: The table.

    Raises:
        OSError: The directory cannot be made.
    """
    lock_file = directory / f"{name}{LOCK_SUFFIX}"
    with _locks_lock:
        if lock_file not in _locks:
            directory.mkdir(parents=True, exist_ok=True)
            _locks[lock_file] = ProcessLock(lock_file)
        return _locks[lock_file]
