"""Writes to a program's own Delta tables, under a table lock as for the queue's tables."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import AnalysisException

from tubeq_spark.clock import RetryWaits, SystemClock
from tubeq_spark.errors import CommitUnknownError, ConflictError
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.engine import Outcome
from tubeq_spark.storage.location import Location, identifier, local_directory
from tubeq_spark.storage.locks.table_lock import TableLock, table_lock_of
from tubeq_spark.storage.spark.conflicts import (
    classify,
    is_from_engine,
    is_missing_table,
    is_unreachable,
)
from tubeq_spark.storage.spark.jvm import committer_of, is_classic
from tubeq_spark.storage.spark.open_location import local_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


#: Retries after a conflict with another commit to the table. A write may take any time.
_RETRY_WAITS = RetryWaits(attempts=20, seconds=math.inf, first=0.1, most=3.0)


def _is_of_storage(error: Exception) -> bool:
    """Whether an error may come from a running statement, and not from the program's code."""
    own = (CommitUnknownError, OSError, EOFError)
    return isinstance(error, own) or is_from_engine(error) or is_unreachable(error)


T = TypeVar("T")


def guarded_write(spark: SparkSession, table: str, write: Callable[[], T]) -> T:
    """Run a write to a Delta table; on local files no other process can overwrite its commit.

    Hadoop's rename on a local file system overwrites. So if two processes commit the same version,
    one commit is lost without an error. This function holds the table lock while the write runs, a
    file in `_tubeq_locks` beside the table, as the queue does for its own tables. All writers of
    the table must use this function, and threads of this process write one after the other. On
    other storage, and for a server of Spark Connect, it locks nothing.

    A table of a catalog that does not exist yet cannot be locked: create it with IF NOT EXISTS.

    Args:
        spark: The session that writes.
        table: A path, a URI, or a name such as `catalog.schema.table`; the table need not exist
            yet.
        write: Makes at most one commit to it. It is called again after a conflict, 20 times at most.

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
    # Jitter needs no secrets.
    waits = _RETRY_WAITS.waits(lambda: 0.0, random.random)
    while True:
        try:
            return _guarded(spark, lock, write)
        except Exception as error:
            if classify(error) is not Outcome.CONFLICT:
                raise
            wait = next(waits, None)
            if wait is None:
                msg = f"{table}: others committed first, retries used up; nothing was written"
                raise ConflictError(msg) from error
        SystemClock().sleep(wait)


def _guarded(spark: SparkSession, lock: TableLock | None, write: Callable[[], T]) -> T:
    """Run a write under the lock of its table, if it has one."""
    if lock is None:
        return write()
    jvm = committer_of(spark)
    with lock.writing(lambda: jvm), lock.committing(lambda: jvm) as has_ended:
        try:
            return write()
        except Exception as error:
            if not _is_of_storage(error):
                # The program's own error: no statement is running.
                has_ended()
            raise


def _lock_of(spark: SparkSession, place: Location) -> TableLock | None:
    """The lock of a table; `None` if its storage refuses the second of two commits by itself.

    Raises:
        FileError: The directory of lock files cannot be made; nothing is written.
    """
    if not is_classic(spark):
        # A client of Spark Connect cannot lock the files of its server.
        return None
    table = local_place(spark, place)
    if place.in_catalog:
        try:
            detail = spark.sql(f"DESCRIBE DETAIL {identifier(*place.parts)}").collect()[0]
        except AnalysisException as error:
            if not is_missing_table(error):
                raise
            return None
        table = local_directory(str(detail["location"]).rstrip("/"))
    if table is None:
        return None
    return table_lock_of(f"file:{table.parent}", table.name, table.parent / LOCKS)
