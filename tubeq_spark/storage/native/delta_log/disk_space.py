"""Keeps the last part of a disk for what empties a queue.

A take, an ack and a heartbeat write to the disk, too: on one that is full to the last byte nothing could
be worked off any more. So a put is refused while there is still some space.
"""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

from tubeq_spark.storage.location import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tubeq_spark.storage.native.delta_log.actions import DataFile

__all__ = ["require_space"]

#: So many bytes are kept, or this part of a small disk.
_KEPT, _PART = 256 << 20, 32


def require_space(table: Path, rows: int, gone: Sequence[DataFile]) -> None:
    """Refuse a commit by which a tube grows where the disk is nearly full.

    Args:
        table: The directory of its table.
        rows: How many rows the commit writes.
        gone: The files whose place they take.

    Raises:
        OSError: So it is.
    """
    if table.name in SYSTEM:
        return
    replaced = [file.rows for file in gone]
    if None in replaced or rows <= sum(count or 0 for count in replaced):
        return
    space = shutil.disk_usage(table)
    kept = min(_KEPT, space.total // _PART)
    if space.free < kept:
        why = (
            f"only {space.free >> 10} KB are free: the last {kept >> 10} KB are for takes and acks"
        )
        raise OSError(errno.ENOSPC, why, str(table))
