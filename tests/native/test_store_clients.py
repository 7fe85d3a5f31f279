"""A client of a store gets its options, and tells why the store refuses and how far its clock is off."""

from __future__ import annotations

import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Queue, StoreError
from tubeq_spark.storage.store import object_store
from tubeq_spark.storage.store.store import Patience
from tubeq_spark.storage.store.store_options import LARGE, with_limits
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Answering(BaseHTTPRequestHandler):
    """Answers each request as a store does that refuses it, and tells a time."""

    protocol_version = "HTTP/1.1"
    status, code, message = 403, "AccessDenied", "Access Denied"
    time: float | None = 0.0

    def do_GET(self) -> None:
        """Refuse it."""
        cls = type(self)
        text = f"<Error><Code>{cls.code}</Code><Message>{cls.message}</Message></Error>".encode()
        self.send_response_only(cls.status)
        if cls.time is not None:
            self.send_header("Date", formatdate(cls.time, usegmt=True))
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


@pytest.mark.parametrize(
    ("right", "wrong", "value"),
    [
        ("AWS_ACCESS_KEY_ID", "AWS_ACESS_KEY_ID", "test"),
        ("AWS_ALLOW_HTTP", "aws_alow_http", "true"),
    ],
)
def test_opening_when_an_option_is_misspelt_names_it(
    url: str, right: str, wrong: str, value: str
) -> None:
    said = refused(url, **{right: None, wrong: value})
    assert f"{wrong!r} (is {right if wrong.isupper() else right.lower()} meant?)" in said


def test_opening_when_an_option_has_a_bad_value_tells_which(url: str) -> None:
    assert '"soon" as Duration' in refused(url, timeout="soon")


# -- the clock ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize(
    ("ahead", "expected"), [(0.0, 0.0), (900.0, 900.0), (-900.0, -899.0), (-1.0, 0.0)]
)
def test_drift_when_a_store_tells_its_time_is_what_is_certain(
    url: str, monkeypatch: pytest.MonkeyPatch, status: int, ahead: float, expected: float
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(Answering, "status", status)
    monkeypatch.setattr(Answering, "time", clock.now().timestamp() + ahead)
    assert object_store.drift(url, clock) == pytest.approx(expected, abs=1e-3)


def test_drift_when_a_store_tells_no_time_is_unknown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answering, "time", None)
    assert object_store.drift(url) is None


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense"])
def test_drift_when_nothing_answers_is_unknown(url: str) -> None:
    assert object_store.drift(url) is None


@pytest.mark.parametrize(
    ("location", "options", "expected"),
    [
        ("s3://b/q", {"AWS_ENDPOINT_URL": "http://store:9000"}, "http://store:9000"),
        ("s3://b/q", {"endpoint": "https://store"}, "https://store"),
        ("s3://b/q", {"endpoint": "file:///etc"}, None),
        ("s3a://b/q", {"region": "eu-central-1"}, "https://s3.eu-central-1.amazonaws.com"),
        ("s3://b/q", {"region": "x/../y"}, None),
        ("s3://b/q", {}, "https://s3.us-east-1.amazonaws.com"),
        ("abfss://box@account.dfs.core.windows.net/q", {}, "https://account.dfs.core.windows.net"),
        ("az://b/q", {"azure_storage_endpoint": "http://store/account"}, "http://store/account"),
        ("az://b/q", {"AZURE_STORAGE_ACCOUNT_NAME": "a1"}, "https://a1.blob.core.windows.net"),
        ("az://b/q", {"account_name": "a/../b"}, None),
        ("az://b/q", {}, None),
        ("gs://b/q", {}, "https://storage.googleapis.com"),
        ("hdfs://name/q", {}, None),
        ("gs://b/q", {"proxy_url": "http://proxy"}, None),
    ],
)
def test_endpoint_of_a_location_is_what_the_library_would_ask(
    monkeypatch: pytest.MonkeyPatch, location: str, options: dict[str, str], expected: str | None
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert object_store.endpoint(location, options) == expected
