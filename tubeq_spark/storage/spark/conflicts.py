"""Recognises conflicts and lost answers; no other module names errors of Delta and Spark."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from pyspark.errors import PySparkException

from tubeq_spark.storage.engine import Outcome
from tubeq_spark.storage.expression import STALE

# Conflicts are recognised by their names, because versions of delta-spark translate them to different classes.
# These imports register the translation, in versions that have one. A classic installation may lack the
# Connect client's packages.
with contextlib.suppress(ImportError):
    import delta.exceptions
with contextlib.suppress(ImportError):
    import delta.connect.exceptions  # noqa: F401

#: The names of Delta's conflicts: in Python, in Java from Delta 4.0 on and before, and in Databricks. The metadata of a
#: table changes if two programs create it, or a property changes during a write.
_CONFLICT = re.compile(
    r"(delta|io\.delta|org\.apache\.spark\.sql\.delta|com\.databricks\.sql\.transaction\.tahoe)\.([a-z.]+\.)?"
    r"((Delta)?Concurrent\w+|MetadataChanged|ProtocolChanged)Exception"
)
#: The SQLSTATE that Delta and Databricks give to conflicts; sub-conditions differ by version.
_CONFLICT_STATE = "2D521"
_CONFLICT_CONDITIONS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_MISSING = frozenset(
    {
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "TABLE_OR_VIEW_NOT_FOUND",
        "PATH_NOT_FOUND",
    }
)
#: Another program is creating the table: the directory of the log exists, but has no commit.
_HALF_CREATED = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"

#: The class that the Connect client raises, with no condition of the engine, if it received no error of the engine.
_UNANSWERED = "SparkConnectGrpcException"
#: Conditions of a Connect server that has lost the statement or was restarted, or has sent half of an answer.
_UNHEARD = frozenset({"INVALID_HANDLE", "INVALID_CURSOR", "RESPONSE_ALREADY_RECEIVED"})
#: The begin of a Java stack trace, and of a message of the Connect client.
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
    """Whether the error itself is one of Delta's conflicts.

    Causes of the error do not count: a failure after the commit, such as one of a hook, may have a conflict as its
    cause.
    """
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__]
    if any(map(_CONFLICT.fullmatch, [*names, _thrown(error)])):
        return True
    is_named = _condition(error).startswith(_CONFLICT_CONDITIONS)
    return is_named or _answer_of(error, "getSqlState") == _CONFLICT_STATE


def _thrown(error: BaseException) -> str:
    """The Java class of the engine's error; "" if unknown."""
    # The connection to the Java exception may be closed.
    with contextlib.suppress(Exception):
        if hasattr(error, "java_exception"):
            return str(error.java_exception.getClass().getName())
        if hasattr(error, "getStackTrace"):
            # If the Connect client has no class for the error, and got no stack trace, it writes the Java class
            # before the message.
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
    # An error with a Java exception is an answer, too, of a class that PySpark does not translate.
    return hasattr(error, "java_exception")


def is_from_engine(error: BaseException) -> bool:
    """Whether Spark, or a client of it, raised it."""
    return isinstance(error, PySparkException) or hasattr(error, "java_exception")


def is_unreachable(error: BaseException) -> bool:
    """Whether Spark is lost: its JVM, its server, or the connection to it."""
    if type(error).__module__ == "pyspark.errors.exceptions.base" and error.__context__ is not None:
        # PySpark itself raises this if it could not read something, such as a schema.
        return is_unreachable(error.__context__)
    if classify(error) is not Outcome.LOST:
        return False
    if isinstance(error, PySparkException) or _is_of_client(type(error).__module__):
        return True
    # Only the place at which the error of a socket was raised shows whose socket it was.
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and _is_of_client(frame.tb_frame.f_globals.get("__name__", ""))


def _is_of_client(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in ("grpc", "py4j")


def raised_message(error: BaseException) -> str | None:
    """The text given to `raise_error` by the statement that failed."""
    # The connection to the Java exception may be closed.
    with contextlib.suppress(Exception):
        if isinstance(error, PySparkException) and error.getCondition() == _RAISED:
            return (error.getMessageParameters() or {}).get("errorMessage")
        # If `raise_error` fails while a file is written, its error is the cause of another one. The Connect client has
        # the cause only in its text; a classic session has it as a Java exception, which PySpark does not translate.
        if hasattr(error, "getStackTrace"):
            found = _RAISED_BELOW.search(error.getStackTrace() or "")
            return None if found is None else found[1]
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
    """The engine's error condition without its sub-condition; "" if it has none."""
    return _answer_of(error, "getCondition").split(".")[0]


def _answer_of(error: BaseException, method: str) -> str:
    thrown: Any = getattr(error, "java_exception", error)
    # A classic session asks the JVM, which may be gone; an error of Spark 3 has no condition.
    with contextlib.suppress(Exception):
        return getattr(thrown, method)() or ""
    return ""
