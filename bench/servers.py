"""Starts servers of S3 on loopback: versitygw, whose speed is that of a server, and moto, which is an emulation."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from bench.measure import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["BUCKET", "SERVERS", "Server", "options", "running"]

#: A bucket, and the key and the secret for it.
BUCKET, _KEY = "tubeq-bench", "tubeq"
#: Seconds for a server to start.
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be started.

    Attributes:
        name: As it is shown.
        command: Its command, with `{host}`, `{port}` and `{directory}`.
        is_emulation: Whether its rates mean nothing. An emulation is a module of Python, and its
            buckets are created by requests; those of a server are directories.
    """

    name: str
    command: Sequence[str]
    is_emulation: bool

    def missing(self) -> str | None:
        """Why it cannot be started here, in a sentence."""
        if self.is_emulation:
            is_here = importlib.util.find_spec(self.name) is not None
        else:
            is_here = shutil.which(self.command[0]) is not None
        return None if is_here else f"{self.name} is skipped: it is not installed."


SERVERS = (
    Server(
        "versitygw",
        (
            *("versitygw", "--access", _KEY, "--secret", _KEY),
            *("--port", "{host}:{port}", "--quiet", "posix", "{directory}"),
        ),
        is_emulation=False,
    ),
    Server(
        "moto",
        (sys.executable, "-m", "moto.server", "-H", "{host}", "-p", "{port}"),
        is_emulation=True,
    ),
)


def options(url: str) -> Mapping[str, str]:
    """Options of the storage for a queue that goes through an address."""
    return {
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _KEY,
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "aws_conditional_put": "etag",
    }


@contextmanager
def running(server: Server, directory: Path) -> Iterator[str]:
    """Host and port of a server with a bucket, which runs for a block.

    Raises:
        BenchError: It does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
    words = [word.format(host=host, port=port, directory=directory) for word in server.command]
    if not server.is_emulation:
        (directory / BUCKET).mkdir(parents=True)
    process = subprocess.Popen(  # noqa: S603
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _wait(process, server.name, host, port)
        if server.is_emulation:
            url = f"http://{host}:{port}/{BUCKET}"
            urlopen(Request(url, method="PUT"), timeout=_PATIENCE).close()
        yield f"{host}:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], name: str, host: str, port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    msg = f"{name} does not start"
    raise BenchError(msg)
