"""The only place that names what Delta and Spark raise when a commit does not simply succeed."""

from __future__ import annotations

import contextlib
import re
from enum import Enum, auto

from delta import exceptions as delta_errors
from pyspark.errors import AnalysisException, PySparkException

# A classic installation may lack the Connect client's packages.
with contextlib.suppress(ImportError):
    # On Spark Connect the conflict classes are mapped only once this module is imported.
    import delta.connect.exceptions  # noqa: F401

__all__ = [
    "STALE",
    "Outcome",
    "classify",
    "is_missing_table",
    "raised_message",
]

#: What the guards in our statements raise: the rows they decided on are no longer there.
STALE = "tubeq:stale"

_CONFLICTS = (
    delta_errors.ConcurrentAppendException,
    delta_errors.ConcurrentDeleteReadException,
    delta_errors.ConcurrentDeleteDeleteException,
    delta_errors.ConcurrentTransactionException,
    delta_errors.ConcurrentWriteException,
    delta_errors.DeltaConcurrentModificationException,
    # Two creators of one table, or a property changed while we wrote.
    delta_errors.MetadataChangedException,
    delta_errors.ProtocolChangedException,
)
_MISSING = frozenset(
    {
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "TABLE_OR_VIEW_NOT_FOUND",
        "PATH_NOT_FOUND",
    }
)
#: Somebody else is creating the table: a directory of a log is there, but no commit in it.
_HALF_CREATED = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"

#: What the Connect client raises, this class itself, when no error of the engine reached it.
_UNANSWERED = "SparkConnectGrpcException"
#: A Connect server that forgot the statement, or started anew; half of an answer had come.
_UNHEARD = frozenset({"INVALID_HANDLE", "INVALID_CURSOR", "RESPONSE_ALREADY_RECEIVED"})
_RAISED = "USER_RAISED_EXCEPTION"
_RAISED_BELOW = re.compile(rf"\[{_RAISED}\] (tubeq:\w+)")


class Outcome(Enum):
    """What is known of a statement that raised."""

    CONFLICT = auto()
    """Another commit came first; nothing was written."""
    STALE = auto()
    """A guard of ours refused; nothing was written."""
    FAILED = auto()
    """The engine answered with an error of its own; whether it committed is in the history."""
    LOST = auto()
    """There was no answer; it may even still be running."""


def classify(error: BaseException) -> Outcome:
    """Tell a conflict from a refusal, an error and a lost answer."""
    if isinstance(error, _CONFLICTS) or _condition(error) == _HALF_CREATED:
        return Outcome.CONFLICT
    if raised_message(error) == STALE:
        return Outcome.STALE
    return Outcome.FAILED if _is_answer(error) else Outcome.LOST


def _is_answer(error: BaseException) -> bool:
    """Whether it is the engine that failed, and not the way to it."""
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        return type(error).__name__ != _UNANSWERED and condition.split(".")[0] not in _UNHEARD
    # An error that carries a Java exception is an answer, too, only of a class that PySpark does
    # not translate.
    return hasattr(error, "java_exception")


def raised_message(error: BaseException) -> str | None:
    """The text given to `raise_error` by the statement that failed."""
    if isinstance(error, PySparkException) and error.getCondition() == _RAISED:
        return (error.getMessageParameters() or {}).get("errorMessage")
    # Raised while a file is written, it is a cause: of an error of the Connect client in its text
    # alone, of a classic one as an exception of Java, which PySpark does not translate.
    if hasattr(error, "getStackTrace"):
        told = _RAISED_BELOW.search(error.getStackTrace() or "")
        return None if told is None else told[1]
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        named = cause.getClass().getName() == "org.apache.spark.SparkRuntimeException"
        if named and cause.getCondition() == _RAISED:
            return str(cause.getMessageParameters().get("errorMessage"))
        cause = cause.getCause()
    return None


def is_missing_table(error: BaseException) -> bool:
    """Whether a statement failed because its table does not exist."""
    return _condition(error) in _MISSING


def _condition(error: BaseException) -> str:
    """What an analysis met, without the finer distinctions."""
    found = error.getCondition() if isinstance(error, AnalysisException) else None
    return (found or "").split(".")[0]
