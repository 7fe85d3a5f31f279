"""Finds the files that no kept version of a table needs, as Delta's VACUUM does.

Beside removed files it finds those that a stopped writer has left: no version has ever named them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.log import checkpoints
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.log.versions import checkpoint_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.log.log_files import LogFiles
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Entry

#: Names that begin like these are no data files, except the files of a change feed.
_HIDDEN, _FEED = ("_", "."), "_change_data/"


def dead_files(log: LogFiles, snapshot: Snapshot, listed: Sequence[Entry]) -> list[str]:
    """The names of the files that can be removed.

    Args:
        log: The log of the table.
        snapshot: The newest version. Its checkpoint was written just now, so its time is the storage's clock.
        listed: All files of the table, listed after that.
    """
    checkpoint = f"_delta_log/{checkpoint_name(snapshot.version)}"
    now = next((entry.at for entry in listed if entry.name == checkpoint), None)
    hours = hours_of(
        snapshot.shape.properties, checkpoints.DELETED_RETENTION, checkpoints.DELTAS_HOURS
    )
    if now is None or hours is None:
        return []
    before = now - hours * 3600
    needed = checkpoints.removed(log, snapshot.version) | snapshot.files.keys()
    return [
        entry.name
        for entry in listed
        if entry.at < before
        and entry.name not in needed
        and (entry.name.startswith(_FEED) or not entry.name.startswith(_HIDDEN))
    ]
