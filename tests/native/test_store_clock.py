"""The clock of an object store beside this host's."""

from __future__ import annotations

import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.storage.store import object_store
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Telling(BaseHTTPRequestHandler):
    """Refuses, and tells a time."""

    time: float | None = 0.0
    status = 403

    def do_HEAD(self) -> None:
        """Answer."""
        cls = type(self)
        self.send_response_only(cls.status)
        if cls.time is not None:
            self.send_header("Date", formatdate(cls.time, usegmt=True))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Telling) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize(
    ("ahead", "expected"), [(0.0, 0.0), (900.0, 900.0), (-900.0, -899.0), (-1.0, 0.0)]
)
def test_drift_when_a_store_tells_its_time_is_what_is_certain(
    url: str, monkeypatch: pytest.MonkeyPatch, status: int, ahead: float, expected: float
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(Telling, "status", status)
    monkeypatch.setattr(Telling, "time", clock.now().timestamp() + ahead)
    assert object_store.drift(url, clock) == pytest.approx(expected, abs=1e-3)


def test_drift_when_a_store_tells_no_time_is_unknown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Telling, "time", None)
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
        (
            "abfss://box@account.dfs.core.windows.net/q",
            {},
            "https://account.dfs.core.windows.net",
        ),
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
