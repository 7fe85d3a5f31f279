"""The errors of the storage that may pass: a loop goes on after them, and tries again later."""

from __future__ import annotations

from tubeq_spark.errors import CommitUnknownError, ConflictError, StoreError

#: Errors that may pass. For a `StoreError`, `require_passing` decides.
OF_STORAGE = (ConflictError, CommitUnknownError, StoreError)


def require_passing(error: Exception) -> None:
    """Raise an error that does not pass by itself.

    Raises:
        StoreError: The error itself.
    """
    if isinstance(error, StoreError) and not error.passes:
        raise error
