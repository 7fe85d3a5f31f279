"""Every error that tubeq_spark raises, grouped by what a handler would do.

```
TubeqError
├─ InvalidOptionError (ValueError)   bad name, type, option or value; nothing was written
├─ TubeNotFoundError (KeyError)
├─ TubeExistsError
├─ TubeBusyError                     tasks are taken, or it stayed full
├─ TaskNotFoundError (KeyError)      peek, bury, delete of an id that is not there
├─ NotTakenError                     not taken, taken by another session, or its ttr has passed
├─ SessionError
├─ QueueStateError                   a verb outside RUNNING
├─ ConflictError                     retries used up; nothing was written
├─ CommitUnknownError                may have landed; carries the operation's id
└─ StoreError                        unsafe, unsupported, unreadable or unreachable storage
   └─ QueueNotFoundError             no queue at the location
```
"""

from __future__ import annotations

__all__ = [
    "CommitUnknownError",
    "ConflictError",
    "InvalidOptionError",
    "NotTakenError",
    "QueueNotFoundError",
    "QueueStateError",
    "SessionError",
    "StoreError",
    "TaskNotFoundError",
    "TubeBusyError",
    "TubeExistsError",
    "TubeNotFoundError",
    "TubeqError",
]


class TubeqError(Exception):
    """Root of all errors of this package."""


class InvalidOptionError(TubeqError, ValueError):
    """A name, type, option or value is not allowed; nothing was written."""


class TubeNotFoundError(TubeqError, KeyError):
    """No tube of that name, or it was dropped."""

    # KeyError shows the repr of its argument; a sentence reads better as it is.
    __str__ = Exception.__str__


class TubeExistsError(TubeqError):
    """A tube of that name exists already."""


class TubeBusyError(TubeqError):
    """The tube still has taken tasks, or it stayed full for longer than a sink would wait."""


class TaskNotFoundError(TubeqError, KeyError):
    """No task of that id: never put, done, deleted or expired."""

    __str__ = Exception.__str__


class NotTakenError(TubeqError):
    """The task is not held by this session, or its lease has ended."""


class SessionError(TubeqError):
    """A session uuid is malformed, unknown or no longer alive."""


class QueueStateError(TubeqError):
    """The queue is not RUNNING: it was closed, or is being closed."""


class ConflictError(TubeqError):
    """Others committed first until the retries were used up; nothing was written."""


class CommitUnknownError(TubeqError):
    """The answer to a commit was lost, and storage does not tell: it has landed, or still may.

    A verb whose statement meets a Spark that is gone raises it, since the statement may have been sent.

    Attributes:
        operation_id: The number that only this operation's predicate holds; look for it in the
            `operationParameters` of the table's history.
        passes: Whether an object store did not answer any more, and may in a moment.
    """

    def __init__(
        self, message: str, operation_id: int | None = None, *, passes: bool = False
    ) -> None:
        super().__init__(message, operation_id)
        self.operation_id = operation_id
        self.passes = passes

    def __str__(self) -> str:
        return str(self.args[0])


class StoreError(TubeqError):
    """The storage is unsafe or unsupported, holds another format version, or failed.

    Also where Spark cannot be reached, or a table cannot be read: the cause stands in the message.
    Nothing was written by the verb that raises it.

    Attributes:
        passes: Whether the same verb may succeed in a moment: an object store was silent, refused the
            connection or answered that it is busy or broken. A verb that waits goes on waiting then.
    """

    def __init__(self, *args: object, passes: bool = False) -> None:
        super().__init__(*args)
        self.passes = passes


class QueueNotFoundError(StoreError):
    """There is no queue at the location, or no more. Nothing was made there."""
