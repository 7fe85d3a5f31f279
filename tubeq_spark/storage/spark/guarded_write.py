"""Writes to Delta tables of a program's own, kept apart as the queue keeps its own."""

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

#: Others may commit to the table at the same moment: then ours comes next.
_BACKOFF = Backoff(attempts=20, seconds=60.0, first=0.1, most=3.0)


def guarded_write(spark: SparkSession, table: str, write: Callable[[], T]) -> T:
    """Run a write to a Delta table, such that on local files no other process overwrites its commit.

    Hadoop's rename on a local file system overwrites, so two processes that commit one version lose
    one of the two without a word. While the write runs it holds the table lock, a file in
    `_tubeq_locks` beside the table, as the queue does with its own tables: all writers must come
    through here. Threads of this process go on side by side. On other storage nothing is locked.

    A table of a catalog that is not there yet cannot be locked: create it with IF NOT EXISTS.

    Args:
        spark: The session that writes.
        table: A path, a URI, or a name such as `catalog.schema.table`; it need not be there yet.
        write: Makes one commit to it, or none. Called again after a conflict: 20 times, for 60 seconds
            at most.

    Returns:
        What `write` returns.

    Raises:
        InvalidOptionError: `table` is no such thing.
        ConflictError: Others committed first each time; nothing was written.
        StoreError: The lock cannot be had: its file cannot be made, or a process that was killed may
            still be committing. Nothing was written.

    Commits: those of `write`.
    """
    lock = _lock_of(spark, Location.parse(table))
    clock = SystemClock()
    # From the first conflict on: a write may take as long as it likes.
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


#: The locks of tables that are there, by the names that a session has for them.
_known: WeakKeyDictionary[SparkSession, dict[str, ProcessLock | None]] = WeakKeyDictionary()


def _lock_of(spark: SparkSession, place: Location) -> ProcessLock | None:
    """What keeps other processes from a table; `None` where its storage does."""
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
    # The disk of a Connect server need not be this host's.
    if directory is not None and directory.is_dir():
        lock = _at(directory)
    return known.setdefault(place.text, lock)


def _lock_of_new(spark: SparkSession, directory: Path | None) -> ProcessLock | None:
    if directory is None or not (is_classic(spark) or directory.parent.is_dir()):
        return None
    # A directory that cannot be made here is on another host, or the write fails of it as well.
    with suppress(StoreError):
        return _at(directory)
    return None


def _at(table: Path) -> ProcessLock:
    try:
        return process_lock(table.parent / LOCKS, table.name)
    except OSError as error:
        msg = f"no lock file can be made in {table.parent / LOCKS}, so nothing is written: {reason_of(error)}"
        raise StoreError(msg) from error
