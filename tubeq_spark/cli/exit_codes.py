"""The exit codes of programs. `docs/reference/errors.md` has what each error means, and what to do."""

from __future__ import annotations

import signal
from enum import IntEnum

from tubeq_spark import errors


class ExitCode(IntEnum):
    """The exit code of a program, the same in `tubeq` and in the programs of `jobs/`."""

    #: It ended as asked, whatever single tasks did: also idle, with nothing to do, or stopped by a first signal.
    DONE = 0
    #: There was no task to take, or no room, or a check found problems.
    NO = 1
    #: The user can correct the call: an option, tube or value is unknown or not allowed.
    BAD_USE = 2
    #: The storage or the program failed.
    FAILED = 3
    #: Only with `--strict`: tasks failed or were buried.
    TASKS_FAILED = 4
    #: Work was cut off by Ctrl-C or SIGTERM: 128 plus the signal's number, as in shells.
    INTERRUPTED = 128 + signal.SIGINT
    #: The reader of its output closed the pipe: 128 plus SIGPIPE.
    PIPE_CLOSED = 141
    TERMINATED = 128 + signal.SIGTERM


#: The end of each program's help.
EPILOG = (
    "Exit codes: 0 ended as asked, 1 no task, no room or problems found, 2 bad use, 3 failed, 4 tasks "
    "failed (only with --strict), 130 or 143 cut off by a signal."
)


class BadUseError(Exception):
    """The program was called wrongly; the message says why. Nothing was written."""


#: Errors that the user can fix by another call, including those of a given file or directory, or of a missing package.
_BAD_USES = (
    errors.InvalidOptionError,
    errors.TubeNotFoundError,
    errors.TubeExistsError,
    errors.TubeBusyError,
    errors.TubeMovedError,
    errors.TaskNotFoundError,
    errors.NotTakenError,
    errors.SessionError,
    errors.QueueNotFoundError,
    BadUseError,
    FileNotFoundError,
    IsADirectoryError,
    ModuleNotFoundError,
    PermissionError,
)


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        # The stop of a program says which signal cut it off.
        return ExitCode(128 + error.args[0]) if error.args else ExitCode.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return ExitCode.PIPE_CLOSED
    if isinstance(error, _BAD_USES) or isinstance(error.__cause__, ModuleNotFoundError):
        return ExitCode.BAD_USE
    return ExitCode.FAILED
