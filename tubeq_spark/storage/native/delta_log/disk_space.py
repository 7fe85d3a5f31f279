"""Reserves the last part of a disk for verbs that empty a queue.

A take, an ack and a heartbeat also write to the disk; on a completely full disk no task could be
processed any more. So a put is refused while some space is still left.
"""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

from tubeq_spark.storage.location import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from tubeq_spark.storage.native.delta_log.actions import DataFile

__all__ = ["require_space"]

#: So many bytes are kept, or this part of a small disk.
_KEPT, _PART = 256 << 20, 32
#: The column that only rows of tasks have a value in.
_TASK = "task_id"


def require_space(table: Path, rows: pa.Table, gone: Sequence[DataFile]) -> None:
    """Refuse a commit that adds tasks to a tube if the disk is nearly full.

    Args:
        table: The directory of its table.
        rows: The rows that the commit writes.
        gone: The files whose place they take.

    Raises:
        OSError: So it is.
    """
    if table.name in SYSTEM or _TASK not in rows.column_names:
        return
    replaced = [file.rows for file in gone]
    if None in replaced or rows.num_rows <= sum(count or 0 for count in replaced):
        return
    # A fence or the tombstone of a drop adds a row, too: takes and drops need them.
    if rows[_TASK].null_count == rows.num_rows:
        return
    space = shutil.disk_usage(table)
    kept = min(_KEPT, space.total // _PART)
    if space.free < kept:
        why = (
            f"only {space.free >> 10} KB are free: the last {kept >> 10} KB are for takes and acks"
        )
        raise OSError(errno.ENOSPC, why, str(table))
