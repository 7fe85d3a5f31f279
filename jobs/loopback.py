"""HTTP servers on loopback over trees of files, with listings to follow and failures on order."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["FAULTS", "FLAKY_PAGES", "TreeHandler", "TreeServer", "serve"]

#: A page of links to pages that fail: some once, one always.
FAULTS = "/faults/"
FLAKY_PAGES = 5


class TreeHandler(SimpleHTTPRequestHandler):
    """Serves a directory, and below `FAULTS` what a crawler dreads."""

    protocol_version = "HTTP/1.1"  # connections are kept, as crawlers want them
    timeout = 30
    server: TreeServer

    def do_GET(self) -> None:
        """Answer a GET."""
        if self.path.startswith(FAULTS):
            self._answer_fault(self.path.removeprefix(FAULTS))
        else:
            super().do_GET()

    def _answer_fault(self, name: str) -> None:
        if not name:
            pages = [*(f"flaky-{number}" for number in range(FLAKY_PAGES)), "broken"]
            self._answer("".join(f'<a href="{page}">{page}</a>\n' for page in pages))
        elif name == "broken":
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
        elif self.server.is_first_visit(name):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self._answer(f"<p>{name} answers this time</p>")

    def _answer(self, html: str) -> None:
        body = html.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the crawler tells what it does."""


class TreeServer(ThreadingHTTPServer):
    """A server of one tree."""

    daemon_threads = True
    request_queue_size = 128  # a crawler comes with many connections at once

    def __init__(
        self, address: tuple[str, int], root: Path, handler: type[TreeHandler] = TreeHandler
    ) -> None:
        """Listen.

        Args:
            address: Host and port; 0 is any free port.
            root: The directory to serve.
            handler: Answers the requests.
        """
        self._visited: set[str] = set()
        self._lock = threading.Lock()
        super().__init__(address, partial(handler, directory=str(root)))

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://{self.server_name}:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind, without asking the name service what the address is called."""
        super().server_bind()
        self.server_name = str(self.server_address[0])

    def is_first_visit(self, name: str) -> bool:
        """Whether nobody asked this about `name` before."""
        with self._lock:
            is_first = name not in self._visited
            self._visited.add(name)
        return is_first

    def handle_error(self, request: object, client_address: object) -> None:
        """Report errors, but not of clients that went away: they do so at their size limit."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serve(
    roots: Sequence[Path], *, port: int = 0, handler: type[TreeHandler] = TreeHandler
) -> Iterator[list[str]]:
    """Serve trees until the block is left, each on a loopback address of its own where there are.

    Args:
        roots: The directories.
        port: Port of the first, the others follow; 0 is any free ports.
        handler: Answers the requests.

    Yields:
        Their root URLs.
    """
    with ExitStack() as stack:
        urls = []
        for number, root in enumerate(roots):
            server = _listen(number, port and port + number, root, handler)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            urls.append(server.url)
        yield urls


def _listen(number: int, port: int, root: Path, handler: type[TreeHandler]) -> TreeServer:
    try:
        return TreeServer((f"127.0.0.{1 + number}", port), root, handler)
    except OSError:
        # Only Linux has the whole of 127/8; elsewhere the port tells the hosts apart.
        return TreeServer(("127.0.0.1", port), root, handler)
