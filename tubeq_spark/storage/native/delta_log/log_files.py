"""Finds newer versions in the log of a table on local files, and keeps the log short.

Spark, and many calls of the library, list the whole log, so a growing log makes them slower. The
library's own cleaning reads all names in the log after each commit, which takes longer than the
rest of a commit. So the committing process itself shortens the log from time to time, under the
table's lock, which excludes all other writers and their cleaning. On other storage a listing can
begin at a version. After commits of the library there, the library cleans, by the table's own
retention, also from time to time.

The removed files are before a checkpoint that stays. Nobody needs them: writers hold the lock from
their read to their commit. Readers without Spark keep a version in memory, and need the log while
they open a table or move to a newer version; if they were paused for longer than the kept part of
the log covers, they try again. Spark needs the log while it plans a statement, which may take long:
if a process of this host reads by Spark, more is kept. If a tube has a longer retention than the
default, or a change feed, the log is kept for all of that time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deltalake import PostCommitHookProperties

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.durability.shortening import shorten
from tubeq_spark.storage.durability.synced_log import LOCKS, synced_log_of
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.locks.log_readers import without_readers
from tubeq_spark.storage.native.delta_log.actions import hours_of
from tubeq_spark.storage.native.delta_log.log import LocalLog
from tubeq_spark.storage.native.delta_log.reading import is_newest
from tubeq_spark.storage.native.delta_log.versions import checkpoint_name, is_there, pointer
from tubeq_spark.storage.tables.schema import CHANGE_FEED, LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

    from tubeq_spark.storage.native.delta_log.log import FileIdentity, Log

log = logging.getLogger(__name__)

#: Versions between two checks whether the log can be shortened.
EVERY = 50
#: Commits of the last so many seconds stay: a reader needs less time to list a log and to read the listed files.
SECONDS = 5.0
#: The same where Spark reads.
SPARK_SECONDS = 600.0
#: The next checkpoint comes after at least one commit for so many actions of the last one.
_ACTIONS = 200
#: But after no more commits than about this.
_SELDOM = 1_000
#: The hours of the default retention.
_DEFAULT_HOURS = 2


class LogFiles:
    """The log of one table."""

    def __init__(self, path: str) -> None:
        """Use the log of the table at a path or URI."""
        directory = local_directory(path)
        self._log = None if directory is None else LocalLog(directory / "_delta_log")
        self._synced = None if directory is None else synced_log_of(directory)
        #: The version at the last check of this process, divided by `EVERY`.
        self._looked: int | None = None

    def is_newest(self, version: int) -> bool:
        """Whether a version is known to be the newest, without a listing of the log."""
        return self._log is not None and is_newest(self._log, version)

    def identity(self, version: int) -> FileIdentity | None:
        """The identity of a commit's file; `None` if it is gone, or on an object store."""
        return None if self._log is None else self._log.identity(version)

    def is_far_behind(self, version: int) -> bool:
        """Whether a version is so old that opening the table is faster than updating from it."""
        return self._log is not None and is_there(self._log, version + EVERY)

    def is_checkpoint_due(self, version: int) -> bool:
        """Whether a version that this process has committed should have a checkpoint."""
        return self._log is not None and is_checkpoint_due(self._log, version)

    def expire(self, version: int, properties: Mapping[str, str | None]) -> None:
        """Remove the part of the log that is no longer kept. Arguments as for `committed`."""
        hours = hours_of(properties, LOG_RETENTION, 30 * 24)
        if self._synced is not None and hours is not None:
            shorten(self._synced, version, SystemClock().now().timestamp() - hours * 3600)

    def committed(self, version: int, properties: Mapping[str, str | None], before: int) -> None:
        """Shorten the log after some commits; the table's lock is held.

        Args:
            version: The version that was committed.
            properties: The table's properties.
            before: The version on which it was committed.
        """
        looked = max(before, 0) // EVERY if self._looked is None else self._looked
        self._looked = version // EVERY
        if self._log is None or self._synced is None or self._looked == looked:
            return
        try:
            with without_readers(self._log.directory.parents[1] / LOCKS) as unread:
                kept = _kept_seconds(properties, unread=unread)
                if kept is not None:
                    shorten(self._synced, version, SystemClock().now().timestamp() - kept)
        except OSError:
            # The commit has succeeded, and the next check comes soon.
            log.warning("%s was not shortened", self._log, exc_info=True)


def is_checkpoint_due(files: Log, version: int) -> bool:
    """Whether a committed version of a log should have a checkpoint.

    The cost of a checkpoint grows with the number of files of the table, and of removed files that it lists. If
    there are many, checkpoints are written less often.
    """
    if not version or version % EVERY:
        return False
    try:
        last = pointer(files)
    except OSError:
        return True
    if last is None or version - last["version"] >= min(last["size"] // _ACTIONS, _SELDOM):
        return True
    is_plain = not (last.get("parts") or last.get("v2Checkpoint"))
    return is_plain and not files.exists(checkpoint_name(last["version"]))


def hook(table: DeltaTable) -> PostCommitHookProperties:
    """The library's work after a commit: a checkpoint, if it is time for one."""
    is_local = local_directory(table.table_uri) is not None
    cleans = not is_local and (table.version() + 1) % EVERY == 0
    return PostCommitHookProperties(cleanup_expired_logs=None if cleans else False)


def _kept_seconds(properties: Mapping[str, str | None], *, unread: bool) -> float | None:
    """How long commits stay in the log; `None` if the engine must not shorten it."""
    hours = hours_of(properties, LOG_RETENTION)
    if hours is None:
        return None
    if properties.get(CHANGE_FEED) == "true" or hours > _DEFAULT_HOURS:
        return hours * 3600.0
    return SECONDS if unread else SPARK_SECONDS
