"""Which errors of the storage may pass: work goes on after them, and tries again later."""

from __future__ import annotations

from tubeq_spark.errors import CommitUnknownError, ConflictError, StoreError

#: Those that may; of a `StoreError` `require_passing` tells.
OF_STORAGE = (ConflictError, CommitUnknownError, StoreError)


def require_passing(error: Exception) -> None:
    """Raise what does not pass by itself.

    Raises:
        StoreError: As given.
    """
    if isinstance(error, StoreError) and not error.passes:
        raise error
