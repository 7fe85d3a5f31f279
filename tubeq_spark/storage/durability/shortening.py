"""Shortens the log of a table on local files: removes commits before a synced checkpoint."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.durability.files_there import is_parquet
from tubeq_spark.storage.durability.log_names import (
    LEFT_SECONDS,
    LogFile,
    commit_file,
    log_file,
    version_of,
)
from tubeq_spark.storage.ended import first_note
from tubeq_spark.storage.log.facts import BEGINNING, LogFacts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tubeq_spark.storage.durability.synced_log import SyncedLog

#: So many of the newest versions stay in any case, because verbs search there after lost answers.
VERSIONS = 200
#: Notes that no sweep has added up, such as those of a dropped tube, are removed after so many seconds.
_NOTE_SECONDS = 7 * 86_400.0


def shorten(synced: SyncedLog, newest: int, before: float) -> int:
    """Remove the log before a checkpoint, except commits since a time.

    Before it removes a file, it syncs the rest of the log to the disk.

    Args:
        synced: The log. The caller holds the table's lock.
        newest: The table's newest version.
        before: The time, in seconds since the epoch.

    Returns:
        The number of removed files.

    Raises:
        OSError: The log cannot be read, or the rest may not be on the disk. No needed file was removed.
    """
    directory, facts = synced.log, LogFacts.listed(synced.log)
    names = facts.names
    _remove_left(directory, [name for name in names if name.endswith(".tmp")], before)
    found = sorted(
        (file.version, name, file) for name in names if (file := _file(name)) is not None
    )
    # From here on all versions can be read as before.
    first = next(
        (
            version
            for version, name, file in found
            if file.kind == "json"
            and (version >= newest - VERSIONS or (directory / name).stat().st_mtime >= before)
        ),
        -1,
    )
    most = min(first, BEGINNING if facts.hint is None else facts.hint)
    checkpoints = [
        v for v, name, file in found if file.is_plain and v <= most and is_parquet(directory / name)
    ]
    kept = _first_note(directory, checkpoints[-1], before) if checkpoints else None
    checkpoints = [v for v in checkpoints if kept is None or v <= kept]
    if not checkpoints:
        return 0
    gone = [name for version, name, _ in found if version < checkpoints[-1]]
    if gone:
        synced.flush()
    for name in gone:
        (directory / name).unlink(missing_ok=True)
    return len(gone)


def _file(name: str) -> LogFile | None:
    """Parse the name of a file, or of Hadoop's checksum of it, that is removed with its version; else `None`."""
    if name.startswith(".") and name.endswith(".crc"):
        version = version_of(name)
        return None if version is None else LogFile(version, "checksum")
    file = log_file(name)
    # A checkpoint with further files is removed together with these, by the engine that wrote it.
    return None if file is None or (file.kind == "checkpoint" and not file.is_parquet) else file


def _first_note(log: Path, version: int, before: float) -> int | None:
    """The first version whose note of ended tasks a sweep must still add up; else `None`.

    It is also `None` if the note is so old that no sweep will add it up any more.
    """
    first = first_note(log, version)
    if first is None or os.stat(commit_file(log, first)).st_mtime < before - _NOTE_SECONDS:  # noqa: PTH116
        return None
    return first


def _remove_left(directory: Path, names: Iterable[str], before: float) -> None:
    """Remove prepared commit files that are more than an hour older than a time."""
    for name in names:
        with suppress(FileNotFoundError):
            if (directory / name).stat().st_mtime < before - LEFT_SECONDS:
                (directory / name).unlink()
