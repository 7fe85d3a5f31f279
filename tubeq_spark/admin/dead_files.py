"""Removes files that no kept version of a table needs, and the directories that they leave.

No verb depends on it, and it gives up if another commit comes first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.clock import US, SystemClock, limited_us, to_us
from tubeq_spark.storage.store.local_files import without_empty_directories
from tubeq_spark.storage.tables.schema import FENCE, LOG_CLEANUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.membership import Survey
    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.locks.table_lock import TableLock

log = logging.getLogger(__name__)

#: The key of the system tables. Ids of tubes are greater.
SYSTEM = 0
#: A removal that failed is tried again after `vacuum_hours`, divided by this.
_AGAIN = 24
#: The storage's clock, which dates commits, and the clocks of sweepers differ by at most this many microseconds.
CLOCKS = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables whose dead files are removed together.

    Attributes:
        key: Their key in notes: a tube's id, or `SYSTEM`.
        names: Their SQL names, each with the lock of its writers.
        since_us: When they were made.
    """

    key: int
    names: Sequence[tuple[str, TableLock]]
    since_us: int


class DeadFiles:
    """The removal of dead files by one sweep."""

    def __init__(self, queue: QueueContext, survey: Survey, now_us: int) -> None:
        """Remove files through a queue object, by the notes of earlier removals and at a moment."""
        self._queue, self._notes, self._now_us = queue, survey, now_us
        self._interval_us = limited_us(queue.config.vacuum_hours * 3600)

    def is_time(self, key: int, since_us: int) -> bool:
        """Whether enough time has passed for something to remove. Nothing is read.

        Args:
            key: The key of the tables in notes.
            since_us: When they were made.
        """
        interval, now_us = self._interval_us, self._now_us
        if not interval or now_us < since_us + max(interval, _kept(self._queue)):
            return False
        last_us = self._notes.vacuums.get(key)
        if last_us is not None and now_us < last_us + interval:
            return False
        tried_us = self._notes.tried_vacuums.get(key)
        return tried_us is None or now_us >= tried_us + interval // _AGAIN

    def remove(self, tables: Tables, *, dropped: bool = False) -> bool:
        """Remove files that no kept version needs, if it is time for that.

        Tables whose commits a catalog manages are left alone: only the catalog may clean them up, for
        example Databricks' predictive optimization. Delta refuses a VACUUM by anybody else.

        No version names the files of an uncommitted write, and the write may take longer than files are
        kept, or its process may be paused. With a table lock a write and VACUUM exclude each other. Without
        one, a commit to the table comes first: it makes all running writes fail, and later writes have
        younger files.

        It does nothing if no file can be old enough: in tables younger than the retention, and in tables
        without commits since the last removal.

        Steps: a note that it is tried, (a commit to the table,) VACUUM, a note that it is done. If it is
        interrupted or fails in between, it is tried again after a part of `vacuum_hours`. Not every sweep
        may try, because each try blocks the writers, or on storage without lock files makes running writes
        start again. Two sweepers that try at the same moment may both do it.

        Args:
            tables: The tables.
            dropped: Whether it is the table of a dropped tube. When no files are left, this is noted under the tube's
                negated id, and no sweep looks at the table again.

        Returns:
            Whether it was done. Commits: those of Delta's VACUUM, which conflict with nothing, and two
            notes in `_tubeq_sessions`; on storage without lock files one more to each table, which
            conflicts with all running writes.
        """
        queue, now_us = self._queue, self._now_us
        if not self.is_time(tables.key, tables.since_us):
            return False
        last_us = self._notes.vacuums.get(tables.key)
        are_gone = last_us is not None and _were_removed(queue, tables, last_us)
        if dropped and (are_gone or not queue.engine.tables.is_table(tables.names[0][0])):
            queue.sessions.note_vacuum(-tables.key, now_us)
            return False
        if are_gone:
            return False
        queue.sessions.note_vacuum(tables.key, now_us, tried=True)
        done = [_vacuum(queue, name, table_lock, now_us) for name, table_lock in tables.names]
        if not all(done):
            return False
        queue.sessions.note_vacuum(tables.key, now_us)
        return True


def purge(queue: QueueContext) -> list[str]:
    """Remove the files of removed rows of all tubes now, also of dropped ones, though older versions need them.

    Returns:
        The names of the tubes for which it was done, and not by another program at the same time.

    Raises:
        StoreError: Spark commits to the queue, or the storage failed.

    Commits: on storage without lock files one to each table, as a removal by a sweep.
    """
    done = []
    for record in queue.registry.with_dropped():
        name = queue.opened.location.table(record.table)
        if queue.engine.tables.is_table(name):
            table_lock = queue.opened.table_lock(record.table)
            if _vacuum(queue, name, table_lock, queue.now_us(), purges=True):
                done.append(record.name)
    return done


def _kept(queue: QueueContext) -> int:
    return limited_us(queue.config.retention_hours * 3600)


def _vacuum(
    queue: QueueContext, name: str, table_lock: TableLock, now_us: int, *, purges: bool = False
) -> bool:
    """Remove a table's dead files; False if another sweeper is doing it."""
    tables = queue.engine.tables
    if tables.is_catalog_managed(name):
        log.info("%s is left to its catalog, which alone may remove its dead files", name)
        return True
    with table_lock.changing(queue.engine.committing_jvm):
        if table_lock.is_exclusive:
            if tables.properties(name).get(LOG_CLEANUP) != "false":
                # A catalog that chooses the place of its tables may choose local files, which nobody knew at the
                # creation.
                tables.set_property(name, LOG_CLEANUP, "false")
            # A power cut must not bring back removed files.
            table_lock.flush()
        # The property makes all running writes fail. Another program may be doing that.
        elif not tables.set_property(name, FENCE, str(now_us)) or _is_ahead(queue, name):
            return False
        with without_empty_directories(name):
            tables.vacuum(name, purges=purges)
    return True


def _were_removed(queue: QueueContext, tables: Tables, last_us: int) -> bool:
    """Whether the last removal left no dead files: all were old enough, and no new ones came."""
    before_us = last_us - _kept(queue) - CLOCKS
    return all(queue.engine.tables.last_write(name) < before_us for name, _ in tables.names)


def _is_ahead(queue: QueueContext, table: str) -> bool:
    """Whether this host's clock is so far ahead of the storage's that VACUUM would take new files for old ones."""
    # The storage dates Spark's commits, such as the one just made. Our own VACUUM needs no clock of this host.
    ahead = (to_us(SystemClock().now()) - queue.engine.tables.last_commit(table)[1]) / US
    if ahead * US <= _kept(queue) // 2:
        return False
    log.warning(
        "dead files of %s stay: this host's clock is %.0f s ahead of the storage's, and files that are being written "
        "would be removed, too; let a time service set it",
        table,
        ahead,
    )
    return True
