"""The log of a table on local files: whether it has a newer version, and that it stays short.

Each commit lists the whole log, so a log that grows makes every verb slower. What the library does
about that, a look at all files of the log after each commit, costs more than the rest of a commit. So
here the committing process shortens the log now and then, under the table's lock, which keeps out all
other writers and their own cleaning. On other storage the listing begins at a version: there the library
cleans by the table's own retention, now and then as well.

What is removed lies before a checkpoint that stays, in the order of versions. It is older than anybody
needs: writers hold the lock from their reading to their commit; readers without Spark keep a version in
memory, and need the log while they open a table or move on; one that was paused just then, for longer
than the newest part of the log covers, tries again. Spark needs it while it plans a statement, which
may take long: where a process of this host reads by Spark, more stays. Who wants to look back has asked
for a longer retention than the default, or for a feed of changes: there all stays as long as that says.
"""

from __future__ import annotations

import json
import logging
import os
import re
from typing import TYPE_CHECKING

from deltalake import PostCommitHookProperties

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.log_readers import without_readers
from tubeq_spark.storage.opened_location import LOCKS
from tubeq_spark.storage.sql.schema import CHANGE_FEED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deltalake import DeltaTable

__all__ = ["EVERY", "VERSIONS", "LogFiles", "hook", "shorten"]

log = logging.getLogger(__name__)

#: Versions between two looks whether the log can be shortened.
EVERY = 50
#: The newest versions stay in any case: lost answers are looked for there.
VERSIONS = 200
#: So does what was committed within so many seconds: to list a log and to read what was listed takes less.
SECONDS = 5.0
#: And where Spark reads.
SPARK_SECONDS = 600.0
#: Hours of retention that nobody has asked for.
_DEFAULT_HOURS = 2

_FILE = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)")
_INTERVAL = re.compile(r"interval (\d+) (hour|day|week)s?")
_HOURS = {"hour": 1, "day": 24, "week": 7 * 24}


class LogFiles:
    """The log of one table."""

    def __init__(self, path: str) -> None:
        """Look after the log of the table at a path or URI."""
        directory = local_directory(path)
        self._log = None if directory is None else directory / "_delta_log"
        #: How often the log has grown by `EVERY` versions, when this process looked last.
        self._looked: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether the table is on a local file system."""
        return self._log is not None

    def is_newest(self, version: int) -> bool:
        """Whether a version is known to be the newest, without a listing of the log.

        A log is shortened from its beginning. So where a version is still there, the next one was not
        there a moment before, unless it was never committed.
        """
        if self._log is None:
            return False
        following = os.path.exists(f"{self._log}/{version + 1:020}.json")  # noqa: PTH110  (each read asks)
        return not following and os.path.exists(f"{self._log}/{version:020}.json")  # noqa: PTH110

    def committed(self, table: DeltaTable, before: int) -> None:
        """Shorten the log after a commit, now and then; the table's lock is held.

        Args:
            table: The version that was committed.
            before: The one that it was committed on.
        """
        looked = before // EVERY if self._looked is None else self._looked
        self._looked = table.version() // EVERY
        if self._log is None or self._looked == looked:
            return
        try:
            with without_readers(self._log.parents[1] / LOCKS) as unread:
                kept = _kept_seconds(table.metadata().configuration, unread=unread)
                if kept is not None:
                    shorten(self._log, table.version(), SystemClock().now().timestamp() - kept)
        except OSError:
            # The commit is made; the next look is soon.
            log.warning("%s was not shortened", self._log, exc_info=True)


def hook(table: DeltaTable) -> PostCommitHookProperties:
    """What the library does after a commit on a version: a checkpoint, where it is time for one."""
    is_local = local_directory(table.table_uri) is not None
    cleans = not is_local and (table.version() + 1) % EVERY == 0
    return PostCommitHookProperties(cleanup_expired_logs=None if cleans else False)


def _kept_seconds(properties: Mapping[str, str | None], *, unread: bool) -> float | None:
    """How long commits stay in the log; `None`: it is not for us to shorten it."""
    if properties.get("delta.enableExpiredLogCleanup") == "false":
        return None
    told = _INTERVAL.fullmatch(properties.get("delta.logRetentionDuration") or "")
    if told is None:
        return None
    hours = int(told[1]) * _HOURS[told[2]]
    if properties.get(CHANGE_FEED) == "true" or hours > _DEFAULT_HOURS:
        return hours * 3600.0
    return SECONDS if unread else SPARK_SECONDS


def shorten(directory: Path, newest: int, before: float) -> int:
    """Remove what lies before a checkpoint, but for what was committed since a moment.

    Args:
        directory: The log.
        newest: The table's newest version.
        before: The moment, in seconds since the epoch.

    Returns:
        How many files went.
    """
    found = sorted(
        (int(named[1]), named[2], named[0])
        for named in map(_FILE.fullmatch, os.listdir(directory))  # noqa: PTH208  (names are enough)
        if named is not None
    )
    # From here on all versions can be read as before.
    first = next(
        (
            version
            for version, kind, name in found
            if kind == "json"
            and (version >= newest - VERSIONS or (directory / name).stat().st_mtime >= before)
        ),
        -1,
    )
    most = min(first, _last_checkpoint(directory))
    checkpoints = [v for v, kind, _ in found if kind.startswith("checkpoint") and v <= most]
    if not checkpoints:
        return 0
    gone = [name for version, _, name in found if version < checkpoints[-1]]
    for name in gone:
        (directory / name).unlink(missing_ok=True)
    return len(gone)


def _last_checkpoint(directory: Path) -> int:
    """The version of the checkpoint that readers begin with; -1: there is none."""
    try:
        return int(json.loads((directory / "_last_checkpoint").read_bytes())["version"])
    except (FileNotFoundError, KeyError, ValueError):
        return -1
