"""How programs end: an exit code for each error, with its meaning and what to do, in one table."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import IntEnum

from tubeq_spark.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidOptionError,
    NotTakenError,
    QueueNotFoundError,
    QueueStateError,
    SessionError,
    StoreError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
    TubeqError,
)

__all__ = ["ENDINGS", "BadUseError", "Ending", "ExitCode", "code_of"]


class ExitCode(IntEnum):
    """How a program ended: the same numbers in `tubeq` and in the programs of `jobs/`."""

    DONE = 0
    #: Nothing was there to take, or a full tube took nothing.
    NOTHING = 1
    #: A check found some, which are left.
    PROBLEMS = 1
    #: Another call can mend it: what was asked for is unknown, or not allowed.
    BAD_USE = 2
    FAILED = 3
    #: By Ctrl-C and SIGTERM: 128 and the signal's number, as shells have it.
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


class BadUseError(Exception):
    """The program cannot do what it was asked; the message says why. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ends by an error.

    Attributes:
        error: The class of the error.
        code: The exit code.
        meaning: What has happened.
        help: What to do.
    """

    error: type[Exception]
    code: ExitCode
    meaning: str
    help: str


#: Those of a class stand before those of the class that it is derived from.
ENDINGS = (
    Ending(
        InvalidOptionError,
        ExitCode.BAD_USE,
        "A name, type, option or value is not allowed; nothing was written.",
        "Correct what the message names.",
    ),
    Ending(
        TubeNotFoundError,
        ExitCode.BAD_USE,
        "No tube has this name, or it was dropped.",
        "Look at `queue.tubes()`; create the tube.",
    ),
    Ending(
        TubeExistsError,
        ExitCode.BAD_USE,
        "A tube of this name is there; the message says how it differs.",
        "Use it (`if_not_exists=True`), or take another name.",
    ),
    Ending(
        TubeBusyError,
        ExitCode.BAD_USE,
        "Tasks of the tube are taken, or a sink found no room for too long.",
        "Wait for the consumers, or `release_all` and drop again; take tasks, so that there is room.",
    ),
    Ending(
        TaskNotFoundError,
        ExitCode.BAD_USE,
        "No task has this id: it is done, deleted or expired, or never was.",
        "Nothing, if another consumer may have done it.",
    ),
    Ending(
        NotTakenError,
        ExitCode.BAD_USE,
        "This session does not hold the task: its time to run has ended, or it never took it.",
        "The task is somebody else's, or ready again; give more time by `ttr` or `touch`.",
    ),
    Ending(
        SessionError,
        ExitCode.BAD_USE,
        "The session is unknown or no longer alive.",
        "Take again; what it held is ready for everybody.",
    ),
    Ending(
        QueueStateError,
        ExitCode.FAILED,
        "The queue object was closed, or is being closed.",
        "Open another one.",
    ),
    Ending(
        ConflictError,
        ExitCode.FAILED,
        "Others committed first until the retries were used up; nothing was written.",
        "Try again; use larger batches, or more tubes.",
    ),
    Ending(
        CommitUnknownError,
        ExitCode.FAILED,
        "The answer to a commit was lost, and nobody can tell whether it is there.",
        "Look before you repeat it: the runbook says how.",
    ),
    Ending(
        QueueNotFoundError,
        ExitCode.BAD_USE,
        "There is no queue at the location, or no more.",
        "Look for a misspelt location; `tubeq create` makes a queue.",
    ),
    Ending(
        StoreError,
        ExitCode.FAILED,
        "The storage failed, is not supported or cannot be reached; the message has the cause. The "
        "verb has written nothing.",
        "Mend what the message names; where `passes` is true, try again in a moment.",
    ),
    Ending(
        TubeqError, ExitCode.FAILED, "Any of the errors above.", "As of the one that was raised."
    ),
)
#: What else another call can mend: a file or directory that the program was given, a missing package.
_BAD_USES = (
    BadUseError,
    FileNotFoundError,
    IsADirectoryError,
    ModuleNotFoundError,
    PermissionError,
)


def code_of(error: BaseException) -> ExitCode:
    """How a program ends by an error."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, _BAD_USES) or isinstance(error.__cause__, ModuleNotFoundError):
        return ExitCode.BAD_USE
    found = (ending.code for ending in ENDINGS if isinstance(error, ending.error))
    return next(found, ExitCode.FAILED)
