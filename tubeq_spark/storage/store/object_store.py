"""The files of one table on an object store, and its bucket: clients, threads and contents in memory, which tables share.

Requests that only read, and those that write files which no commit names yet, are repeated as long as `Patience`
allows. A conditional PUT is never repeated, because only the caller can find out its outcome.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import ObjectStore as Client
from obstore.store import from_url

from tubeq_spark.storage.store.error_text import is_of_file, request_error
from tubeq_spark.storage.store.store import (
    Entry,
    ExistsError,
    Patience,
    RequestError,
    carried,
    impatient,
    patiently,
)
from tubeq_spark.storage.store.store_options import credential_provider, for_client, with_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from obstore import ObjectMeta

    from tubeq_spark.storage.store.store_options import RenewedOptions


T = TypeVar("T")

#: Files larger than `LARGE` are read in parts of `_READ` bytes.
LARGE, _READ = 8 << 20, 4 << 20


def _tag(text: str | None) -> str | None:
    """A tag without quotes, which Azure sends in headers but not in listings."""
    return None if text is None else text.strip('"')


def _entry(file: ObjectMeta, start: int) -> Entry:
    at = file["last_modified"].timestamp()
    return Entry(file["path"][start:], file["size"], at, _tag(file["e_tag"]))


def _joined(*parts: str) -> str:
    return "/".join(part for part in parts if part)


#: Objects that are larger are sent in parts of this many bytes.
PART = 16 << 20
#: How many requests are under way at the same time for one thread.
_TOGETHER = 16
#: Bytes of objects that are cached in memory.
_CACHED = 64 << 20


class Bucket:
    """The objects of one bucket or container. Thread-safe."""

    def __init__(self, uri: str, options: RenewedOptions) -> None:
        """Use the bucket at a URI, which is reached by these options."""
        self.uri, self._options = uri, options
        #: Clients by their time limits, and the options that they were made of.
        self._clients: dict[str | None, Client] = {}
        self._made_of: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_TOGETHER, "tubeq-requests")
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def send(self, key: str, ask: Callable[[Client], T], size: int = 0) -> T:
        """Send a request about a key that moves `size` bytes, once.

        Raises:
            FileNotFoundError: The object that should be read does not exist.
            RequestError: The store fails.
        """

        def once(options: Mapping[str, str]) -> T:
            try:
                return ask(self._client(options, size))
            except FileNotFoundError as error:
                if is_of_file(error):
                    raise
                raise request_error(error, self.uri, key) from error
            except exceptions.BaseError as error:
                raise request_error(error, self.uri, key) from error

        return self._options.tried(once)

    def _client(self, given: Mapping[str, str], size: int) -> Client:
        options = with_limits(given, min(size, PART))
        limit = options.get("timeout")
        with self._lock:
            if given != self._made_of:
                self._clients.clear()
                self._made_of = given
            client = self._clients.get(limit)
            if client is None:
                client = self._clients[limit] = client_of(self.uri, options)
            return client

    def together(self, call: Callable[[Any], T], items: Iterable[Any]) -> Sequence[T]:
        """Call a function for several items at the same time. The threads share the patience of this one."""
        some = list(items)
        if len(some) < 2:
            return [call(item) for item in some]
        try:
            begun = self._pool.map(carried(call), some)
        except RuntimeError:
            # After the end of the main thread no pool begins new work, while other threads go on.
            return [call(item) for item in some]
        return list(begun)

    def beside(self, call: Callable[[], T]) -> Future[T] | None:
        """Call a function while this thread goes on, and repeat none of its requests; `None` if the pool has ended."""
        with suppress(RuntimeError):
            return self._pool.submit(impatient(call))
        return None

    def cached(self, key: str) -> bytes | None:
        """The content of an object from memory; `None` if it is not there."""
        with self._lock:
            content = self._contents.get(key)
            if content is not None:
                self._contents.move_to_end(key)
            return content

    def cache(self, key: str, content: bytes) -> None:
        """Cache the content of an object that never changes."""
        with self._lock:
            self._bytes += len(content) - len(self._contents.pop(key, b""))
            self._contents[key] = content
            while self._bytes > _CACHED:
                self._bytes -= len(self._contents.popitem(last=False)[1])

    def close(self) -> None:
        """End the threads, and forget what was cached."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._contents.clear()
            self._bytes = 0


def client_of(uri: str, options: Mapping[str, str]) -> Client:
    """A client that repeats nothing.

    Raises:
        RequestError: An option is unknown, or has a wrong value.
    """
    client, config = for_client(options)
    further: Any = {"retry_config": {"max_retries": 0, "retry_timeout": timedelta(0)}}
    provider = credential_provider(uri, options)
    if provider is not None:
        further["credential_provider"] = provider
    given: Any = config
    try:
        return from_url(uri, config=given, client_options=client, **further)  # type: ignore[call-overload, no-any-return]
    except (exceptions.BaseError, ValueError) as error:
        raise request_error(error, uri, "") from error


class ObjectStore:
    """The files whose keys begin with a prefix, as a `Store`."""

    def __init__(self, bucket: Bucket, prefix: str, patience: Patience) -> None:
        """Use them. Requests are repeated for as long as `patience` allows."""
        self._bucket, self._prefix, self.patience = bucket, prefix, patience
        self.together, self.beside = bucket.together, bucket.beside

    def __str__(self) -> str:
        return _joined(self._bucket.uri, self._prefix)

    def _send(self, name: str, ask: Callable[[Client, str], T], size: int = 0) -> T:
        """Send a request about a file, and repeat it after errors that may pass. Raises as `Bucket.send`."""
        key = _joined(self._prefix, name)
        return patiently(
            lambda: self._bucket.send(key, lambda client: ask(client, key), size), self.patience
        )

    def get(
        self, name: str, *, size: int = 0, span: tuple[int, int] | None = None
    ) -> tuple[bytes, str | None]:
        """As `Store.get`."""

        def ask(client: Client, key: str) -> tuple[bytes, str | None]:
            found = obstore.get(client, key, options={} if span is None else {"range": span})
            return bytes(found.bytes()), _tag(found.meta["e_tag"])

        return self._send(name, ask, size if span is None else span[1] - span[0])

    def put(self, name: str, content: bytes) -> None:
        """As `Store.put`. A large file is sent in parts."""
        self._send(
            name,
            lambda client, key: obstore.put(client, key, content, chunk_size=PART),
            len(content),
        )
        if len(content) <= LARGE:
            self._bucket.cache(_joined(self._prefix, name), content)

    def put_if_absent(self, name: str, content: bytes, needs: Sequence[str] = ()) -> str | None:
        """As `Store.put_if_absent`."""
        del needs
        key = _joined(self._prefix, name)

        def ask(client: Client) -> str | None:
            try:
                done = obstore.put(client, key, content, mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                raise ExistsError(f"{self._bucket.uri}/{key}") from error
            return _tag(done["e_tag"])

        return self._bucket.send(key, ask, len(content))

    def list(self, directory: str, after: str = "", most: int | None = None) -> Sequence[Entry]:
        """As `Store.list`."""

        def ask(client: Client, prefix: str) -> Sequence[Entry]:
            offset = _joined(prefix, after) if after else None
            start = len(prefix) + 1 if prefix else 0
            found: list[Entry] = []
            for page in obstore.list(
                client, prefix or None, offset=offset, chunk_size=most or 1_000
            ):
                found += [_entry(file, start) for file in page]
                if most is not None and len(found) >= most:
                    break
            return found

        return self._send(directory, ask)

    def delete(self, names: Sequence[str]) -> None:
        """As `Store.delete`."""
        keys = [_joined(self._prefix, name) for name in names]
        with suppress(FileNotFoundError):
            self._send(", ".join(names[:1]), lambda client, _: obstore.delete(client, keys))

    def open_file(self, name: str, size: int) -> pa.NativeFile:
        """Open a file: a small one is read as a whole, of a large one only the parts that are needed."""
        if size > LARGE:
            return pa.PythonFile(_LargeFile(self, name, size), "r")
        return pa.BufferReader(self._content((name, size)))

    def prefetch(self, files: Sequence[tuple[str, int]]) -> None:
        """As `Store.prefetch`."""
        missing = [
            (name, size)
            for name, size in files
            if size <= LARGE and self._bucket.cached(_joined(self._prefix, name)) is None
        ]
        if len(missing) > 1:
            with suppress(FileNotFoundError):
                # The read of a missing file raises the error.
                self.together(self._content, missing)

    def _content(self, file: tuple[str, int]) -> bytes:
        name, size = file
        key = _joined(self._prefix, name)
        content = self._bucket.cached(key)
        if content is None:
            content, _ = self.get(name, size=size)
            self._bucket.cache(key, content)
        return content

    def overwrites(self, name: str) -> bool:
        """Whether the store ignores the condition of a PUT, and overwrites a file of this name, which is removed."""
        try:
            self.put_if_absent(name, b"1")
            self.put_if_absent(name, b"2")
        except ExistsError:
            return False
        finally:
            # If the object stays, it does no harm.
            with suppress(RequestError):
                self.delete([name])
        return True


class _LargeFile(io.RawIOBase):
    """A large file that fetches only the parts that are read."""

    def __init__(self, store: ObjectStore, name: str, size: int) -> None:
        self._store, self._name, self._size = store, name, size
        self._at = 0
        self._parts: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        rest = self._size - self._at
        end = self._at + (rest if size is None or size < 0 else min(size, rest))
        numbers = range(self._at // _READ, -(-end // _READ)) if end > self._at else range(0)
        missing = [number for number in numbers if number not in self._parts]
        self._parts.update(zip(missing, self._store.together(self._fetch, missing), strict=True))
        found = b"".join(self._parts[number] for number in numbers)
        skipped = self._at % _READ
        content = found[skipped : skipped + end - self._at]
        self._at += len(content)
        return content

    def _fetch(self, number: int) -> bytes:
        start = number * _READ
        return self._store.get(self._name, span=(start, min(start + _READ, self._size)))[0]
