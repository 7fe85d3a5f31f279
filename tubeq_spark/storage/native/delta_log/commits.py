"""Writes the next version of a log, as a whole and only if it does not exist yet; refuses puts on a nearly full disk.

A take, an ack and a heartbeat also write to the disk, so on a completely full disk no task could be processed any
more. So a put is refused while some space is still left.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage import disk
from tubeq_spark.storage.durability.log_names import commit_file
from tubeq_spark.storage.location import SYSTEM
from tubeq_spark.storage.native.delta_log.actions import encoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from tubeq_spark.storage.native.delta_log.actions import DataFile


def prepare(log: Path, actions: Sequence[Mapping[str, Any]], *, synced: bool = False) -> Path:
    """Write the contents of a commit under a name that no reader reads.

    Args:
        log: The directory of the log.
        actions: Its actions.
        synced: Whether its content must be on the disk.

    Returns:
        The file. If the process is stopped, the file is removed when the log is shortened.

    Raises:
        OSError: It cannot be written, and does not exist.
    """
    # The library names its uncommitted files like this.
    prepared = log / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        prepared.write_bytes(encoded(actions))
        if synced:
            disk.sync_file(prepared)
    except OSError:
        _remove(prepared)
        raise
    return prepared


def create(log: Path, version: int, prepared: Path) -> bool:
    """Commit a prepared file as a version.

    Args:
        log: The directory of the log.
        version: The version.
        prepared: The prepared file, which is removed.

    Returns:
        Whether the version is committed; False if another commit came first.

    Raises:
        OSError: The version may be committed or not.
    """
    place = commit_file(log, version)
    try:
        os.link(prepared, place)
    except FileExistsError:
        # If a request is sent twice, for example by NFS, the second one finds the link of the first one.
        return os.path.samefile(prepared, place)  # noqa: PTH121  (as its siblings)
    finally:
        # The version is committed or not. A prepared file that stays does not change that.
        _remove(prepared)
    return True


def _remove(prepared: Path) -> None:
    with suppress(OSError):
        prepared.unlink()


#: The bytes that are kept free, or this part of a small disk.
_KEPT, _PART = 256 << 20, 32
#: The column that only rows of tasks have a value in.
_TASK = "task_id"


def require_space(table: Path, rows: pa.Table, gone: Sequence[DataFile]) -> None:
    """Refuse a commit that adds tasks to a tube if the disk is nearly full.

    Args:
        table: The directory of its table.
        rows: The rows that the commit writes.
        gone: The files that they replace.

    Raises:
        OSError: The disk is nearly full.
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
