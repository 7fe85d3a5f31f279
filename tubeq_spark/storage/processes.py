"""Asks the operating system about processes: the id of this host, and which processes run."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Host", "Processes", "processes"]

_PROC = Path("/proc")
#: Places in /proc/<pid>/stat behind the name, which may hold anything.
_STATE, _THREADS, _STARTED = 0, 17, 19
_DEAD = frozenset("ZXx")
_PS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Host:
    """The scope in which a process id is unique.

    Attributes:
        name: What the host is called.
        machine: The id of its installation; empty where there is none.
        boot: The system's id since it was started; empty where there is none.
        namespace: Of process ids: a container has one of its own; empty where there is none.
    """

    name: str
    machine: str = ""
    boot: str = ""
    namespace: str = ""


class Processes(Protocol):
    """The operating system's interface for processes."""

    def host(self) -> Host:
        """The scope of this process."""
        ...

    def started(self, pid: int) -> str | None:
        """The start time of a process, in any form; `None` if it does not run.

        A process that has ended does not run, also if its exit code was not read yet (a zombie).
        """
        ...

    def command(self, pid: int) -> str:
        """The command line of a process, with blanks between its arguments; empty if unknown."""
        ...


class _LinuxProcesses:
    def host(self) -> Host:
        machine = _text(Path("/etc/machine-id")).strip()
        boot = _text(_PROC / "sys/kernel/random/boot_id").strip()
        try:
            namespace = str((_PROC / "self/ns/pid").readlink())
        except OSError:
            namespace = ""
        return Host(platform.node(), machine, boot, namespace)

    def started(self, pid: int) -> str | None:
        fields = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
        if len(fields) <= _STARTED:
            return None
        # Where only the first thread has ended the others go on, under the state of the dead.
        if fields[_STATE] in _DEAD and int(fields[_THREADS]) <= 1:
            return None
        return fields[_STARTED]

    def command(self, pid: int) -> str:
        return _text(_PROC / str(pid) / "cmdline").replace("\0", " ").strip()


class _PosixProcesses:
    """The interface without /proc, such as on macOS."""

    def host(self) -> Host:
        return Host(platform.node())

    def started(self, pid: int) -> str | None:
        state, _, started = self._ps(pid, "stat=,lstart=").partition(" ")
        return None if not state or state[0] in _DEAD else started.strip()

    def command(self, pid: int) -> str:
        return self._ps(pid, "command=")

    @staticmethod
    def _ps(pid: int, columns: str) -> str:
        # Its dates are in the language of the user.
        environment = os.environ | {"LC_ALL": "C"}
        result = subprocess.run(  # noqa: S603  (no text of others)
            ["/bin/ps", "-ww", "-o", columns, "-p", str(pid)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=_PS_SECONDS,
            check=False,
        )
        return result.stdout.strip()


def _text(file: Path) -> str:
    """The contents of a file; empty if it does not exist."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def processes() -> Processes:
    """The processes of this host."""
    return _LinuxProcesses() if (_PROC / "self" / "stat").exists() else _PosixProcesses()
