"""Refuses local directories where lock files or hard links do not work."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.location import local_directory

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.location import Location

__all__ = ["on_databricks", "refuse_mounts", "require_links"]

#: Object stores that Databricks shows as directories; each driver has its own cache of them.
_MOUNTS = ("Volumes", "dbfs")
#: How a file system says that it has no hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
#: Directories of lock files whose file system is known to have them.
_linked: set[Path] = set()
_looking = threading.Lock()


def on_databricks() -> bool:
    """Whether this process runs on Databricks, in a notebook or a job."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def refuse_mounts(location: Location) -> None:
    """Refuse a directory of an object store on Databricks.

    Raises:
        StoreError: It is one.
    """
    directory = None if location.in_catalog else local_directory(location.text)
    if directory is None or not on_databricks():
        return
    for place in (directory, directory.resolve()):
        root = place.parts[1:2]
        if root and root[0] in _MOUNTS:
            msg = (
                f"{directory} is an object store that Databricks shows as a directory: lock files and hard "
                "links there keep no two drivers apart, and tasks would be lost. Name a schema "
                "(catalog.schema), or the store itself (abfss://…, s3://…, gs://…) with storage_options"
            )
            raise StoreError(msg)


def require_links(locks: Path) -> None:
    """Refuse a file system without hard links; a process checks it once.

    Args:
        locks: The location's directory of lock files.

    Raises:
        StoreError: It has none.
    """
    with _looking:
        if locks in _linked:
            return
        name = locks / f"_links-{uuid.uuid4()}"
        other = name.with_suffix(".link")
        try:
            # A process without write permission can still read; other errors appear at their next
            # use.
            with suppress(OSError):
                name.touch()
                _link(name, other)
                _linked.add(locks)
        finally:
            for file in (name, other):
                with suppress(OSError):
                    file.unlink()


def _link(name: Path, other: Path) -> None:
    try:
        os.link(name, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        msg = (
            f"{name.parent} is on a file system without hard links, by which the native engine commits "
            f"({error.strerror}): put the queue on one that has them (ext4, xfs, btrfs, APFS, NTFS), or open "
            "it with a Spark session and engine='spark'"
        )
        raise StoreError(msg) from error
