"""A client of a store gets its options, and tells why the store refuses."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Queue, StoreError
from tubeq_spark.storage.store.store import Patience
from tubeq_spark.storage.store.store_options import LARGE, with_limits

if TYPE_CHECKING:
    from collections.abc import Iterator


class Answering(BaseHTTPRequestHandler):
    """Answers each request as a store does that refuses it."""

    protocol_version = "HTTP/1.1"
    status, code, message = 403, "AccessDenied", "Access Denied"

    def do_GET(self) -> None:
        """Refuse it."""
        cls = type(self)
        text = f"<Error><Code>{cls.code}</Code><Message>{cls.message}</Message></Error>".encode()
        self.send_response_only(cls.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)

    do_HEAD = do_GET  # noqa: N815  (as the library has it)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


# -- options -----------------------------------------------------------------------------------------------


LIMITS = {"timeout": "5s", "connect_timeout": "5s"}


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        ({}, 0, LIMITS),
        ({}, LARGE - 1, LIMITS),
        # A second more for each megabyte.
        ({}, 50_000_000, LIMITS | {"timeout": "70s"}),
        *(
            ({name: "90s"}, size, {name: "90s", "connect_timeout": "5s"})
            for name in ("timeout", "Timeout", "AWS_TIMEOUT", "azure_timeout")
            for size in (0, 10 * LARGE)
        ),
    ],
)
def test_options_have_time_limits_but_for_those_that_the_program_gives(
    options: dict[str, str], size: int, expected: dict[str, str]
) -> None:
    assert with_limits(options, size) == expected


def test_options_when_the_environment_gives_a_time_limit_leave_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "90s")
    monkeypatch.setenv("TIMEOUT", "1s")
    monkeypatch.setenv("CONNECT_TIMEOUT", "1s")
    assert with_limits({}) == {"connect_timeout": "5s"}


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({}, Patience(1_000, 30.0)),
        ({"retry_timeout": "400ms", "max_retries": "2"}, Patience(2, 0.4)),
        ({"RETRY_TIMEOUT": "1m 30s"}, Patience(1_000, 90.0)),
        ({"retry_timeout": "250 millis"}, Patience(1_000, 0.25)),
        ({"retry_timeout": "2minutes"}, Patience(1_000, 120.0)),
        ({"retry_timeout": "soon", "max_retries": "-1"}, Patience(1_000, 30.0)),
        ({"retry_timeout": "30"}, Patience(1_000, 30.0)),
    ],
)
def test_patience_is_as_the_options_say(options: dict[str, str], patience: Patience) -> None:
    assert Patience.parse(options) == patience


# -- causes ------------------------------------------------------------------------------------------------


def refused(url: str, **options: str | None) -> str:
    """What opening a queue raises there."""
    plain: dict[str, str | None] = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "max_retries": "0",
    }
    given = {name: value for name, value in (plain | options).items() if value is not None}
    with pytest.raises(StoreError) as caught:
        Queue(None, "s3://bucket/queue", engine="native", storage_options=given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "message", "help_"),
    [
        (403, "SignatureDoesNotMatch", "Check your key.", "AWS_SECRET_ACCESS_KEY"),
        (403, "InvalidAccessKeyId", "It does not exist.", "AWS_ACCESS_KEY_ID"),
        (404, "NoSuchBucket", "The specified bucket does not exist", "create the bucket"),
        (403, "RequestTimeTooSkewed", "The difference is too large.", "set this host's"),
        (400, "ExpiredToken", "The token has expired.", "have expired"),
        (403, "AccessDenied", "Access Denied", "the right to"),
        (503, "SlowDown", "Please reduce your request rate.", "is busy"),
    ],
)
def test_opening_when_the_store_refuses_tells_the_cause_and_what_helps(
    url: str, monkeypatch: pytest.MonkeyPatch, status: int, code: str, message: str, help_: str
) -> None:
    for name, value in {"status": status, "code": code, "message": message}.items():
        monkeypatch.setattr(Answering, name, value)
    said = refused(url)
    assert f"{status} " in said
    assert f"{code}: {message} (" in said
    assert help_ in said
    assert "\n" not in said


def test_opening_when_http_is_not_allowed_names_the_option(url: str) -> None:
    said = refused(url, AWS_ALLOW_HTTP=None)
    assert "URL scheme is not allowed" in said
    assert "AWS_ALLOW_HTTP" in said


def test_opening_when_an_option_is_unknown_names_it(url: str) -> None:
    assert "'aws_acess_key_id' is not valid for store 'S3'" in refused(url, AWS_ACESS_KEY_ID="test")


def test_opening_when_an_option_has_a_bad_value_tells_which(url: str) -> None:
    assert '"soon" as Duration' in refused(url, timeout="soon")
