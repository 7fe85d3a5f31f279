"""Stands before an HTTP server on loopback: delays each request, and counts them.

A request for `/-/requests` answers how many there were.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

__all__ = ["requests_of", "served"]

_REQUESTS = "/-/requests"
_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding:.*chunked")
_CONTINUE = re.compile(rb"(?im)^expect:[^\r\n]*\r\n")
_CREATES = re.compile(rb"(?im)^if-none-match:")
_END = b"\r\n\r\n"
#: Bytes that are sent on at a time, and of a head.
_PIECE, _HEAD = 1 << 16, 1 << 20


def requests_of(url: str) -> int:
    """The number of requests that a proxy has passed on."""
    with urlopen(url + _REQUESTS, timeout=60) as answer:  # noqa: S310  (loopback)
        return int(answer.read())


@contextmanager
def served(upstream: str, delay: float) -> Iterator[str]:
    """The address of a proxy in a process of its own.

    Args:
        upstream: Host and port of the server.
        delay: Seconds before each request is sent on.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(upstream, delay, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(upstream: str, delay: float, told: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_Proxy(upstream, delay).run(told))


class _Proxy:
    """What all connections share."""

    def __init__(self, upstream: str, delay: float) -> None:
        self._host, port = upstream.rsplit(":", 1)
        self._port = int(port)
        self._delay = delay
        self._count = 0
        #: Not every server looks for a key and writes it as one step, as S3 does.
        self._creating = asyncio.Lock()

    async def run(self, told: Connection) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_HEAD)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _connected(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        ends = [answer]
        # Who closes a connection, or ends, is no error of the proxy.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            source, sink = await asyncio.open_connection(self._host, self._port, limit=_HEAD)
            ends.append(sink)
            while await self._pass_on(client, answer, source, sink):
                pass
        for end in ends:
            end.close()

    async def _pass_on(
        self,
        client: asyncio.StreamReader,
        answer: asyncio.StreamWriter,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> bool:
        head = await client.readuntil(_END)
        method, path = head.split(b" ", 2)[:2]
        if path == _REQUESTS.encode():
            body = str(self._count).encode()
            answer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await answer.drain()
            return False
        await asyncio.sleep(self._delay)
        if _CONTINUE.search(head):
            answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = _CONTINUE.sub(b"", head)
        creates = _CREATES.search(head)
        async with self._creating if creates else contextlib.nullcontext():
            sink.write(head)
            await _body(client, sink, head)
            await sink.drain()
            told = await source.readuntil(_END)
        status = int(told.split(b" ", 2)[1])
        answer.write(told)
        if method != b"HEAD" and status not in (204, 304):
            await _body(source, answer, told)
        await answer.drain()
        self._count += 1
        return True


async def _body(source: asyncio.StreamReader, sink: asyncio.StreamWriter, head: bytes) -> None:
    """Send on the body that follows a head."""
    if not _CHUNKED.search(head):
        length = _LENGTH.search(head)
        await _bytes(source, sink, 0 if length is None else int(length[1]))
        return
    while True:
        size = await source.readuntil(b"\r\n")
        sink.write(size)
        count = int(size.split(b";")[0], 16)
        await _bytes(source, sink, count + 2)
        if not count:
            return


async def _bytes(source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: int) -> None:
    while count:
        piece = await source.read(min(count, _PIECE))
        if not piece:
            raise ConnectionResetError
        sink.write(piece)
        await sink.drain()
        count -= len(piece)
