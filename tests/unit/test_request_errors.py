"""How failures of requests to object stores are understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from obstore.exceptions import GenericError

from tubeq_spark.storage.store.error_text import in_one_line
from tubeq_spark.storage.store.patience import is_of_file, request_error

if TYPE_CHECKING:
    from tubeq_spark.storage.store.store import RequestError

KEY = "t/_delta_log/00000000000000000003.json"
COMMIT = f"Generic S3 error: Error performing PUT http://127.0.0.1:33729/bucket/{KEY} in 4.1ms - "
#: With a SAS token of Azure's.
HIDDEN = "Generic MicrosoftAzure error: Error performing PUT REDACTED in 4.1ms - "
#: On Google Cloud Storage.
ENCODED = COMMIT.replace("_", "%5F").replace(".json", "%2Ejson")
TOKEN = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - "
FAILED = "HTTP error: error sending request"
RESET = f"{FAILED}\n\nDebug source:\nkind: Request,\n"
REFUSED = f'{FAILED}\n\nDebug source:\nkind: Connect,\nmessage: "Connection refused",\n'
NOT_MADE = "HTTP error: builder error\n\nDebug source:\nsource: BadScheme,\n"


def status(text: str, code: str = "Some") -> str:
    return f"Server returned non-2xx status code: {text}: <Error><Code>{code}</Code></Error>"


def error_of(text: str) -> RequestError:
    return request_error(GenericError(text), "az://bucket", KEY)


@pytest.mark.parametrize(
    ("text", "passes", "was_sent"),
    [
        (f"{COMMIT}{RESET}", True, True),
        (f"{COMMIT}{REFUSED}", True, False),
        (f"{COMMIT}{status('500 Internal')}", True, True),
        (f"{COMMIT}{status('429 Too Many')}", True, True),
        (f"{COMMIT}{status('403 Forbidden')}", False, False),
        (f"{COMMIT}{NOT_MADE}", False, False),
        (f"{HIDDEN}{RESET}", True, True),
        (f"{HIDDEN}{REFUSED}", True, False),
        (f"{ENCODED}{RESET}", True, True),
        (f"{ENCODED}{RESET}".replace("3%2E", "4%2E"), True, False),
        (f"{TOKEN}{RESET}", True, False),
        ("Generic S3 error: something else", False, True),
    ],
)
def test_error_of_a_commit_says_whether_it_passes_and_whether_the_commit_may_be_sent(
    text: str, passes: bool, was_sent: bool
) -> None:
    error = error_of(text)
    assert (error.passes, error.was_sent) == (passes, was_sent)


@pytest.mark.parametrize(
    ("text", "number", "is_of_credentials"),
    [
        (status("403 Forbidden"), 403, True),
        (status("401 Unauthorized"), 401, True),
        (status("400 Bad Request", "ExpiredToken"), 400, True),
        (status("400 Bad Request"), 400, False),
        (status("412 Failed"), 412, False),
        (REFUSED, None, False),
    ],
)
def test_error_says_its_status_and_whether_other_credentials_may_help(
    text: str, number: int | None, is_of_credentials: bool
) -> None:
    error = error_of(f"{COMMIT}{text}")
    assert (error.status, error.is_of_credentials) == (number, is_of_credentials)


@pytest.mark.parametrize(
    ("method", "code", "expected"),
    [("GET", "NoSuchKey", True), ("GET", "NoSuchBucket", False), ("PUT", "NoSuchKey", False)],
)
def test_missing_file_is_another_error_than_a_missing_bucket(
    method: str, code: str, expected: bool
) -> None:
    text = f"{COMMIT.replace('PUT', method)}{status('404 Not Found', code)}"
    assert is_of_file(FileNotFoundError(text)) is expected


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


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("NoSuchBucket", "create the bucket"),
        ("RequestTimeTooSkewed", "set this host's"),
        ("ExpiredToken", "have expired"),
        ("AccessDenied", "the right to"),
    ],
)
def test_causes_when_a_store_refuses_have_its_code_and_what_helps(code: str, named: str) -> None:
    reason = in_one_line(answered("403 Forbidden", code))
    assert f"403 Forbidden: {code}: Not so. (" in reason
    assert named in reason
