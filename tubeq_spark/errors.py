"""All errors that tubeq_spark raises.

```
TubeqError
├─ InvalidOptionError (ValueError)   bad name, type, option or value; nothing was written
├─ TubeNotFoundError (KeyError)
├─ TubeExistsError
├─ TubeBusyError                     tasks are taken, or the tube stayed full
├─ TaskNotFoundError (KeyError)      peek, bury, delete of an unknown id
├─ NotTakenError                     not taken, taken by another session, or its lease has ended
├─ SessionError
├─ QueueStateError                   a verb outside RUNNING
├─ ConflictError                     other commits won every retry
├─ CommitUnknownError                may have succeeded; carries the operation's id
└─ StoreError                        unsafe, unsupported, unreadable or unreachable storage
   ├─ QueueNotFoundError             no queue at the location
   └─ TubeMovedError                 the tube is used at another place
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
    "TubeMovedError",
    "TubeNotFoundError",
    "TubeqError",
]


class TubeqError(Exception):
    """Root of all errors of this package."""


class InvalidOptionError(TubeqError, ValueError):
    """A name, type, option or value is not allowed; nothing was written."""


class TubeNotFoundError(TubeqError, KeyError):
    """No tube has that name, or it was dropped."""

    # KeyError shows the repr of its argument, but a sentence needs no quotes.
    __str__ = Exception.__str__


class TubeExistsError(TubeqError):
    """A tube of that name already exists."""


class TubeBusyError(TubeqError):
    """Tasks are taken, a sink's tube stayed full, or a queue changed while it was copied."""


class TaskNotFoundError(TubeqError, KeyError):
    """No task has that id: it was never put, or is done, deleted or expired."""

    __str__ = Exception.__str__


class NotTakenError(TubeqError):
    """The task is not held by this session, or its lease has ended."""


class SessionError(TubeqError):
    """A session uuid is malformed, unknown or no longer alive."""


class QueueStateError(TubeqError):
    """The queue is not RUNNING: it was closed, or is being closed."""


class ConflictError(TubeqError):
    """Other commits won every retry. A verb on tasks that raises it wrote nothing; call it again."""


class CommitUnknownError(TubeqError):
    """The answer to a commit was lost, and the log did not tell whether the commit succeeded.

    The commit may have succeeded, or may still succeed. A verb also raises this error if Spark
    became unreachable during its statement, because the statement may have been sent. Repeat the call:
    a put that has a `unique` or `key` adds nothing twice, and an ack that has succeeded raises
    `NotTakenError`. The session releases the tasks of a take by itself.

    Attributes:
        operation_id: A number that only this commit has, as `marker=` in its note; look for it in the
            `userMetadata` and the `operationParameters` of the table's history.
        passes: Whether the cause was an object store that did not answer, and may answer in a
            moment.
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

    It is also raised if Spark cannot be reached or a table cannot be read. The message has the
    cause. A verb on tasks that raises it wrote nothing.

    Attributes:
        passes: Whether the same verb may succeed in a moment, because an object store did not
            answer, refused the connection, or answered that it is busy or failed. Waiting verbs
            then try again by themselves.
    """

    def __init__(self, *args: object, passes: bool = False) -> None:
        super().__init__(*args)
        self.passes = passes


class QueueNotFoundError(StoreError):
    """The location has no queue, or its queue was removed. Nothing was created."""


class TubeMovedError(StoreError):
    """The tube was moved to another place by `Queue.copy_to(close=True)`; use the queue there."""
