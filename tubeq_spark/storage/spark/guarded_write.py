"""Writes to a program's own Delta tables, with a lock between processes as for the queue's tables.

A write to such a table may take as long as the work whose results it stores. So threads of one process do not wait
for each other; within one JVM Delta itself detects their conflicts. The lock file and the note beside it are
those of a `TableLock`.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException

from tubeq_spark.clock import Clock, RetryWaits, SystemClock
from tubeq_spark.errors import CommitUnknownError, ConflictError
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.engine import Outcome
from tubeq_spark.storage.location import Location, identifier, local_directory, path_table
from tubeq_spark.storage.locks.committer import Committer, JvmNote, Processes, is_answered
from tubeq_spark.storage.locks.table_lock import LOCK_SUFFIX, LockFile
from tubeq_spark.storage.spark.conflicts import (
    classify,
    is_from_engine,
    is_missing_table,
    is_unreachable,
)
from tubeq_spark.storage.spark.jvm import committer_of, is_classic
from tubeq_spark.storage.spark.open_location import local_place
from tubeq_spark.storage.store.local_files import using

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


#: Retries after a conflict with another commit to the table.
_RETRY_WAITS = RetryWaits(attempts=20, seconds=60.0, first=0.1, most=3.0)


class ProcessLock:
    """The lock file of one table, held from the first writer of the process to the last."""

    def __init__(
        self, lock_file: Path, wall: Clock | None = None, here: Processes | None = None
    ) -> None:
        """Guard a table.

        Args:
            lock_file: The lock file, which excludes other processes.
            wall: The clock; real time by default.
            here: The processes of this host; by default those of the system.
        """
        # Another thread may release the lock than the one that has acquired it.
        self._file = LockFile(lock_file)
        self._note = JvmNote(lock_file, wall, here)
        self._state = threading.Lock()
        self._writers = 0
        #: Whether all statements of these writers are known to have ended.
        self._have_ended = True

    @contextmanager
    def holding(self, committer: Callable[[], Committer]) -> Iterator[None]:
        """Run a statement while other processes are excluded.

        Args:
            committer: Returns the JVM that will commit, which is one for all threads of the process.

        Raises:
            StoreError: Another JVM may be committing, and did not end within the wait; or
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
            if not self._writers:
                # There is no writer that needs this thread's lock `_state` to leave, so waiting here is safe.
                with using(self._file.path):
                    self._file.acquire()
                try:
                    self._note.wait_for_others(jvm)
                    self._note.begin(jvm)
                except BaseException:
                    self._file.release()
                    raise
                self._have_ended = True
            self._writers += 1

    def _leave(self, *, has_ended: bool) -> None:
        with self._state:
            self._have_ended &= has_ended
            self._writers -= 1
            if self._writers:
                return
            try:
                self._note.end(has_ended=self._have_ended)
            finally:
                self._file.release()


def _is_of_storage(error: Exception) -> bool:
    """Whether an error may come from a running statement, and not from the program's code."""
    own = (CommitUnknownError, OSError, EOFError)
    return isinstance(error, own) or is_from_engine(error) or is_unreachable(error)


_locks: dict[Path, ProcessLock] = {}
_locks_lock = threading.Lock()


def _process_lock(table: Path | None) -> ProcessLock | None:
    """Return the lock of a table on local files: one object for each process. `None` is a table elsewhere.

    Raises:
        FileError: The directory of lock files cannot be made; nothing is written.
    """
    if table is None:
        return None
    lock_file = table.parent / LOCKS / f"{table.name}{LOCK_SUFFIX}"
    with _locks_lock:
        if lock_file not in _locks:
            with using(lock_file.parent):
                lock_file.parent.mkdir(parents=True, exist_ok=True)
            _locks[lock_file] = ProcessLock(lock_file)
        return _locks[lock_file]


T = TypeVar("T")


def guarded_write(spark: SparkSession, table: str, write: Callable[[], T]) -> T:
    """Run a write to a Delta table; on local files no other process can overwrite its commit.

    Hadoop's rename on a local file system overwrites. So if two processes commit the same version,
    one commit is lost without an error. This function holds the table lock while the write runs, a
    file in `_tubeq_locks` beside the table, as the queue does for its own tables. All writers of
    the table must use this function. Threads of this process can write in parallel. On other
    storage, and for a server of Spark Connect, it locks nothing.

    A table of a catalog that does not exist yet cannot be locked: create it with IF NOT EXISTS.

    Args:
        spark: The session that writes.
        table: A path, a URI, or a name such as `catalog.schema.table`; the table need not exist
            yet.
        write: Makes at most one commit to it. It is called again after a conflict: 20 times, for 60
            seconds at most.

    Returns:
        The result of `write`.

    Raises:
        InvalidOptionError: `table` is none of these.
        ConflictError: The write lost a conflict each time; nothing was written.
        StoreError: The table cannot be locked: the lock file cannot be created, or the JVM of a
            killed process may still be committing. Nothing was written.

    Commits: those of `write`.
    """
    lock = _lock_of(spark, Location.parse(table))
    clock = SystemClock()
    # The time for retries begins at the first conflict, because a write may take long.
    began: list[float] = []
    # Jitter needs no secrets.
    waits = _RETRY_WAITS.waits(lambda: clock.monotonic() - began[0], random.random)
    while True:
        try:
            if lock is None:
                return write()
            with lock.holding(lambda: committer_of(spark)):
                return write()
        except Exception as error:
            if classify(error) is not Outcome.CONFLICT:
                raise
            began.append(clock.monotonic())
            wait = next(waits, None)
            if wait is None:
                msg = f"{table}: others committed first, retries used up; nothing was written"
                raise ConflictError(msg) from error
        clock.sleep(wait)


#: The locks of existing tables, by their names in a session.
_known: WeakKeyDictionary[SparkSession, dict[str, ProcessLock | None]] = WeakKeyDictionary()


def _lock_of(spark: SparkSession, place: Location) -> ProcessLock | None:
    """The lock of a table; `None` if its storage refuses the second of two commits by itself."""
    if not is_classic(spark):
        # A client of Spark Connect cannot lock the files of its server.
        return None
    known = _known.setdefault(spark, {})
    if place.text in known:
        return known[place.text]
    name = identifier(*place.parts) if place.in_catalog else path_table(place.text)
    try:
        location = str(spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"])
    except AnalysisException as error:
        if not is_missing_table(error):
            raise
        return _process_lock(local_place(spark, place))
    return known.setdefault(place.text, _process_lock(local_directory(location.rstrip("/"))))
