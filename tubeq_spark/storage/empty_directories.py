"""Removes the directories of segments that contain no file any more.

Each put and each take makes a segment with its directory, and VACUUM leaves the empty directory.
The number of a segment is never used again, so nobody writes to an old directory. Tombstones of
drops are in segment 0, whose directory stays.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.table_names import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["without_empty_directories"]

_SEGMENT, _KEPT = "segment=", "segment=0"
#: Seconds since a directory was written to. A writer that made one writes its file at once.
_OLD = 3600.0


@contextmanager
def without_empty_directories(table: str) -> Iterator[None]:
    """Run a block that removes dead files of a table, then remove empty directories.

    Nothing on other storage than local files: there are no directories.

    Args:
        table: Its SQL name.
    """
    path = path_of(table)
    directory = None if path is None else local_directory(path)
    # By when they were written to before the block: it writes to those from which it removes files.
    old = [] if directory is None else _old(directory)
    yield
    for segment in old:
        _remove(segment)


def _old(table: Path) -> Sequence[str]:
    before = SystemClock().now().timestamp() - _OLD
    with suppress(FileNotFoundError), os.scandir(table) as entries:
        return [
            entry.path
            for entry in entries
            if entry.name.startswith(_SEGMENT)
            and entry.name != _KEPT
            and entry.stat(follow_symlinks=False).st_mtime < before
        ]
    return []


def _remove(segment: str) -> None:
    """Remove a directory if it has only checksum files of removed files."""
    with suppress(OSError):
        os.rmdir(segment)  # noqa: PTH106  (there may be a million)
        return
    # It is not empty, or another process has removed it.
    with suppress(OSError):
        names = set(os.listdir(segment))  # noqa: PTH208
        checksums = [n for n in names if n.startswith(".") and n.endswith(".crc")]
        orphans = [name for name in checksums if name[1:-4] not in names]
        for name in orphans:
            os.unlink(os.path.join(segment, name))  # noqa: PTH108, PTH118
        if len(orphans) == len(names):
            os.rmdir(segment)  # noqa: PTH106
