"""The mark beside a table's lock file: the last synced version of its log, and the boot id.

A process that has synced a version writes it to this file, for the other processes of the host. The
mark itself need not be synced: after a power cut it may be an older one, with an earlier version.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.disk import mount_of
from tubeq_spark.storage.locks.committer import processes

if TYPE_CHECKING:
    from pathlib import Path

#: The suffix of the mark's file.
MARK_SUFFIX = ".synced"
#: A mark overwrites the one before it, so all have the same length.
_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Place:
    """The boot and the mount; unsynced data is lost if one of them changes.

    Attributes:
        machine: The host.
        boot: The boot of its system.
        mount: The mount of the file system.
    """

    machine: str
    boot: str
    mount: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The synced version of a log, with its boot and mount.

    Attributes:
        version: The version; -1 if none is synced.
        place: The boot and mount at that time.
    """

    version: int
    place: Place


class MarkFile:
    """The mark of one table."""

    def __init__(self, path: Path) -> None:
        """Use a file, which may not exist yet."""
        self._path = path

    def read(self) -> Mark | None:
        """The mark; `None` if it cannot be read."""
        try:
            found = json.loads(self._path.read_bytes())
            return Mark(int(found["version"]), Place(**found["place"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, mark: Mark) -> None:
        """Replace the mark.

        Raises:
            OSError: The file cannot be written.
        """
        text = json.dumps(asdict(mark)).encode().ljust(_LENGTH)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            # One write, so that another process reads this mark or the one before it.
            os.write(file, text)
        finally:
            os.close(file)


def place_of(path: Path) -> Place:
    """The current boot and mount of a path."""
    machine, boot = _host()
    return Place(machine, boot, mount_of(path))


@functools.cache
def _host() -> tuple[str, str]:
    host = processes().host()
    return f"{host.machine} {host.name}", host.boot
