"""What a queue says of a store that refuses it: the cause, the status and what helps."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Queue, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Refusing(BaseHTTPRequestHandler):
    """Answers each request as a store does that refuses it."""

    protocol_version = "HTTP/1.1"
    status, code, message = 403, "AccessDenied", "Access Denied"

    def do_GET(self) -> None:
        """Refuse it."""
        cls = type(self)
        text = f"<Error><Code>{cls.code}</Code><Message>{cls.message}</Message></Error>".encode()
        self.send_response(cls.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def refused(server: ThreadingHTTPServer, **options: str | None) -> str:
    """What opening a queue raises there."""
    plain: dict[str, str | None] = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
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
        (503, "SlowDown", "Please reduce your request rate.", "is busy"),
    ],
)
def test_opening_when_the_store_refuses_tells_the_cause_and_what_helps(
    server: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    message: str,
    help_: str,
) -> None:
    for name, value in {"status": status, "code": code, "message": message}.items():
        monkeypatch.setattr(Refusing, name, value)
    said = refused(server)
    assert f"{status} " in said
    assert f"{code}: {message} (" in said
    assert help_ in said
    assert "\n" not in said


def test_opening_when_http_is_not_allowed_names_the_option(server: ThreadingHTTPServer) -> None:
    said = refused(server, AWS_ALLOW_HTTP=None)
    assert "URL scheme is not allowed" in said
    assert "AWS_ALLOW_HTTP" in said


@pytest.mark.parametrize(
    ("right", "wrong", "value"),
    [
        ("AWS_ACCESS_KEY_ID", "AWS_ACESS_KEY_ID", "test"),
        ("AWS_ALLOW_HTTP", "aws_alow_http", "true"),
    ],
)
def test_opening_when_an_option_is_misspelt_names_it(
    server: ThreadingHTTPServer, right: str, wrong: str, value: str
) -> None:
    said = refused(server, **{right: None, wrong: value})
    assert f"{wrong!r} (is {right if wrong.isupper() else right.lower()} meant?)" in said


def test_opening_when_an_option_has_a_bad_value_tells_which(server: ThreadingHTTPServer) -> None:
    assert '"soon" as Duration' in refused(server, timeout="soon")
