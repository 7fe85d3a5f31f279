"""The one line that tells why something failed."""

from __future__ import annotations

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.store.error_text import in_one_line

CHECKSUM = "Checksum error: file:/q/t/_delta_log/00000000000000000007.json at 0 exp: 1 got: 2"
TRACE = f"""org.apache.spark.SparkException: Exception thrown in awaitResult
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: java.util.concurrent.ExecutionException: wrapped
\tat java.util.concurrent.FutureTask.report(FutureTask.java:122)
Caused by: org.apache.hadoop.fs.ChecksumException: {CHECKSUM}
\tat org.apache.hadoop.fs.FSInputChecker.verifySums(FSInputChecker.java:347)
\t... 3 more
"""


class JavaError(Exception):
    """What py4j raises: its text is the trace."""

    java_exception = object()


class Unspeakable(Exception):  # noqa: N818
    """An error whose text is behind a way that is closed."""

    java_exception = object()

    def __str__(self) -> str:
        raise ConnectionRefusedError


@pytest.mark.parametrize(
    "error",
    [
        JavaError(f"An error occurred while calling o71.sql.\n: {TRACE}"),
        SparkConnectGrpcException("Exception thrown in awaitResult", server_stacktrace=TRACE),
    ],
    ids=["classic", "connect"],
)
def test_reason_of_when_an_error_of_java_has_causes_tells_the_first(error: Exception) -> None:
    reason = reason_of(error)

    assert reason.startswith(("SparkException: ", "Exception thrown in awaitResult"))
    assert reason.endswith(f"(caused by ChecksumException: {CHECKSUM})")
    assert "o71" not in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError(), "ValueError"),
        (ValueError("\n"), "ValueError"),
        (KeyError("name"), "'name'"),
        (Unspeakable("An error occurred while calling o7.sql.\n"), "Unspeakable"),
        (
            JavaError(
                "An error occurred while calling o7.sql.\n: java.io.IOException: no space\n\tat X"
            ),
            "IOException: no space",
        ),
    ],
)
def test_reason_of_when_there_is_no_cause_tells_the_first_line(
    error: Exception, expected: str
) -> None:
    assert reason_of(error) == expected


STATUS = "Server returned non-2xx status code"
SECRET = "the secret is wrong: look at AWS_SECRET_ACCESS_KEY (Azure: the account key)"
GET = "Error performing GET http://s3/bucket/t/_delta_log/_last_checkpoint in 1.01ms"


def answered(status: str, code: str) -> list[str]:
    """The causes of an answer in XML."""
    xml = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>Not  so.</Message></Error>\n'
    return ["Kernel error -> Generic S3 error", f"{GET} - {STATUS}", status, xml]


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        (
            answered("403 Forbidden", "SignatureDoesNotMatch"),
            f"S3: {GET} - {STATUS}: 403 Forbidden: SignatureDoesNotMatch: Not so. ({SECRET})",
        ),
        (
            ["Generic S3 error", "Error performing list request", GET, "strange"],
            f"S3: {GET}: strange",
        ),
        (["Generic S3 error", f"<html>{'x' * 400}"], f"S3: <html>{'x' * 294}\u2026"),
    ],
)
def test_causes_of_a_failed_request_to_a_store_are_told_with_what_helps(
    causes: list[str], expected: str
) -> None:
    assert in_one_line(causes) == expected
