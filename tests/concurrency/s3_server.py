"""An S3 of the tests, in a process of its own on loopback: `python -m tests.concurrency.s3_server`.

Prints its port, and serves until it is killed. One request after the other: whether a key is there is
looked up and answered for by a conditional put as one step, as on S3 itself.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.serving import BaseWSGIServer

__all__ = ["main", "new_server"]


def new_server() -> BaseWSGIServer:
    """A server that listens already, on a port of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    one_by_one = threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        with one_by_one:
            return application(environ, start)

    # A connection that is kept open has a thread of its own.
    return make_server("127.0.0.1", 0, answer, threaded=True)


def main() -> None:
    """Serve."""
    server = new_server()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
