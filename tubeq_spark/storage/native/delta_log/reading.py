"""Reads a log: from its last checkpoint, and from one version to the next.

A log grows at its end, by one file for each commit, and others shorten it at its beginning, before
a checkpoint, while it is read. So a version is the newest one if the next version does not exist
and, read after that, the version itself still exists. If it does not, the log is read again from
its beginning.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.native.delta_log.actions import UnknownLogError
from tubeq_spark.storage.native.delta_log.beginning import begun, last_listed
from tubeq_spark.storage.native.delta_log.versions import commit, is_there

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.native.delta_log.actions import Actions
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot

__all__ = ["is_newest", "newest"]

#: How often a log is read anew that was shortened meanwhile.
_TRIES = 20
#: How often it is listed before what is missing is taken for lost.
_SURE = 3


def is_newest(log: Path, version: int) -> bool:
    """Whether a version is known to be the newest, without a listing."""
    return not is_there(log, version + 1) and is_there(log, version)


def newest(log: Path, known: Snapshot | None, last: int | None = None) -> Snapshot:
    """The newest version.

    Args:
        log: The directory of the log.
        known: A version that was read before.
        last: Read no further than this version.

    Raises:
        TableNotFoundError: There is no log.
        DamagedFileError: A file of it is not as it was written, or missing.
        UnknownLogError: Only the library can read it.
        OSError: It cannot be read.
    """
    for tries in range(_TRIES):
        try:
            begins = begun(log, last, is_sure=tries >= _SURE) if known is None else known
        except FileNotFoundError:
            # What was listed is gone, and something newer is there.
            continue
        found = _moved_on(log, begins, last)
        if found.version == last or is_there(log, found.version):
            return found
        # Of a checkpoint the commit may be gone.
        if last_listed(log) == found.version:
            return found
        known = None
    msg = f"the log changes too fast: {log}"
    raise UnknownLogError(msg)


def _moved_on(log: Path, found: Snapshot, last: int | None) -> Snapshot:
    commits: list[Actions] = []
    # Until the next one is not there.
    with suppress(FileNotFoundError):
        while last is None or found.version + len(commits) < last:
            commits.append(commit(log, found.version + 1 + len(commits)))
    return found.after(*commits) if commits else found
