"""Writes to a program's own Delta tables, with a lock file between processes.

A write to such a table may take as long as the work whose results it stores. So threads of one process do not wait
for each other; within one JVM Delta itself detects their conflicts.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import ConflictError
from tubeq_spark.model.times import RetryWaits
from tubeq_spark.storage.disk import using
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.locks.lock_file import LockFile
from tubeq_spark.storage.locks.table_lock import LOCK_SUFFIX
from tubeq_spark.storage.outcome import Outcome
from tubeq_spark.storage.spark.conflicts import classify
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.storage.spark.open_location import local_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Retries after a conflict with another commit to the table.
_RETRY_WAITS = RetryWaits(attempts=20, seconds=60.0, first=0.1, most=3.0)


class WriterLock:
    """The lock file of one table, held from the first writer of the process to the last."""

    def __init__(self, lock_file: Path) -> None:
        """Use a lock file, which may not exist yet."""
        self._file = LockFile(lock_file)
        #: Held by a thread that enters or leaves. If it waits for another process, no thread has entered.
        self._moving = threading.Lock()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Exclude other processes during a block.

        Raises:
            FileError: The lock file cannot be used.
        """
        with self._moving, using(self._file.path):
            self._file.acquire()
        try:
            yield
        finally:
            with self._moving:
                self._file.release()


_locks: dict[Path, WriterLock] = {}


def _lock_of(spark: SparkSession, place: Location) -> WriterLock | None:
    """The lock of a table: one object for each process. `None` if it has no path on local files of this host."""
    table = local_place(spark, place) if is_classic(spark) else None
    if table is None:
        return None
    lock_file = table.parent / LOCKS / f"{table.name}{LOCK_SUFFIX}"
    return _locks.setdefault(lock_file, WriterLock(lock_file))


T = TypeVar("T")


def guarded_write(spark: SparkSession, table: str, write: Callable[[], T]) -> T:
    """Run a write to a Delta table; on local files no other process can overwrite its commit.

    Hadoop's rename on a local file system overwrites. So if two processes commit the same version,
    one commit is lost without an error. This function holds a lock file while the write runs, in
    `_tubeq_locks` beside the table. All writers of the table must use this function. Threads of this
    process can write in parallel. On other storage, for a server of Spark Connect, and for a table of a
    catalog, it locks nothing.

    If only the Python process is killed during a write, the lock ends, but its JVM may still commit
    until it ends, too, a second later.

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
        StoreError: The lock file cannot be used. Nothing was written.

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
            with nullcontext() if lock is None else lock.holding():
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
