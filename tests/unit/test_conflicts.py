"""The package tells conflicts, failures, lost answers and missing tables apart by the errors of each PySpark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from delta.connect import exceptions as connect_conflicts
from delta.exceptions import captured
from google.rpc.error_details_pb2 import ErrorInfo
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors.exceptions import connect

from tubeq_spark.storage.engine import Outcome
from tubeq_spark.storage.spark.conflicts import classify, is_missing_table

if TYPE_CHECKING:
    from collections.abc import Callable

#: Delta's conflicts, each with the condition that it has from 4.0 on.
CONFLICTS = {
    "ConcurrentAppendException": "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT",
    "ConcurrentDeleteDeleteException": "DELTA_CONCURRENT_DELETE_DELETE",
    "ConcurrentDeleteReadException": "DELTA_CONCURRENT_DELETE_READ",
    "ConcurrentTransactionException": "DELTA_CONCURRENT_TRANSACTION",
    "ConcurrentWriteException": "DELTA_CONCURRENT_WRITE",
    "MetadataChangedException": "DELTA_METADATA_CHANGED",
    "ProtocolChangedException": "DELTA_PROTOCOL_CHANGED",
}
PACKAGE = "io.delta.exceptions"
MESSAGE = "Files were added by a concurrent update. Please try the operation again."


class Thrown:
    """An exception of Java as py4j shows it."""

    _target_id = "o72"

    def __init__(
        self,
        name: str,
        condition: str | None = None,
        cause: Thrown | None = None,
        state: str = "",
    ) -> None:
        self._name, self._condition, self._cause = name, condition, cause
        self._state = state

    def getClass(self) -> Thrown:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self._cause

    def getCondition(self) -> str:  # noqa: N802
        if self._condition is None:
            raise AttributeError("no SparkThrowable")
        return self._condition

    def getSqlState(self) -> str:  # noqa: N802
        return self._state


class Gone(Thrown):
    """An exception of a Java that has ended since."""

    def __init__(self) -> None:
        """Of no name that anybody could ask for."""

    def getClass(self) -> Thrown:  # noqa: N802
        raise Py4JNetworkError("Error while sending or receiving")

    getCause = getCondition = getSqlState = getClass  # noqa: N815


def classic(thrown: Thrown) -> Exception:
    """What PySpark raises for a class that it does not translate."""
    error = Py4JJavaError("An error occurred while calling o71.sql.\n", thrown)
    assert isinstance(error, Exception)
    return error


def over_connect(classes: list[str], condition: str | None = None) -> Exception:
    """What the Connect client makes of an error whose details the server does not send."""
    metadata = {"classes": json.dumps(classes)}
    if condition is not None:
        metadata |= {"errorClass": condition, "messageParameters": "{}"}
    info = ErrorInfo(reason=classes[0], metadata=metadata)
    return connect.convert_exception(info, MESSAGE, None)


def hierarchy(name: str) -> list[str]:
    return [
        f"{PACKAGE}.{name}",
        f"org.apache.spark.sql.delta.{name}",
        f"{PACKAGE}.DeltaConcurrentModificationException",
        "java.util.ConcurrentModificationException",
        "java.lang.RuntimeException",
    ]


def translated(name: str, _: str) -> Exception:
    return getattr(captured, name)(MESSAGE, "trace", None)  # type: ignore[no-any-return]


def translated_over_connect(name: str, condition: str) -> Exception:
    error = over_connect(hierarchy(name), condition)
    assert isinstance(error, getattr(connect_conflicts, name))
    return error


def with_a_trace(name: str, _: str) -> Exception:
    trace = f"{PACKAGE}.{name}\n\tat org.apache.spark.sql.delta.ConflictChecker.check(C.scala:1)"
    return connect.SparkConnectGrpcException(MESSAGE, server_stacktrace=trace)


#: How a conflict of a name arrives.
ARRIVALS: dict[str, Callable[[str, str], Exception]] = {
    "classic, delta-spark 4.4": translated,
    "classic, delta-spark 4.0 to 4.2": lambda name, condition: classic(
        Thrown(f"{PACKAGE}.{name}", condition)
    ),
    "classic, without a condition": lambda name, _: classic(Thrown(f"{PACKAGE}.{name}")),
    "classic, a condition of a later version": lambda name, _: classic(
        Thrown(f"com.databricks.{name}", "DELTA_SOMETHING_NEW", state="2D521")
    ),
    "classic, Databricks": lambda name, _: classic(
        Thrown(f"com.databricks.sql.transaction.tahoe.{name}")
    ),
    "connect, delta-spark 4.4": translated_over_connect,
    "connect, delta-spark 4.0 to 4.2": lambda name, condition: over_connect(
        hierarchy(name), condition
    ),
    "connect, without a condition": lambda name, _: over_connect(hierarchy(name)),
    "connect, PySpark 4.0": lambda name, condition: connect.SparkConnectGrpcException(
        MESSAGE, errorClass=condition, reason=f"{PACKAGE}.{name}", messageParameters={}
    ),
    "connect, with a trace": with_a_trace,
    "connect, delta-spark 4.0's own classes": lambda name, _: type(
        name, (connect.SparkConnectException,), {"__module__": "delta.connect.exceptions"}
    )(MESSAGE),
}


@pytest.fixture
def older_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class of Delta's is known to the Connect client, as before delta-spark 4.4."""
    known = connect.EXCEPTION_CLASS_MAPPING
    others = {name: kind for name, kind in known.items() if not name.startswith(PACKAGE)}
    assert len(others) < len(known)
    monkeypatch.setattr(connect, "EXCEPTION_CLASS_MAPPING", others)


@pytest.mark.parametrize("name", CONFLICTS)
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_classify_when_a_conflict_arrives_in_any_way_tells_a_conflict(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, arrival: str, name: str
) -> None:
    # All that PySpark asks of it when it builds such an error.
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(SparkContext, "_gateway", object())
    if "4.4" not in arrival:
        request.getfixturevalue("older_delta")

    assert classify(ARRIVALS[arrival](name, CONFLICTS[name])) is Outcome.CONFLICT


def test_classify_when_a_hook_meets_a_conflict_after_the_commit_tells_an_error() -> None:
    cause = Thrown(f"{PACKAGE}.ConcurrentAppendException", "DELTA_CONCURRENT_APPEND")
    error = classic(
        Thrown(
            "org.apache.spark.sql.delta.DeltaRuntimeException",
            "DELTA_POST_COMMIT_HOOK_FAILED",
            cause,
        )
    )

    assert classify(error) is Outcome.FAILED


def named_like_a_conflict() -> Exception:
    return type("ConcurrentAppendException", (connect.SparkConnectGrpcException,), {})(MESSAGE)


def speaks_of_a_conflict() -> Exception:
    text = f"it met {PACKAGE}.ConcurrentAppendException: {MESSAGE}"
    return connect.UnknownException(text, server_stacktrace="java.io.IOException: no space left")


#: Errors that are no conflicts, and what is known then.
OTHERS: dict[str, tuple[Callable[[], Any], Outcome]] = {
    "a class of the program's": (named_like_a_conflict, Outcome.FAILED),
    "a text about a conflict": (speaks_of_a_conflict, Outcome.FAILED),
    "another class of Java": (lambda: classic(Thrown("java.io.IOException")), Outcome.FAILED),
    "another class of Delta": (
        lambda: classic(Thrown(f"{PACKAGE}.DeltaIllegalStateException")),
        Outcome.FAILED,
    ),
    "another class, over Connect": (lambda: over_connect(["java.io.IOException"]), Outcome.FAILED),
    "a Connect client's own error with a trace": (
        lambda: connect.SparkConnectGrpcException("boom", server_stacktrace="java.io.IOException"),
        Outcome.FAILED,
    ),
    "a Connect client without an answer": (
        lambda: connect.SparkConnectGrpcException(
            "<_InactiveRpcError of RPC that terminated with: status = StatusCode.UNAVAILABLE>",
            grpc_status_code=grpc.StatusCode.UNAVAILABLE,
        ),
        Outcome.LOST,
    ),
    "a Connect server that started anew": (
        lambda: over_connect(["java.lang.Exception"], "INVALID_HANDLE.SESSION_CHANGED"),
        Outcome.LOST,
    ),
    "a gateway that is closed": (lambda: Py4JNetworkError("Answer is empty"), Outcome.LOST),
    "an exception of a Java that has ended": (lambda: classic(Gone()), Outcome.FAILED),
    "a socket that is refused": (lambda: ConnectionRefusedError(111, "refused"), Outcome.LOST),
}


@pytest.mark.parametrize("name", OTHERS)
def test_classify_when_it_is_no_conflict_tells_an_error_from_a_lost_answer(name: str) -> None:
    build, expected = OTHERS[name]

    assert classify(build()) is expected


def test_is_missing_table_when_the_condition_says_so_is_true_in_both_clients() -> None:
    condition = "DELTA_TABLE_NOT_FOUND"

    assert is_missing_table(over_connect(["org.apache.spark.sql.AnalysisException"], condition))
    assert is_missing_table(classic(Thrown("org.apache.spark.sql.AnalysisException", condition)))
    assert not is_missing_table(classic(Gone()))
