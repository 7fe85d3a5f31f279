"""Finds commits to an object store that came so late that their version was no longer free.

Commits are removed when the log's retention is over, by the store's clock. So a process that was paused for
long may commit a version that others had, and have removed: the store accepts this commit, and nobody will ever
read it. If the answer to a commit comes late, counted from the look that found its version free, the commit is
compared with the files of the log. The store tells when each of them was written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.log import versions
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.log.log_files import LOG, SKEW, LogFiles
from tubeq_spark.storage.log.looks import KEPT_HOURS
from tubeq_spark.storage.log.names import version_of
from tubeq_spark.storage.tables.schema import LOG_RETENTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Entry, Store

log = logging.getLogger(__name__)

#: An answer is late after the retention of commits, divided by this.
_LATE = 4


def may_be_late(snapshot: Snapshot, seconds: float) -> bool:
    """Whether others may have committed, and removed, the version after `snapshot` by now.

    Args:
        snapshot: A version.
        seconds: The time since this version was last known to be the newest.
    """
    hours = hours_of(snapshot.shape.properties, LOG_RETENTION) or KEPT_HOURS
    return seconds > max(hours, KEPT_HOURS) * 3600 / _LATE


def are_there(store: Store, files: Sequence[DataFile]) -> bool:
    """Whether data files still exist: others may have removed them, because no version names them yet."""

    def is_there(file: DataFile) -> bool:
        try:
            store.get(file.path, span=(0, 1))
        except FileNotFoundError:
            return False
        return True

    return all(store.together(is_there, files))


def removed_if_late(store: Store, version: int, tag: str | None, operation_id: int) -> bool:
    """Whether a commit came too late; if so, remove it.

    Args:
        store: The files of its table.
        version: The version that the commit has made.
        tag: The tag of the commit before it, if known.
        operation_id: The operation id of the commit.

    Raises:
        CommitUnknownError: Nobody can find out whether it came too late.
    """
    unknown = f"it is not known whether version {version} came too late: "
    try:
        after = versions.commit_name(version - 2) if version > 1 else ""
        is_late = _is_late(version, tag, LogFiles(store).list_from(after))
        if is_late:
            log.warning("%s: version %d came too late, and is removed", store, version)
            store.delete([f"{LOG}/{versions.commit_name(version)}"])
    except OSError as error:
        raise CommitUnknownError(unknown + reason_of(error), operation_id) from error
    if is_late is None:
        msg = f"{unknown}the log was removed since"
        raise CommitUnknownError(msg, operation_id)
    return is_late


def _is_late(version: int, tag: str | None, listed: Mapping[str, Entry]) -> bool | None:
    """Whether others had committed and removed a version before this commit of it; `None` if nobody can tell.

    A later version that is older than the commit proves this.

    Args:
        version: The version.
        tag: The tag of the version before it, if known.
        listed: The files of the log from the version before it on.
    """
    before, mine, after = (listed.get(versions.commit_name(version + n)) for n in (-1, 0, 1))
    if mine is None:
        return None
    later = [file.at for file in listed.values() if (version_of(file.name) or 0) > version]
    first = min(later, default=None)
    if first is None:
        return False
    if after is None:
        # Most stores tell times in whole seconds. If the commit is not late, a removal of old commits was cut short.
        return True if first <= mine.at else None
    if before is not None and tag in (None, before.tag):
        # Only a removal that was cut short leaves the versions before and after this one, but not this one.
        return first < mine.at - SKEW
    return None if abs(first - mine.at) <= SKEW else first < mine.at
