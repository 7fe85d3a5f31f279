"""Looks through the names in a log before a commit: none may be missing; and moves files where no reader looks.

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
from tubeq_spark.storage.durability.log_names import (
    LAST_CHECKPOINT,
    checksum_of,
    commit_file,
    log_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Commits of a process between two looks.
EVERY = 50
#: How the directories begin, in a log, that files are moved to.
ASIDE = "_lost-"


def fault_in(log: Path) -> tuple[str, str] | None:
    """The first commit file after the newest checkpoint that is missing or empty; the table's lock is held.

    Returns:
        The file, and what is wrong with it; `None`: nothing is, or there is no log.

    Raises:
        OSError: It cannot be listed.
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
        # A listing need not have what came meanwhile, by a tool that knows of no lock.
        if version not in commits and not os.path.exists(file):  # noqa: PTH110  (as its siblings)
            return file, "is missing, though later ones are there"
        if not os.stat(file).st_size:  # noqa: PTH116  (many files)
            return file, "is empty"
    return None


def move_aside(log: Path, names: Iterable[str], *, newest_first: bool = True) -> Path:
    """Move files of a log to a directory in it.

    Args:
        log: The directory of the log; the table's lock is held.
        names: Their names.
        newest_first: Who stops on the way leaves a log without holes: of its end the newest files go
            first, of its beginning the oldest.

    Returns:
        The directory.

    Raises:
        OSError: They cannot be moved.
    """
    aside = log / f"{ASIDE}{SystemClock().now():%Y%m%dT%H%M%S.%f}"
    aside.mkdir()
    for name in sorted(names, key=lambda name: name.lstrip("."), reverse=newest_first):
        with suppress(FileNotFoundError):
            (log / name).rename(aside / name)
    return aside


def point_to(log: Path, checkpoint: Path | None) -> None:
    """Make a log name a checkpoint of one file as the one to begin with, or none.

    Raises:
        OSError: It cannot be written.
    """
    file = log / LAST_CHECKPOINT
    if checkpoint is None:
        checksum_of(file).unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        return
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  where something was damaged only

    size = read_metadata(checkpoint).num_rows
    told = json.dumps({"version": int(checkpoint.name[:20]), "size": size})
    with disk.replacing(file, synced=True) as prepared:
        prepared.write_text(told, encoding="utf-8")
