"""Checks the names in a log for missing commits before a commit, and moves files of a log aside.

A commit after a hole would fill it, and the commits behind the hole would count again. Spark reads
an empty commit as one without changes. The native engine also checks the contents of the commits
that it reads.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage import disk
from tubeq_spark.storage.log.names import (
    LAST_CHECKPOINT,
    checksum_of,
    commit_file,
    log_file,
    names_after,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: The number of a process's commits between two checks.
EVERY = 50
#: The prefix of the directories, in a log, to which files are moved.
ASIDE = "_lost-"


def fault_in(log: Path) -> tuple[str, str] | None:
    """Find the first commit file after the newest checkpoint that is missing or empty. The caller holds the lock.

    Returns:
        The file and its fault; `None` if there is no fault, or no log.

    Raises:
        OSError: The log cannot be listed.
    """
    commits: set[int] = set()
    begins = -1
    try:
        with os.scandir(log) as entries:
            for entry in entries:
                named = log_file(entry.name)
                if named is None:
                    continue
                if named.kind == "json":
                    commits.add(named.version)
                elif named.kind == "checkpoint" and entry.stat().st_size:
                    begins = max(begins, named.version)
    except (FileNotFoundError, NotADirectoryError):
        return None
    for version in range(begins + 1, max(commits, default=-1) + 1):
        file = commit_file(log, version)
        # A listing may lack a file that a tool without the lock has written meanwhile.
        if version not in commits and not os.path.exists(file):  # noqa: PTH110  (as its siblings)
            return file, "is missing, though later ones are there"
        if not os.stat(file).st_size:  # noqa: PTH116  (many files)
            return file, "is empty"
    return None


def move_aside(log: Path, names: Iterable[str], *, newest_first: bool = True) -> Path:
    """Move files of a log to a directory in it.

    Args:
        log: The directory of the log. The caller holds the table's lock.
        names: The names of the files.
        newest_first: Whether the newest files are moved first. So an interruption leaves no hole: files at the end of
            the log are moved newest first, files at its beginning oldest first.

    Returns:
        The directory with the moved files.

    Raises:
        OSError: The files cannot be moved.
    """
    aside = log / f"{ASIDE}{SystemClock().now():%Y%m%dT%H%M%S.%f}"
    aside.mkdir()
    for name in sorted(names, key=lambda name: name.lstrip("."), reverse=newest_first):
        with suppress(FileNotFoundError):
            (log / name).rename(aside / name)
    return aside


def move_lost(
    log: Path, names: Iterable[str], readable: int, checkpoints: Iterable[str]
) -> Path | None:
    """Move the files of versions that cannot be read aside.

    Args:
        log: As for `move_aside`.
        names: The names of all files of the log.
        readable: The last version that can be read.
        checkpoints: The names of damaged checkpoints.

    Returns:
        The directory with the moved files; `None` if there are none.

    Raises:
        OSError: The files cannot be moved.
    """
    lost = {*names_after(names, readable)}
    lost.update(name for file in checkpoints for name in (file, checksum_of(log / file).name))
    return move_aside(log, lost) if lost else None


def point_to(log: Path, checkpoint: Path | None) -> None:
    """Make `_last_checkpoint` name a checkpoint of one file, or remove it (`None`).

    Raises:
        OSError: The file cannot be written.
    """
    file = log / LAST_CHECKPOINT
    if checkpoint is None:
        checksum_of(file).unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        return
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  only needed after damage

    size = read_metadata(checkpoint).num_rows
    told = json.dumps({"version": int(checkpoint.name[:20]), "size": size})
    with disk.replacing(file, synced=True) as prepared:
        prepared.write_text(told, encoding="utf-8")
