"""Recognises conflicts and lost answers: the only place that names errors of the library."""

from __future__ import annotations

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tubeq_spark.storage.spark.conflicts import Outcome
from tubeq_spark.storage.statement import STALE

__all__ = ["RefusedError", "is_conflict", "is_from_library", "is_missing_table", "outcome_of"]

#: How the library begins when another commit came first. It gives the same class to a storage that
#: failed while a commit was written.
_CONFLICTS = (
    "Failed to commit transaction",
    "Tried committing existing table version",
    "Transaction failed: Failed to commit transaction",
)
#: A directory of this host answers at once or not at all: no answer of it gets lost.
_LOCAL = "LocalFileSystem"


class RefusedError(Exception):
    """A row that a statement would change is no longer as it was: nothing was written."""

    def __init__(self) -> None:
        super().__init__(STALE)


def outcome_of(error: BaseException) -> Outcome:
    """Tell a conflict from a refusal, an error and a lost answer."""
    if isinstance(error, RefusedError):
        return Outcome.STALE
    if isinstance(error, CommitFailedError) and str(error).startswith(_CONFLICTS):
        return Outcome.CONFLICT
    if isinstance(error, (CommitFailedError, OSError)):
        return Outcome.FAILED if _LOCAL in str(error) else Outcome.LOST
    return Outcome.FAILED


def is_missing_table(error: BaseException) -> bool:
    """Whether it was raised because a table does not exist."""
    return isinstance(error, TableNotFoundError)


def is_from_library(error: BaseException) -> bool:
    """Whether the library, or the storage below it, raised it."""
    # What DataFusion fails with comes as a plain Exception.
    return isinstance(error, (DeltaError, OSError)) or type(error) is Exception


def is_conflict(error: BaseException) -> bool:
    """Whether another commit came first, and nothing was written."""
    return outcome_of(error) is Outcome.CONFLICT
