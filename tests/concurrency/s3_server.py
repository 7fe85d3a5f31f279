"""Serves the S3 of the tests on loopback, in its own process: `python -m tests.concurrency.s3_server`.

Prints its port, and serves until it is killed. With `TUBEQ_TEST_S3=http://HOST:PORT` it stands before a server of
another make (versitygw, MinIO), whose keys are "test" and "test"; with `TUBEQ_TEST_S3_IS=azurite` or `fake-gcs-server`,
too, it mends what these do otherwise than the stores that they stand for. One request after the other: whether a key is there is
looked up and answered for by a conditional put as one step, as on S3 itself.

Requests that begin with `/-/` are the tests' own: `/-/older/SECONDS` makes all that is stored as much older,
for what looks at an object's age; `/-/delay/SECONDS` makes each answer take so much longer; `/-/accept/KEY` ends all
other keys; `/-/lose`, `/-/answer` and `/-/log` are about answers that are lost.
"""

from __future__ import annotations

import html
import json
import logging
import operator
import os
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import HTTPConnection, HTTPException, HTTPResponse
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from werkzeug.serving import BaseWSGIServer

__all__ = ["ACCEPT", "ANSWER", "DELAY", "LOG", "LOSE", "OLDER", "OVERWRITES", "main", "new_server"]

#: What a request begins with that makes all objects older.
OLDER = "/-/older/"
#: And one that delays each answer, as a distance does.
DELAY = "/-/delay/"
#: And one after which only an access key is accepted, or (none named) every one again.
ACCEPT = "/-/accept/"
#: And one after which (1) conditional puts overwrite what is there, or (0) do not any more.
OVERWRITES = "/-/overwrites/"
#: Requests that begin and end the losing of answers, and one for the log of all other requests.
LOSE, ANSWER, LOG = "/-/lose", "/-/answer", "/-/log"
#: The environment variable that names another server.
OTHER = "TUBEQ_TEST_S3"
#: And the one that says of which make it is.
MAKE = "TUBEQ_TEST_S3_IS"
#: Which names of a listing come after its offset. These emulators list all of them.
_OFFSETS = {"startFrom": operator.ge, "start-after": operator.gt}
_LISTED = re.compile(
    rb"<(Blob|Contents)>\s*<(?:Name|Key)>(?P<name>.*?)</(?:Name|Key)>.*?</\1>", re.DOTALL
)
#: Headers that are about one connection.
_BETWEEN = {"connection", "content-length", "keep-alive", "transfer-encoding", "date", "server"}
_ERROR = (
    "<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
)
_EXPIRED = (
    "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
)


@dataclass
class Losing:
    """Which answers are lost, and how.

    Attributes:
        match: A regular expression: method and path of the requests that it happens to.
        kind: "reset" cuts the connection, "hang" says nothing; else the status that is answered.
        times: How often; `None` is each time.
        kept: Whether the store does what was asked before the answer is lost.
        dark: Whether no request at all is heard after the first of these.
        share: To how many of these requests, chosen at random, but the same in each run.
        seed: Of that choice.
    """

    match: str
    kind: str = "reset"
    times: int | None = 1
    kept: bool = True
    dark: bool = False
    share: float = 1.0
    seed: int = 4711
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Begin the choice."""
        self.random = Random(self.seed)

    def happens(self, line: str) -> bool:
        """Whether it happens to a request, which counts."""
        if self.times == 0 or re.search(self.match, line) is None:
            return False
        if self.random.random() >= self.share:
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def goes_dark(self) -> None:
        """From now on nothing is heard."""
        self.match, self.times, self.kept = "", None, False


class Forwarding:
    """Another server, which is asked what clients ask."""

    def __init__(self, url: str, make: str = "") -> None:
        self._address, self._make = urlsplit(url).netloc, make
        self._local = threading.local()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request as the other server does."""
        request = Request(environ)
        path = environ["RAW_URI"]
        # What a client has signed stays as it is, the name of the host included.
        headers = {name: value for name, value in request.headers if value}
        if self._make:
            # These tell by it what is asked for, and nobody signs it.
            headers["Host"] = self._address
        if self._make == "fake-gcs-server" and request.method == "PUT":
            return self._uploaded(request)(environ, start)
        answer = self._asked(request.method, path, request.get_data(), headers)
        body = answer.read()
        if self._make and answer.status == 200:
            body = _mended(body, request.args)
        said = [pair for pair in answer.getheaders() if pair[0].lower() not in _BETWEEN]
        length = answer.getheader("Content-Length") if request.method == "HEAD" else str(len(body))
        start(f"{answer.status} {answer.reason}", [*said, ("Content-Length", length or "0")])
        return [body]

    def _uploaded(self, request: Request) -> Response:
        """Write an object of Google's by the JSON interface: fake-gcs-server has no other one."""
        bucket, _, name = request.path.lstrip("/").partition("/")
        asked = {"uploadType": "media", "name": name}
        generation = request.headers.get("x-goog-if-generation-match")
        if generation is not None:
            asked["ifGenerationMatch"] = generation
        answer = self._asked(
            "POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(asked)}", request.get_data(), {}
        )
        body = answer.read()
        if answer.status != 200:
            return Response(body, answer.status)
        said = json.loads(body)
        return Response(
            headers={"ETag": f'"{said["etag"]}"', "x-goog-generation": said["generation"]}
        )

    def _asked(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> HTTPResponse:
        """Ask by the connection of this thread; one that was closed meanwhile is opened anew."""
        for last in (False, True):
            connection = getattr(self._local, "connection", None) or HTTPConnection(self._address)
            self._local.connection = connection
            try:
                connection.request(method, path, body, headers)
                return connection.getresponse()
            except (ConnectionError, HTTPException):
                connection.close()
                self._local.connection = None
                if last:
                    raise
        raise AssertionError


def _mended(body: bytes, asked: Mapping[str, str]) -> bytes:
    """An answer without what comes before the offset, if it is a listing with one."""
    for option, comes_after in _OFFSETS.items():
        if option in asked:
            offset = asked[option]
            body = _LISTED.sub(
                lambda found: (
                    found[0]
                    if comes_after(html.unescape(found["name"].decode()), offset)  # noqa: B023
                    else b""
                ),
                body,
            )
    return body


class Server:
    """The store, and what is between it and its clients."""

    def __init__(self) -> None:
        other = os.environ.get(OTHER)
        self._store = (
            # Without moto's search for the service, which reads a directory for each request.
            Forwarding(other, os.environ.get(MAKE, "")) if other else create_backend_app("s3")
        )
        self._one_by_one = threading.Lock()
        self._losing: Losing | None = None
        self._log: list[list[Any]] = []
        self._delay = 0.0
        self._overwrites = False
        self._accepted = ""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, or not."""
        path = environ["PATH_INFO"]
        if path.startswith("/-/"):
            return self._asked(path, environ)(environ, start)
        line = f"{environ['REQUEST_METHOD']} {path}"
        if self._overwrites:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if self._accepted not in environ.get("HTTP_AUTHORIZATION", ""):
            return Response(_EXPIRED, 400, content_type="application/xml")(environ, start)
        began = time.perf_counter()
        if self._delay:
            threading.Event().wait(self._delay)
        with self._one_by_one:
            losing = self._losing
            if losing is None or not losing.happens(line):
                return self._answered(line, environ, start, began)
            if losing.kept:
                b"".join(self._answered(line, environ, _unheard, began))
            else:
                self._log.append([line, None, began, time.perf_counter()])
            if losing.dark:
                losing.goes_dark()
        return _lose(losing, environ, start)

    def _answered(
        self, line: str, environ: dict[str, Any], start: Callable[..., Any], began: float
    ) -> Iterable[bytes]:
        row = [line, None, began, began]
        self._log.append(row)

        def noted(status: str, *rest: Any) -> Any:
            row[1], row[3] = int(status[:3]), time.perf_counter()
            return start(status, *rest)

        found: Iterable[bytes] = self._store(environ, noted)
        return found

    def _asked(self, path: str, environ: dict[str, Any]) -> Response:
        """Do what a test asks for."""
        if path == LOG:
            with self._one_by_one:
                log, self._log = self._log, []
            return Response(json.dumps(log))
        if path.startswith(OLDER):
            with self._one_by_one:
                _make_older(timedelta(seconds=float(path.removeprefix(OLDER))))
            return Response()
        if path.startswith(DELAY):
            self._delay = float(path.removeprefix(DELAY))
            return Response()
        if path.startswith(ACCEPT):
            # A name that another one begins with is that of another key.
            key = path.removeprefix(ACCEPT)
            self._accepted = key and f"Credential={key}/"
            return Response()
        if path.startswith(OVERWRITES):
            self._overwrites = bool(int(path.removeprefix(OVERWRITES)))
            return Response()
        former = self._losing
        self._losing = Losing(**json.loads(Request(environ).get_data())) if path == LOSE else None
        if former is not None:
            former.ended.set()
        return Response()


def _unheard(*_: Any) -> None:
    """Take the beginning of an answer that nobody gets."""


def _lose(losing: Losing, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    if losing.kind.isdecimal():
        return Response(_ERROR, int(losing.kind), content_type="application/xml")(environ, start)
    if losing.kind == "hang":
        losing.ended.wait()
    connection: socket.socket = environ["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def new_server() -> BaseWSGIServer:
    """A server that listens already, on a port of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # A connection that is kept open has a thread of its own.
    return make_server("127.0.0.1", 0, Server(), threaded=True)


def _make_older(age: timedelta) -> None:
    for bucket in s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets.values():
        for _, key in bucket.keys.items():  # noqa: PERF102  (it has several values a key)
            key.last_modified -= age


def main() -> None:
    """Serve."""
    server = new_server()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
