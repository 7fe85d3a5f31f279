"""A client for object stores: objects by their keys, each request sent once.

`StoreFiles` repeats requests that only read, and those that write files which no commit names yet, as long as
`Patience` allows. It never repeats a conditional PUT, because only the caller can find out the outcome.
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import from_url

from tubeq_spark.storage.native import store_client
from tubeq_spark.storage.native.errors import RequestError, named
from tubeq_spark.storage.native.store_client import (
    patiently,
    plain,
    shared_by_threads,
    with_environment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from obstore.store import ObjectStore

    from tubeq_spark.storage.native.renewed_options import RenewedOptions
    from tubeq_spark.storage.native.store_client import Patience

T = TypeVar("T")

_SCHEMES = {"s3", "s3a", "gs", "az", "adl", "abfs", "abfss"}
#: Options of the HTTP client, which all stores have.
_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "timeout",
    "user_agent",
}
#: Options that `Patience` reads.
_OURS = {"max_retries", "retry_timeout"}
#: Options, in `storage_options` or the environment, with which the library commits in another way.
_BY_LIBRARY = {"s3_locking_provider", "s3_allow_unsafe_rename", "copy_if_not_exists"}
#: Options that give credentials, or say that none are used.
_CREDENTIALS = {
    "access_key_id",
    "skip_signature",
    "web_identity_token_file",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
}
#: Keys that the client does not encode.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./=+, @:()!&$'-]*")
#: Objects that are larger are sent in parts of so many bytes.
_PART = 16 << 20
#: Objects larger than `LARGE` are read in parts of `_READ` bytes.
LARGE, _READ = 8 << 20, 4 << 20
#: How many requests are under way at the same time for one thread.
_TOGETHER = 16
#: Bytes of objects that are kept in memory.
_KEPT = 64 << 20


class NoClientError(Exception):
    """Our client cannot be used for a path."""


def _tag(text: str | None) -> str | None:
    """A tag without quotes, which Azure sends in headers but not in listings."""
    return None if text is None else text.strip('"')


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing."""

    name: str
    size: int
    at: datetime
    tag: str | None


class Bucket:
    """The objects of one bucket or container."""

    def __init__(self, uri: str, options: RenewedOptions) -> None:
        """Use the bucket at a URI, which is reached by these options."""
        self._uri, self._options = uri, options
        #: Clients by their time limits, and the options that they were made of.
        self._clients: dict[str | None, ObjectStore] = {}
        self._made_of: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_TOGETHER, "tubeq-requests")
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    @staticmethod
    def place(path: str, options: Mapping[str, str]) -> tuple[str, str]:
        """The URI of the bucket of a table, and the beginning of its keys.

        Raises:
            NoClientError: Only the library reaches it.
        """
        found = urlsplit(path)
        key = found.path.strip("/")
        if found.scheme.lower() not in _SCHEMES or not _PLAIN_KEY.fullmatch(key):
            msg = f"objects of {found.scheme}"
            raise NoClientError(msg)
        if found.scheme.lower() in {"s3", "s3a"}:
            _require_own_commits(options)
        return f"{found.scheme}://{found.netloc}", key

    def _asked(self, key: str, ask: Callable[[ObjectStore], T], size: int = 0) -> T:
        """Send a request about a key that moves `size` bytes.

        Raises:
            FileNotFoundError: The object does not exist.
            RequestError: The store fails.
        """

        def send(options: Mapping[str, str]) -> T:
            with _Asking(f"{self._uri}/{key}"):
                return ask(self._client(options, size))

        return self._options.tried(send)

    def _client(self, given: Mapping[str, str], size: int) -> ObjectStore:
        large = store_client.to_write(self._uri, given, min(size, _PART))
        limit = None if large is None else large["timeout"]
        with self._lock:
            if given != self._made_of:
                self._clients.clear()
                self._made_of = given
            client = self._clients.get(limit)
            if client is None:
                options = store_client.to_read(self._uri, given)
                client = _new(
                    self._uri, options if limit is None else {**options, "timeout": limit}
                )
                self._clients[limit] = client
            return client

    def get(self, key: str, size: int = 0) -> tuple[bytes, str | None]:
        """The contents of an object, and its tag. Raises as `_asked`."""

        def ask(client: ObjectStore) -> tuple[bytes, str | None]:
            found = obstore.get(client, key)
            return bytes(found.bytes()), _tag(found.meta["e_tag"])

        return self._asked(key, ask, size)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """A part of an object. Raises as `get`."""
        return self._asked(
            key,
            lambda client: bytes(obstore.get_range(client, key, start=start, end=end)),
            end - start,
        )

    def put(self, key: str, content: bytes) -> None:
        """Write an object. Raises as `get`."""
        self._asked(
            key, lambda client: obstore.put(client, key, content, chunk_size=_PART), len(content)
        )

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """Write an object that does not exist yet, and return its tag.

        Raises:
            RequestError: It exists, or the store fails and it may exist or not.
        """
        done = self._asked(
            key,
            lambda client: obstore.put(client, key, content, mode="create", use_multipart=False),
            len(content),
        )
        return _tag(done["e_tag"])

    def overwrites(self, key: str) -> bool:
        """Whether the store ignores the condition of a PUT, and overwrites an object. Raises as `get`."""
        try:
            self.put_if_absent(key, b"1")
            self.put_if_absent(key, b"2")
        except RequestError as error:
            if not error.exists:
                raise
            return False
        finally:
            # If the object stays, it does no harm.
            with suppress(RequestError):
                self.delete([key])
        return True

    def list_from(
        self, prefix: str, after: str | None = None, most: int | None = None
    ) -> list[Listed]:
        """List objects below a prefix whose names come after a name, the first `most` or all. Raises as `get`."""
        offset = None if after is None else f"{prefix}/{after}"
        start = len(prefix) + 1 if prefix else 0

        def ask(client: ObjectStore) -> list[Listed]:
            pages = obstore.list(client, prefix or None, offset=offset, chunk_size=most or 1_000)
            found: list[Listed] = []
            for page in pages:
                found += [
                    Listed(
                        each["path"][start:],
                        each["size"],
                        each["last_modified"],
                        _tag(each["e_tag"]),
                    )
                    for each in page
                ]
                if most is not None and len(found) >= most:
                    break
            return found

        return self._asked(f"{prefix}/", ask)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        with suppress(FileNotFoundError):
            self._asked(", ".join(keys[:1]), lambda client: obstore.delete(client, list(keys)))

    def together(self, call: Callable[[Any], T], each: Iterable[Any]) -> list[T]:
        """Call a function for several things at the same time."""
        some = list(each)
        if len(some) < 2:
            return [call(thing) for thing in some]
        with shared_by_threads() as carried:
            try:
                begun = self._pool.map(carried(call), some)
            except RuntimeError:
                # After the end of the main thread no pool begins new work, while other threads go on.
                return [call(thing) for thing in some]
            return list(begun)

    def beside(self, call: Callable[[], T]) -> Future[T] | None:
        """Call a function while this thread goes on; `None` if the pool begins no new work."""
        with suppress(RuntimeError):
            return self._pool.submit(call)
        return None

    # -- what is kept --------------------------------------------------------------------------

    def kept(self, key: str) -> bytes | None:
        """The content of an object from memory; `None` if it is not kept."""
        with self._lock:
            content = self._kept.get(key)
            if content is not None:
                self._kept.move_to_end(key)
            return content

    def keep(self, key: str, content: bytes) -> None:
        """Keep the content of an object that never changes."""
        with self._lock:
            self._bytes += len(content) - len(self._kept.pop(key, b""))
            self._kept[key] = content
            while self._bytes > _KEPT:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def close(self) -> None:
        """End the threads, and forget what was kept."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._kept.clear()
            self._bytes = 0


class StoreFiles:
    """The files of one table on an object store, by their paths in it."""

    def __init__(self, bucket: Bucket, prefix: str, patience: Patience) -> None:
        """Use the files whose keys begin with a prefix."""
        self.bucket, self.patience = bucket, patience
        self._prefix = prefix

    def key(self, path: str) -> str:
        """The key of a file."""
        return f"{self._prefix}/{path}" if self._prefix else path

    def get(self, path: str, size: int = 0) -> tuple[bytes, str | None]:
        """The contents of a file, and its tag. Raises as `Bucket.get`."""
        return patiently(lambda: self.bucket.get(self.key(path), size), self.patience)

    def get_once(self, path: str) -> tuple[bytes, str | None]:
        """The contents of a file, and its tag, by one request without repetitions."""
        return self.bucket.get(self.key(path))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """A part of a file. Raises as `Bucket.get`."""
        return patiently(lambda: self.bucket.get_range(self.key(path), start, end), self.patience)

    def put(self, path: str, content: bytes) -> None:
        """Write a file. Raises as `Bucket.get`."""
        patiently(lambda: self.bucket.put(self.key(path), content), self.patience)

    def put_if_absent(self, path: str, content: bytes) -> str | None:
        """Write a file that does not exist yet, by one request. Raises as `Bucket.put_if_absent`."""
        return self.bucket.put_if_absent(self.key(path), content)

    def list_from(
        self, directory: str, after: str | None = None, most: int | None = None
    ) -> list[Listed]:
        """List files in a directory whose names come after a name, the first `most` or all. Raises as `Bucket.get`."""
        prefix = self.key(directory)
        return patiently(lambda: self.bucket.list_from(prefix, after, most), self.patience)

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files. Raises as `Bucket.get`."""
        keys = [self.key(path) for path in paths]
        patiently(lambda: self.bucket.delete(keys), self.patience)


class StoreFile(io.RawIOBase):
    """A large file that fetches only the parts that are read."""

    def __init__(self, files: StoreFiles, path: str, size: int) -> None:
        """Fetch nothing yet."""
        self._files, self._path, self._size = files, path, size
        self._at = 0
        self._parts: dict[int, bytes] = {}

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The current position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read from the current position on."""
        rest = self._size - self._at
        end = self._at + (rest if size is None or size < 0 else min(size, rest))
        numbers = range(self._at // _READ, -(-end // _READ)) if end > self._at else range(0)
        missing = [number for number in numbers if number not in self._parts]
        for number, part in zip(
            missing, self._files.bucket.together(self._fetch, missing), strict=True
        ):
            self._parts[number] = part
        found = b"".join(self._parts[number] for number in numbers)
        skipped = self._at % _READ
        content = found[skipped : skipped + end - self._at]
        self._at += len(content)
        return content

    def _fetch(self, number: int) -> bytes:
        start = number * _READ
        return self._files.get_range(self._path, start, min(start + _READ, self._size))


class _Asking:
    """Turns errors of the client into ours. Their text has the form of the library's errors, and the address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            if _NO_BUCKET.search(str(error)):
                raise RequestError(named(_text(error), self._url)) from error
        elif isinstance(error, exceptions.BaseError):
            is_there = isinstance(
                error, (exceptions.AlreadyExistsError, exceptions.PreconditionError)
            )
            text = named(_text(error), self._url)
            raise RequestError(text, exists=is_there) from error


#: A missing bucket has the same status as a missing object.
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
#: The library writes this before each cause.
_ARROW = "\u21b3"
#: After this the client has details for its developers, with causes that its message leaves out.
_DEBUG = "\n\nDebug source:"
_CAUSES = (
    (re.compile(r"kind: Connect\b"), "client error (Connect)"),
    (re.compile(r"\bBadScheme\b"), "URL scheme is not allowed"),
    (re.compile(r"kind: Timeout\b|\bTimedOut\b"), "operation timed out"),
)
#: Texts of deeper causes in these details.
_SAID = re.compile(r'^\s*(?:message: )?"([^"]+)",?$', re.MULTILINE)


def _text(error: BaseException) -> str:
    """The message of an error, with a line for each cause."""
    said, _, debug = str(error).partition(_DEBUG)
    lines = said.replace(": Error performing", f"\n{_ARROW} Error performing")
    causes = [cause for pattern, cause in _CAUSES if pattern.search(debug)]
    return f"\n{_ARROW} ".join(
        [lines.replace(" - ", f"\n{_ARROW} "), *causes, *_SAID.findall(debug)]
    )


def _new(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """A client that repeats nothing. Like the library, it ignores unknown options."""
    # Given client options replace all client options of the environment, so these are added.
    client: dict[str, Any] = {
        plain(name): value
        for name, value in os.environ.items()
        if plain(name) in _CLIENT and plain(name) != name.lower()
    }
    #: Each option once, whichever of its names is used.
    config: dict[str, tuple[str, str]] = {}
    for name, value in options.items():
        if plain(name) in _CLIENT:
            client[plain(name)] = value
        elif plain(name) not in _OURS:
            config[_ALIASES.get(plain(name), plain(name))] = (name.lower(), value)
    retries: Any = {"max_retries": 0, "retry_timeout": timedelta(0)}
    while True:
        given: Any = dict(config.values())
        try:
            return from_url(uri, config=given, client_options=client, retry_config=retries)  # type: ignore[call-overload, no-any-return]
        except exceptions.UnknownConfigurationKeyError as error:
            unknown = [key for key, (name, _) in config.items() if f"'{name}'" in str(error)]
            if not unknown:
                raise RequestError(_text(error)) from error
            del config[unknown[0]]
        except (exceptions.BaseError, ValueError) as error:
            raise RequestError(_text(error)) from error


#: Other names of an option.
_ALIASES = {"endpoint_url": "endpoint", "bucket_name": "bucket", "token": "session_token"}


def _require_own_commits(options: Mapping[str, str]) -> None:
    """Refuse options of S3 by which only the library commits, or has credentials.

    Raises:
        NoClientError: The options, or the environment, have such.
    """
    given = with_environment(options)
    other = sorted(_BY_LIBRARY & {*given})
    if given.get("conditional_put", "etag") != "etag":
        other.append("conditional_put")
    if not _CREDENTIALS & {*given} and ("profile" in given or _has_profiles()):
        other.append("profile")
    if other:
        msg = f"the option{'s' if len(other) > 1 else ''} {', '.join(other)}"
        raise NoClientError(msg)


def _has_profiles() -> bool:
    return any((Path.home() / ".aws" / name).exists() for name in ("credentials", "config"))
