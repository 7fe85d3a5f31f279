"""Writes to a program's own Delta tables, with the same locks as the queue's tables."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import ConflictError, StoreError
from tubeq_spark.rules.backoff import Backoff
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.storage.location import Location, local_directory
from tubeq_spark.storage.opened_location import LOCKS
from tubeq_spark.storage.outcome import Outcome
from tubeq_spark.storage.spark.conflicts import classify, is_missing_table
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.storage.spark.open_location import local_place
from tubeq_spark.storage.spark.process_lock import ProcessLock, process_lock
from tubeq_spark.storage.spark.session_committer import committer_of
from tubeq_spark.storage.table_names import identifier, path_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["guarded_write"]

T = TypeVar("T")

#: Retries after a conflict with another commit to the table.
_BACKOFF = Backoff(attempts=20, seconds=60.0, first=0.1, most=3.0)


def guarded_write(spark: SparkSession, table: str, write: Callable[[], T]) -> T:
    """Run a write to a Delta table; on local files no other process can overwrite its commit.

    Hadoop's rename on a local file system overwrites. So if two processes commit the same version,
    one commit is lost without an error. This function holds the table lock while the write runs, a
    file in `_tubeq_locks` beside the table, as the queue does for its own tables. All writers of
    the table must use this function. Threads of this process can write in parallel. On other
    storage it locks nothing.

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
    # Counted from the first conflict, because a write may take long.
    began: list[float] = []
    # Jitter needs no secrets.
    waits = _BACKOFF.waits(lambda: clock.monotonic() - began[0], random.random)
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
    """The lock of a table; `None` if its storage itself refuses the second of two commits."""
    known = _known.setdefault(spark, {})
    if place.text in known:
        return known[place.text]
    name = identifier(*place.parts) if place.in_catalog else path_table(place.text)
    try:
        location = str(spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"])
    except AnalysisException as error:
        if not is_missing_table(error):
            raise
        return _lock_of_new(spark, local_place(spark, place))
    directory = local_directory(location.rstrip("/"))
    lock = None
    # The disk of a Spark Connect server may be on another host.
    if directory is not None and directory.is_dir():
        lock = _at(directory)
    return known.setdefault(place.text, lock)


def _lock_of_new(spark: SparkSession, directory: Path | None) -> ProcessLock | None:
    if directory is None or not (is_classic(spark) or directory.parent.is_dir()):
        return None
    # If this directory cannot be created, it is on another host, or the write will fail, too.
    with suppress(StoreError):
        return _at(directory)
    return None


def _at(table: Path) -> ProcessLock:
    try:
        return process_lock(table.parent / LOCKS, table.name)
    except OSError as error:
        msg = f"no lock file can be made in {table.parent / LOCKS}, so nothing is written: {reason_of(error)}"
        raise StoreError(msg) from error
