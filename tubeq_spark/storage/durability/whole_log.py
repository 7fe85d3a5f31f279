"""Checks the names in a log before a commit: no commit file may be missing or empty.

A commit after a hole would fill it, and the commits behind the hole would count again. Spark reads
an empty commit as one without changes. The native engine also checks the contents of the commits
that it reads.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tubeq_spark.storage.durability.log_names import commit_file, log_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EVERY", "fault_in"]

#: Commits of a process between two looks.
EVERY = 50


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
