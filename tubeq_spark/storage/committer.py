"""The JVM that commits for a process, noted beside a lock file while it may commit.

Python holds the lock file, and releases it at the moment when Python is killed. Its JVM lives for a
while longer, a Spark Connect server for as long as it likes, and a statement that runs there still
commits. So the next holder of the lock must know whether another JVM may still be committing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.processes import Host, Processes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Committer", "CommitterFile"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committer:
    """A JVM that may be committing.

    Attributes:
        application: The id of its Spark application, where the process id alone does not tell which
            JVM is meant: it may be in a container of its own.
        pid: Its process id; `None` when it could not be asked.
        host: Where the process id means something; `None` when it is not visible from where it was
            noted, as that of a Connect server in a container of its own.
        started: When the process was started.
    """

    application: str
    pid: int | None = None
    host: Host | None = None
    started: str | None = None

    def is_same(self, other: Committer) -> bool:
        """Whether both are the same JVM, in which Delta itself detects conflicts."""
        if self.pid is None or self.pid != other.pid:
            return self == other
        if self.host is not None and other.host is not None:
            return (self.host, self.started) == (other.host, other.started)
        # A JVM whose context was stopped and started again has a new name.
        return self.application == other.application

    def is_gone(self, here: Processes) -> bool:
        """Whether it has certainly ended; a JVM that cannot be seen may be alive."""
        if self.pid is None or self.host is None:
            return False
        noted, host = self.host, here.host()
        if noted.boot and host.boot and noted.boot != host.boot:
            # The host was started anew, or it is another one; without its id nobody can tell.
            return bool(host.machine) and (noted.machine, noted.name) == (host.machine, host.name)
        if (noted.boot, noted.namespace) != (host.boot, host.namespace):
            return False
        if not host.boot and noted != host:
            return False
        return here.started(self.pid) != self.started

    def __str__(self) -> str:
        """Its name in messages."""
        process = "an unknown process" if self.pid is None else f"process {self.pid}"
        return process if self.host is None else f"{process} on {self.host.name}"


#: Replaces a note that cannot be read.
_UNKNOWN = Committer("")


class CommitterFile:
    """The note of one table; read and written by whoever has the table's lock file."""

    def __init__(self, file: Path) -> None:
        """Use a file, which may not exist yet."""
        self.path = file

    def read(self) -> Committer | None:
        """The JVM that may be committing; `None` if none is."""
        try:
            text = self.path.read_text(errors="replace")
        except FileNotFoundError:
            return None
        if not text:
            return None
        try:
            known = json.loads(text)
            host = known.pop("host")
            return Committer(**known, host=None if host is None else Host(**host))
        except (ValueError, TypeError, KeyError, AttributeError):
            return _UNKNOWN

    def write(self, committer: Committer) -> None:
        """Note the JVM that may be committing from now on."""
        text = json.dumps(asdict(committer)).encode()
        # One write: a process that is killed has written all of it or nothing.
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            os.write(file, text)
        finally:
            os.close(file)

    def is_cleared(self) -> bool:
        """Note that no JVM is committing; return whether that could be written."""
        try:
            self.clear()
        except OSError:
            log.warning("%s cannot be cleared: others wait for this process's JVM", self.path)
            return False
        return True

    def clear(self) -> None:
        """Note that no JVM is committing."""
        # Somebody may have removed it, as the error that names it says.
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path, 0)
