"""Writes the next version of a log: as a whole, and only where it is not there yet."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage import disk
from tubeq_spark.storage.durability.log_names import commit_file
from tubeq_spark.storage.native.delta_log.actions import encoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["create"]


def create(
    log: Path, version: int, actions: Sequence[Mapping[str, Any]], *, synced: bool = False
) -> bool:
    """Commit actions as a version.

    What is stopped before it is there leaves a file that no reader knows, and that goes when the log is
    shortened.

    Args:
        log: The directory of the log.
        version: The version.
        actions: What it says.
        synced: Whether its content is to be on the disk before it has its name.

    Returns:
        Whether it is there; False: another commit came first.

    Raises:
        OSError: It cannot be written; it is not there.
    """
    # As the library names what it has not committed yet.
    prepared = log / f"_commit_{uuid.uuid4()}.json.tmp"
    place = commit_file(log, version)
    try:
        prepared.write_bytes(encoded(actions))
        if synced:
            disk.sync_file(prepared)
        os.link(prepared, place)
    except FileExistsError:
        # Where a request is sent twice, as by NFS, the second one meets what the first one did.
        return os.path.samefile(prepared, place)  # noqa: PTH121  (as its siblings)
    finally:
        # It is there, or it is not: that a name is left over changes neither.
        with suppress(OSError):
            prepared.unlink()
    return True
