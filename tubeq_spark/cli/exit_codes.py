"""The exit codes of programs: a table with the code, the meaning and the help for each error."""

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


class ExitCode(IntEnum):
    """The exit code of a program, the same in `tubeq` and in the programs of `jobs/`."""

    DONE = 0
    #: No task was ready, or a full tube refused a put.
    NOTHING = 1
    #: A check found some that are left, or something wants attention.
    PROBLEMS = 1
    #: The user can correct the call: an option, tube or value is unknown or not allowed.
    BAD_USE = 2
    FAILED = 3
    #: Stopped by Ctrl-C or SIGTERM: 128 plus the signal's number, as in shells.
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


#: What each code says, of whatever program.
MEANINGS = {
    ExitCode.DONE: "Done. `top` was left; `consume` and `sweeper` without `--once` were stopped by a signal after "
    "the work in hand.",
    ExitCode.NOTHING: "Nothing was there to take (`take`), a full tube took nothing (`put`, `enqueue`), `check` found "
    "damage that is left, or something wants attention (`health`).",
    ExitCode.BAD_USE: "Bad use, or refused: another call can mend it. An unknown option, tube, task, session or "
    "queue, a value that is not allowed, no such file or handler, a package that is not installed, a question that "
    "was not answered with yes.",
    ExitCode.FAILED: "Failed: the storage, Spark, a handler or a command, a tube that could not be swept.",
    ExitCode.INTERRUPTED: "Stopped by Ctrl-C before the end.",
    ExitCode.TERMINATED: "Stopped by SIGTERM before the end.",
}


class BadUseError(Exception):
    """The program was called wrongly; the message says why. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The exit code of an error, with its meaning and help.

    Attributes:
        error: The class of the error.
        code: The exit code.
        meaning: The meaning of the error.
        help: What to do.
    """

    error: type[Exception]
    code: ExitCode
    meaning: str
    help: str


#: A class stands before the classes that it is derived from.
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
        "A tube of this name exists; the message says how it differs.",
        "Use that tube (`if_not_exists=True`), or choose another name.",
    ),
    Ending(
        TubeBusyError,
        ExitCode.BAD_USE,
        "Tasks of the tube are taken, or the tube stayed full for the timeout of a sink.",
        "Wait for the consumers, or call `release_all` and drop again; of a full tube, take tasks.",
    ),
    Ending(
        TaskNotFoundError,
        ExitCode.BAD_USE,
        "No task has this id: it is done, deleted or expired, or was never put.",
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
        "Take again; the tasks of the dead session are ready.",
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
        "The verb lost conflicts until its retries were used up; nothing was written.",
        "Try again; use larger batches, or more tubes.",
    ),
    Ending(
        CommitUnknownError,
        ExitCode.FAILED,
        "The answer to a commit was lost, and the verb could not find out whether it succeeded.",
        "Before you repeat it, find out whether it succeeded: the runbook says how.",
    ),
    Ending(
        QueueNotFoundError,
        ExitCode.BAD_USE,
        "The location has no queue, or its queue was removed.",
        "Check the spelling of the location; `tubeq create` creates a queue.",
    ),
    Ending(
        StoreError,
        ExitCode.FAILED,
        "The storage failed, is not supported or cannot be reached; the message has the cause. The "
        "verb has written nothing.",
        "Fix the cause that the message names; if `passes` is true, try again in a moment.",
    ),
    Ending(
        TubeqError, ExitCode.FAILED, "Any of the errors above.", "See the error that was raised."
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
    """Return the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, _BAD_USES) or isinstance(error.__cause__, ModuleNotFoundError):
        return ExitCode.BAD_USE
    found = (ending.code for ending in ENDINGS if isinstance(error, ending.error))
    return next(found, ExitCode.FAILED)
