"""Finds an S3 to measure on: one that the environment names, or versitygw, which is started on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.measure import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["VARIABLE", "Server", "found", "missing"]

#: The environment variable that names a server, whose keys are those of `AWS_…`.
VARIABLE = "TUBEQ_BENCH_S3"
_PROGRAM = "versitygw"
_KEY, _BUCKET = "tubeq", "tubeq-bench"
#: Seconds for it to start.
_PATIENCE = 20.0


def missing() -> str | None:
    """Why there is nothing to measure on, in a sentence; `None` if there is."""
    if os.environ.get(VARIABLE) or shutil.which(_PROGRAM):
        return None
    return (
        f"Object stores are skipped: {VARIABLE} names no S3, and there is no {_PROGRAM} on the PATH"
    )


@dataclass(frozen=True, slots=True)
class Server:
    """An S3.

    Attributes:
        name: As it is shown.
        address: Host and port.
        keys: Options of the storage with which it lets clients in.
        bucket: A bucket that is there.
    """

    name: str
    address: str
    keys: Mapping[str, str]
    bucket: str = _BUCKET

    def options(self, url: str) -> dict[str, str]:
        """Options of the storage for a queue that goes through an address."""
        return {
            **self.keys,
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": os.environ.get("AWS_REGION", "us-east-1"),
            "aws_conditional_put": "etag",
        }


@contextmanager
def found(directory: Path) -> Iterator[Server]:
    """The server; one that is started here keeps its objects in a directory.

    Raises:
        BenchError: It does not start.
    """
    named = os.environ.get(VARIABLE)
    if named:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        keys = {name: os.environ.get(name, "test") for name in names}
        bucket = os.environ.get("TUBEQ_BENCH_BUCKET", _BUCKET)
        yield Server(named, urlsplit(named).netloc, keys, bucket)
        return
    # Its buckets are directories.
    (directory / _BUCKET).mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [_PROGRAM, "--access", _KEY, "--secret", _KEY, "--port", address, "--quiet"]
    process = subprocess.Popen(  # noqa: S603
        [*command, "posix", "--nometa", str(directory)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait(process, address)
        yield Server(_PROGRAM, address, {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _KEY})
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], address: str) -> None:
    host, port = address.split(":")
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    msg = f"{_PROGRAM} does not start"
    raise BenchError(msg)
