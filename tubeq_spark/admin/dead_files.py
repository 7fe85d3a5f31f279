"""Removes files that no kept version of a table needs, and the directories that they leave.

No verb depends on it, and it gives up if another commit comes first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.times import US, limited_us, to_us
from tubeq_spark.storage.disk import without_empty_directories
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.tables.schema import FENCE, LOG_CLEANUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.locks.table_lock import TableLock

log = logging.getLogger(__name__)

#: The key of the system tables. Ids of tubes are greater.
SYSTEM = 0
#: Long writes may delay a removal for so many `vacuum_hours`.
_PUT_OFF = 4
#: A removal that failed is tried again after `vacuum_hours`, divided by this.
_AGAIN = 24
#: The storage's clock, which dates commits, and the clocks of sweepers differ by at most so many microseconds.
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


def remove_dead_files(
    queue: QueueContext,
    tables: Tables,
    now_us: int,
    last_us: int | None,
    tried_us: int | None = None,
) -> bool:
    """Remove files that no kept version needs, if it is time for that.

    Tables whose commits a catalog manages are left alone: only the catalog may clean them up, for
    example Databricks' predictive optimization. Delta refuses a VACUUM by anybody else.

    No version names the files of an uncommitted write, and the write may take longer than files are
    kept, or its process may be paused. With a table lock a write and VACUUM exclude each other. Without
    one, a commit to the table comes first: it makes all running writes fail, and later writes have
    younger files. Long writes ask for a delay, so that they need not fail, and VACUUM waits for a while.

    It does nothing if no file can be old enough: in tables younger than the retention, and in tables
    without commits since the last removal.

    Steps: a note that it is tried, (a commit to the table,) VACUUM, a note that it is done. If it is
    interrupted or fails in between, it is tried again after a part of `vacuum_hours`. Not every sweep
    may try, because each try blocks the writers, or on storage without lock files makes running writes
    start again. Two sweepers that try at the same moment may both do it.

    Args:
        queue: The queue object.
        tables: The tables.
        now_us: The moment.
        last_us: When it was last done, if ever.
        tried_us: When it was last tried, if ever.

    Returns:
        Whether it was done. Commits: those of Delta's VACUUM, which conflict with nothing, and two
        notes in `_tubeq_sessions`; on storage without lock files one more to each table, which
        conflicts with all running writes.
    """
    if not is_time(queue, tables.since_us, now_us, last_us, tried_us):
        return False
    if last_us is not None and _were_removed(queue, tables, last_us):
        return False
    return _remove(queue, tables, now_us, last_us)


def _remove(queue: QueueContext, tables: Tables, now_us: int, last_us: int | None) -> bool:
    """Remove dead files, unless long writes have asked to wait; returns whether it was done."""
    if _is_put_off(queue, tables, now_us, last_us):
        return False
    queue.vacuum_notes.note_vacuum(tables.key, now_us, tried=True)
    done = [_vacuum(queue, name, table_lock, now_us) for name, table_lock in tables.names]
    if not all(done):
        return False
    queue.vacuum_notes.note_vacuum(tables.key, now_us)
    return True


def remove_last_files(
    queue: QueueContext,
    tables: Tables,
    now_us: int,
    last_us: int | None,
    tried_us: int | None = None,
) -> bool:
    """Remove the dead files of a dropped tube's table as `remove_dead_files` does, if it is time.

    When none are left, it notes this under the tube's negated id, and no sweep looks at the table again.

    Returns:
        Whether files were removed.
    """
    [(name, _)] = tables.names
    if not queue.engine.tables.is_table(name) or (
        last_us is not None and _were_removed(queue, tables, last_us)
    ):
        queue.vacuum_notes.note_vacuum(-tables.key, now_us)
        return False
    is_due = is_time(queue, tables.since_us, now_us, last_us, tried_us)
    return is_due and _remove(queue, tables, now_us, last_us)


def _is_put_off(queue: QueueContext, tables: Tables, now_us: int, last_us: int | None) -> bool:
    """Whether a long write has asked to wait, and not too often."""
    late = (tables.since_us if last_us is None else last_us) + _PUT_OFF * _interval(queue)
    return now_us < late and any(
        not table_lock.is_exclusive and queue.vacuum_notes.asked_to_wait(name, now_us)
        for name, table_lock in tables.names
    )


def is_time(
    queue: QueueContext, since_us: int, now_us: int, last_us: int | None, tried_us: int | None
) -> bool:
    """Whether enough time has passed for something to remove. Nothing is read."""
    interval, kept = _interval(queue), _kept(queue)
    if not interval or now_us < since_us + max(interval, kept):
        return False
    if last_us is not None and now_us < last_us + interval:
        return False
    return tried_us is None or now_us >= tried_us + interval // _AGAIN


def _interval(queue: QueueContext) -> int:
    return limited_us(queue.config.vacuum_hours * 3600)


def _kept(queue: QueueContext) -> int:
    return limited_us(queue.config.retention_hours * 3600)


def _vacuum(queue: QueueContext, name: str, table_lock: TableLock, now_us: int) -> bool:
    """Remove a table's dead files; False if another sweeper is doing it."""
    if queue.engine.tables.is_catalog_managed(name):
        log.info("%s is left to its catalog, which alone may remove its dead files", name)
        return True
    with table_lock.changing(queue.engine.committer):
        if table_lock.is_exclusive:
            _prepare(queue, name, table_lock)
        elif not _fence(queue, name, now_us) or _is_ahead(queue, name):
            return False
        with without_empty_directories(name, queue.config.retention_hours * 3600):
            queue.engine.tables.vacuum(name)
    return True


def _prepare(queue: QueueContext, name: str, table_lock: TableLock) -> None:
    """Sync a table on local files first, so that a power cut does not bring back removed files."""
    tables = queue.engine.tables
    if tables.properties(name).get(LOG_CLEANUP) != "false":
        # A catalog that chooses the place of its tables may choose local files, which nobody knew at the creation.
        tables.set_property(name, LOG_CLEANUP, "false")
    table_lock.flush()


def _were_removed(queue: QueueContext, tables: Tables, last_us: int) -> bool:
    """Whether the last removal left no dead files: all were old enough, and no new ones came."""
    before_us = last_us - _kept(queue) - CLOCKS
    return all(queue.engine.tables.last_write(name) < before_us for name, _ in tables.names)


def _fence(queue: QueueContext, table: str, now_us: int) -> bool:
    """Make all running writes to a table fail; False if another program is doing that."""
    return queue.engine.tables.set_property(table, FENCE, str(now_us))


def _is_ahead(queue: QueueContext, table: str) -> bool:
    """Whether this host's clock is so far ahead of the storage's that VACUUM would take new files for old ones."""
    ahead = _seconds_ahead(queue, table)
    if ahead * US <= _kept(queue) // 2:
        return False
    log.warning(
        "dead files of %s stay: this host's clock is %.0f s ahead of the storage's, and files that are being written "
        "would be removed, too; let a time service set it",
        table,
        ahead,
    )
    return True


def _seconds_ahead(queue: QueueContext, table: str) -> float:
    """How far the host's clock, by which VACUUM judges files, is ahead of the storage's, after a commit to a table."""
    tables, path = queue.engine.tables, path_of(table)
    drift = None if path is None else tables.clock_drift(path)
    if drift is not None:
        return -drift
    # Where the engine cannot ask the storage, the storage dates commits.
    return (to_us(SystemClock().now()) - tables.last_commit(table)[1]) / US
