"""What locks know of Spark: the JVM that commits for a process, and the queue objects that read a location with Spark.

Python holds the lock file, and the lock ends when Python is killed. Its JVM lives a while longer. A statement that runs
there may still commit. So the next holder of the lock must know whether another JVM may still be committing: a note
beside the lock file names it.

Spark lists a table's log and reads the listed files when it plans a statement, which may take long. So a queue object
that returns DataFrames, or whose verbs Spark runs, holds a shared lock on a file until it is closed. A process that wants
to shorten a log tries to get this lock exclusively. The system releases the lock when a process ends in any way.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import platform
import weakref
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.errors import CommitUnknownError, StoreError, TubeqError
from tubeq_spark.storage.engine import Outcome, outcome_of
from tubeq_spark.storage.store.local_files import using

if TYPE_CHECKING:
    from collections.abc import Iterator


try:
    fcntl: Any = importlib.import_module("fcntl")
except ImportError:
    # On Windows.
    fcntl = None

log = logging.getLogger(__name__)

#: The suffix of the note's file.
NOTE_SUFFIX = ".committing"
#: Seconds between two checks whether another process's JVM has ended, and seconds of the whole wait.
_LOOK, _PATIENCE = 0.05, 30.0
_PROC = Path("/proc")
#: Indexes of fields in /proc/<pid>/stat after the name, which may have any characters.
_STATE, _THREADS, _STARTED = 0, 17, 19
_DEAD = frozenset("ZXx")


def is_answered(error: Exception) -> bool:
    """Whether a statement that raised is known to have ended."""
    if isinstance(error, TubeqError):
        return not isinstance(error, CommitUnknownError)
    return outcome_of(error) is not Outcome.LOST


@dataclass(frozen=True, slots=True)
class Host:
    """The scope in which a process id is unique.

    Attributes:
        name: The name of the host.
        machine: The id of its installation; empty if it has none.
        boot: The id of the system's boot; empty if it has none.
        namespace: The namespace of process ids, of which each container has its own; empty if there is none.
    """

    name: str
    machine: str = ""
    boot: str = ""
    namespace: str = ""


class SystemProcesses:
    """The processes that this system shows in /proc. On one without it, such as macOS, none is seen."""

    def host(self) -> Host:
        """The scope of this process."""
        machine = _text(Path("/etc/machine-id")).strip()
        boot = _text(_PROC / "sys/kernel/random/boot_id").strip()
        try:
            namespace = str((_PROC / "self/ns/pid").readlink())
        except OSError:
            namespace = ""
        return Host(platform.node(), machine, boot, namespace)

    def started(self, pid: int) -> str | None:
        """The start time of a process, in any form; `None` if it does not run.

        A process that has ended does not run, also if its exit code was not read yet (a zombie).
        """
        fields = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
        if len(fields) <= _STARTED:
            return None
        # If only the first thread has ended, the process has the state of a zombie, but its other threads go on.
        if fields[_STATE] in _DEAD and int(fields[_THREADS]) <= 1:
            return None
        return fields[_STARTED]


def _text(file: Path) -> str:
    """The contents of a file; empty if it does not exist."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Committer:
    """A JVM that may be committing. Equal ones are the same JVM, in which Delta itself detects conflicts.

    Attributes:
        pid: Its process id; `None` if it could not be read.
        host: The scope in which the process id is unique; `None` if the process cannot be seen from here.
        started: The start time of the process; of one that cannot be seen, a text that no other one has.
    """

    pid: int | None = None
    host: Host | None = None
    started: str | None = None

    def is_gone(self, here: SystemProcesses) -> bool:
        """Whether it has certainly ended. A JVM that cannot be seen may be alive."""
        if self.pid is None or self.host is None:
            return False
        noted, host = self.host, here.host()
        if noted.boot and host.boot and noted.boot != host.boot:
            # The host was restarted, or it is another host. Without the id of the machine both look the same.
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


#: The committer of a process that has no JVM, and waits for those of all others.
NO_JVM = Committer()
#: Replaces a note that cannot be read.
_UNKNOWN = Committer(started="unknown")


class JvmNote:
    """The note beside a table's lock file. The holder of that file reads and writes it."""

    def __init__(
        self, lock_file: Path, wall: Clock | None = None, here: SystemProcesses | None = None
    ) -> None:
        """Use the note of a table, which may not exist yet.

        Args:
            lock_file: The table's lock file.
            wall: The clock; real time by default.
            here: The processes of this host; by default those of the system.
        """
        self.path = lock_file.with_suffix(NOTE_SUFFIX)
        self._wall = SystemClock() if wall is None else wall
        self._here = SystemProcesses() if here is None else here
        #: Whether a statement without an answer may still be running in this process's own JVM.
        self.is_left = False

    def wait_for_others(self, jvm: Committer) -> None:
        """Wait until no other JVM can be committing.

        Args:
            jvm: The JVM that will commit.

        Raises:
            StoreError: After the whole wait another JVM may still be committing.
        """
        left = self.read()
        self.is_left = left == jvm
        if left is None or self.is_left:
            return
        until = self._wall.monotonic() + _PATIENCE
        if not left.is_gone(self._here):
            log.warning("%s: %s may still be committing: waiting for its end", self.path, left)
        while not left.is_gone(self._here):
            if self._wall.monotonic() >= until:
                raise StoreError(
                    f"{left} may still be committing for a client that was killed or interrupted, and "
                    f"would overwrite what others commit; nothing was written. End that process; if "
                    f"it has ended, or runs no statement of this table, remove {self.path}"
                )
            self._wall.sleep(_LOOK)
        self._clear()

    def begin(self, jvm: Committer) -> None:
        """Note the JVM that may be committing from now on.

        Raises:
            StoreError: The note cannot be written.
        """
        if not self.is_left:
            with using(self.path):
                self.write(jvm)

    def end(self, *, has_ended: bool) -> None:
        """Clear the note, if all statements are known to have ended.

        A note that stays makes other processes wait for this process's JVM, but not this one.
        """
        if self.is_left:
            return
        self.is_left = not has_ended
        if has_ended:
            try:
                self._clear()
            except OSError:
                log.warning("%s cannot be cleared: others wait for this process's JVM", self.path)
                self.is_left = True

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
        """Write the note; raises OSError."""
        text = json.dumps(asdict(committer)).encode()
        # One write, so that a process that is killed has written all of it or nothing.
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            os.write(file, text)
        finally:
            os.close(file)

    def _clear(self) -> None:
        # A user may have removed the file, as an error message suggests.
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path, 0)


_FILE = "spark.readers"


class LogReaders:
    """The shared lock of one queue object that reads a location with Spark."""

    def __init__(self, locks: Path | None) -> None:
        """Begin without the lock.

        Args:
            locks: The location's directory of lock files; `None` if logs are not shortened there.
        """
        self._locks = locks
        self._left: weakref.finalize[..., LogReaders] | None = None

    def enter(self) -> None:
        """Hold the shared lock until `leave`; a second call does nothing."""
        if self._locks is None or self._left is not None:
            return
        # Without such locks `without_readers` always yields False.
        with suppress(AttributeError, OSError):
            file = _opened(self._locks)
            self._left = weakref.finalize(self, os.close, file)
            fcntl.flock(file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Release the lock."""
        left, self._left = self._left, None
        if left is not None:
            left()


@contextmanager
def without_readers(locks: Path) -> Iterator[bool]:
    """Exclude readers with Spark during a block, if none reads now.

    Args:
        locks: The location's directory of lock files.

    Yields:
        Whether no process reads. It is False if that is unknown, or if no lock keeps writers apart.
    """
    file, is_held = None, False
    with suppress(AttributeError, OSError):
        file = _opened(locks)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = True
    try:
        yield is_held
    finally:
        if is_held:
            # Closing is not enough, because a child process may have the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
        if file is not None:
            os.close(file)


def _opened(locks: Path) -> int:
    return os.open(locks / _FILE, os.O_RDONLY | os.O_CREAT, 0o644)
