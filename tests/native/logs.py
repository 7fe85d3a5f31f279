"""Reads the log of a table on local files, and makes it older."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tubeq_spark.storage.durability.synced_log import SyncedLog
from tubeq_spark.storage.log.log_files import LogFiles
from tubeq_spark.storage.store.local_files import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

MINUTE, HOUR = 60, 3600


def versions(log: Path, kind: str = "json") -> list[int]:
    """The versions that a log has files of."""
    named = (re.fullmatch(rf"(\d{{20}})\.{kind}", path.name) for path in log.iterdir())
    return sorted(int(name[1]) for name in named if name)


def aged(log: Path, seconds: float) -> None:
    """Make all that is in a log older."""
    for path in log.iterdir():
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))


def log_files_of(log: Path) -> LogFiles:
    """The files of the log in a directory."""
    return LogFiles(LocalStore(SyncedLog(log.parent)))
