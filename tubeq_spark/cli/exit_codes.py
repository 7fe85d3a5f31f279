"""The exit codes of programs. `docs/reference/errors.md` has what each error means, and what to do."""

from __future__ import annotations

import signal
from enum import IntEnum

from tubeq_spark.errors import (
    InvalidOptionError,
    NotTakenError,
    QueueNotFoundError,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
)


class ExitCode(IntEnum):
    """The exit code of a program, the same in `tubeq` and in the programs of `jobs/`."""

    DONE = 0
    #: No task was ready, or a full tube refused a put.
    NOTHING = 1
    #: A check found damage that is left, or a problem needs attention.
    PROBLEMS = 1
    #: The user can correct the call: an option, tube or value is unknown or not allowed.
    BAD_USE = 2
    FAILED = 3
    #: Stopped by Ctrl-C or SIGTERM: 128 plus the signal's number, as in shells.
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


class BadUseError(Exception):
    """The program was called wrongly; the message says why. Nothing was written."""


#: Errors that the user can fix by another call, including those of a given file or directory, or of a missing package.
_BAD_USES = (
    InvalidOptionError,
    TubeNotFoundError,
    TubeExistsError,
    TubeBusyError,
    TaskNotFoundError,
    NotTakenError,
    SessionError,
    QueueNotFoundError,
    BadUseError,
    FileNotFoundError,
    IsADirectoryError,
    ModuleNotFoundError,
    PermissionError,
)


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, _BAD_USES) or isinstance(error.__cause__, ModuleNotFoundError):
        return ExitCode.BAD_USE
    return ExitCode.FAILED
