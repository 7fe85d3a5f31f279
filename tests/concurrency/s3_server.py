"""An S3 of the tests, in a process of its own on loopback: `python -m tests.concurrency.s3_server`.

Prints its port, and serves until it is killed. One request after the other: whether a key is there is
looked up and answered for by a conditional put as one step, as on S3 itself. A request of `/-/older/SECONDS`
makes all that is stored as much older, for what looks at an object's age.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.serving import BaseWSGIServer

__all__ = ["OLDER", "main", "new_server"]

#: What a request begins with that makes all objects older.
OLDER = "/-/older/"


def new_server() -> BaseWSGIServer:
    """A server that listens already, on a port of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    one_by_one = threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        with one_by_one:
            asked = environ["PATH_INFO"]
            if asked.startswith(OLDER):
                _make_older(timedelta(seconds=float(asked.removeprefix(OLDER))))
                return Response()(environ, start)
            return application(environ, start)

    # A connection that is kept open has a thread of its own.
    return make_server("127.0.0.1", 0, answer, threaded=True)


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
