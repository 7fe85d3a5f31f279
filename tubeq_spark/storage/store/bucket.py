"""One bucket or container of an object store: its clients, threads, and contents in memory, which its tables share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from obstore import exceptions
from obstore.store import ObjectStore as Client
from obstore.store import from_url

from tubeq_spark.storage.store.error_text import is_of_file, request_error
from tubeq_spark.storage.store.store import carried, impatient
from tubeq_spark.storage.store.store_options import credential_provider, for_client, with_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark.storage.store.store_options import RenewedOptions

T = TypeVar("T")

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
        """Call a function for several items at the same time."""
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
