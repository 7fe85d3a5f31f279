"""Recognises conflicts and lost answers; no other module names errors of Delta and Spark."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from pyspark.errors import PySparkException

from tubeq_spark.storage.expression import STALE
from tubeq_spark.storage.outcome import Outcome

# Conflicts are recognised by their names, since versions of delta-spark differ in what they make of
# them. These imports let those versions translate that can. A classic installation may lack the
# Connect client's packages.
with contextlib.suppress(ImportError):
    import delta.exceptions
with contextlib.suppress(ImportError):
    import delta.connect.exceptions  # noqa: F401

#: What Delta calls its conflicts, in Java and in Python.
_CONFLICTS = frozenset(
    {
        "ConcurrentAppendException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentDeleteReadException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "DeltaConcurrentModificationException",
        # Two creators of one table, or a property changed while we wrote.
        "MetadataChangedException",
        "ProtocolChangedException",
    }
)
#: The class of the SQL standard that Delta and Databricks give to them; sub-conditions differ by version.
_CONFLICT_STATE = "2D521"
_CONFLICT_CONDITIONS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
#: Where these classes are in Java: open Delta's from 4.0 on, its internal ones, and Databricks'.
_PACKAGES = frozenset(
    {"io.delta.exceptions", "org.apache.spark.sql.delta", "com.databricks.sql.transaction.tahoe"}
)
_MISSING = frozenset(
    {
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "TABLE_OR_VIEW_NOT_FOUND",
        "PATH_NOT_FOUND",
    }
)
#: What a platform answers that does not have a feature: serverless compute, a client. Most such answers
#: are told by their class in the SQL standard.
_REFUSED = frozenset({"NOT_SUPPORTED_WITH_SERVERLESS", "NOT_IMPLEMENTED"})
_FEATURE_NOT_SUPPORTED = "0A"
#: Somebody else is creating the table: a directory of a log is there, but no commit in it.
_HALF_CREATED = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"

#: What the Connect client raises, this class itself and without a sign of the engine, when no error
#: of the engine reached it.
_UNANSWERED = "SparkConnectGrpcException"
#: A Connect server that forgot the statement, or started anew; half of an answer had come.
_UNHEARD = frozenset({"INVALID_HANDLE", "INVALID_CURSOR", "RESPONSE_ALREADY_RECEIVED"})
#: How a trace of Java begins, and a message of the Connect client.
_TRACE, _REASON = re.compile(r"([\w.$]+)"), re.compile(r"\((\w+(?:\.[\w$]+)+)\) ")
_RAISED = "USER_RAISED_EXCEPTION"
_RAISED_BELOW = re.compile(rf"\[{_RAISED}\] (tubeq:\w+)")


def classify(error: BaseException) -> Outcome:
    """Classify an error: conflict, refusal, error or lost answer."""
    if _is_conflict(error) or _condition(error) == _HALF_CREATED:
        return Outcome.CONFLICT
    if raised_message(error) == STALE:
        return Outcome.STALE
    return Outcome.FAILED if _is_answer(error) else Outcome.LOST


def _is_conflict(error: BaseException) -> bool:
    """Whether the error itself is one of Delta's conflicts, by the first clear sign.

    Never a cause of it: what fails after the commit, such as a hook, may have met a conflict of
    its own.
    """
    if any(
        kind.__name__ in _CONFLICTS and kind.__module__.split(".")[0] == "delta"
        for kind in type(error).__mro__
    ):
        return True
    condition = _condition(error)
    if condition:
        return condition.startswith(_CONFLICT_CONDITIONS) or _state(error) == _CONFLICT_STATE
    package, _, name = _thrown(error).rpartition(".")
    return name in _CONFLICTS and package in _PACKAGES


def _thrown(error: BaseException) -> str:
    """The Java class of the engine's error; "" if unknown."""
    # The way to a Java exception may be closed.
    with contextlib.suppress(Exception):
        if hasattr(error, "java_exception"):
            return str(error.java_exception.getClass().getName())
        if hasattr(error, "getStackTrace"):
            # Where the Connect client has no class of its own for it, and no trace was sent, it
            # writes the Java class before the message.
            told = _TRACE.match(error.getStackTrace() or "") or _REASON.match(str(error))
            return "" if told is None else told[1]
    return ""


def _is_answer(error: BaseException) -> bool:
    """Whether the engine itself failed, and not the connection to it."""
    if isinstance(error, PySparkException):
        condition = _condition(error)
        if condition in _UNHEARD:
            return False
        return bool(type(error).__name__ != _UNANSWERED or condition or _thrown(error))
    # An error that carries a Java exception is an answer, too, only of a class that PySpark does
    # not translate.
    return hasattr(error, "java_exception")


def is_from_engine(error: BaseException) -> bool:
    """Whether Spark, or a client of it, raised it."""
    return isinstance(error, PySparkException) or hasattr(error, "java_exception")


def is_unreachable(error: BaseException) -> bool:
    """Whether Spark is lost: its JVM, its server, or the connection to it."""
    if type(error).__module__ == "pyspark.errors.exceptions.base" and error.__context__ is not None:
        # Raised by PySpark itself, of what it could not ask for: a schema, say.
        return is_unreachable(error.__context__)
    if classify(error) is not Outcome.LOST:
        return False
    if isinstance(error, PySparkException) or _is_of_client(type(error).__module__):
        return True
    # A socket's error bears no sign of whose socket it was, but for where it was raised.
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and _is_of_client(frame.tb_frame.f_globals.get("__name__", ""))


def _is_of_client(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in ("grpc", "py4j")


def raised_message(error: BaseException) -> str | None:
    """The text given to `raise_error` by the statement that failed."""
    # The way to an exception of Java may be closed.
    with contextlib.suppress(Exception):
        return _raised_message(error)
    return None


def _raised_message(error: BaseException) -> str | None:
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


def is_refused(error: BaseException) -> bool:
    """Whether the platform lacks a requested feature."""
    if not is_from_engine(error):
        return False
    return _state(error).startswith(_FEATURE_NOT_SUPPORTED) or _condition(error) in _REFUSED


def _state(error: BaseException) -> str:
    """The engine's class of the error in the SQL standard; "" if it has none."""
    thrown: Any = getattr(error, "java_exception", error)
    with contextlib.suppress(Exception):
        return thrown.getSqlState() or ""
    return ""


def _condition(error: BaseException) -> str:
    """The engine's error condition without its sub-condition; "" if it has none."""
    thrown: Any = getattr(error, "java_exception", error)
    # Asks the engine on classic, which may be gone; an error of Spark 3 has no condition.
    with contextlib.suppress(Exception):
        return (thrown.getCondition() or "").split(".")[0]
    return ""
