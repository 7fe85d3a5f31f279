"""An object store as tables need it: objects by their keys, each request sent once.

A request that only reads, and one that writes what nobody knows of yet, is repeated by `StoreFiles` as long
as `Patience` allows; a conditional one never, since only its caller can find out what became of it.
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
#: Those that `Patience` is made of.
_OURS = {"max_retries", "retry_timeout"}
#: Options, in `storage_options` or the environment, by which the library commits in another way.
_BY_LIBRARY = {"s3_locking_provider", "s3_allow_unsafe_rename", "copy_if_not_exists"}
#: Options that tell whose requests are sent.
_CREDENTIALS = {
    "access_key_id",
    "skip_signature",
    "web_identity_token_file",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
}
#: What the client would encode in a key.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./=+, @:()!&$'-]*")
#: Objects are sent in parts of so many bytes, those that are no larger as a whole.
_PART = 16 << 20
#: Of a larger object only parts are read, of so many bytes.
LARGE, _READ = 8 << 20, 4 << 20
#: How many requests are under way at the same time for one thread.
_TOGETHER = 16
#: So many bytes of objects are kept in memory.
_KEPT = 64 << 20


class NoClientError(Exception):
    """Another client must be used for a place."""


def _tag(text: str | None) -> str | None:
    """A tag without quotes: Azure has them in headers, and leaves them out in listings."""
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
        """Use the one at a URI, which is reached by some options."""
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
        """Send a request about a key, of so many bytes.

        Raises:
            FileNotFoundError: There is no such object.
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
            RequestError: It exists, or the store fails: then it may be there or not.
        """
        done = self._asked(
            key,
            lambda client: obstore.put(client, key, content, mode="create", use_multipart=False),
            len(content),
        )
        return _tag(done["e_tag"])

    def overwrites(self, key: str) -> bool:
        """Whether a conditional put overwrites an object, as of stores that ignore conditions. Raises as `get`."""
        try:
            self.put_if_absent(key, b"1")
            self.put_if_absent(key, b"2")
        except RequestError as error:
            if not error.exists:
                raise
            return False
        finally:
            # What is left of it is in nobody's way.
            with suppress(RequestError):
                self.delete([key])
        return True

    def list_from(
        self, prefix: str, after: str | None = None, most: int | None = None
    ) -> list[Listed]:
        """The objects below a prefix whose names there come after a name, the first ones or all. Raises as `get`."""
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
        """Call a function for each of some things at the same time."""
        some = list(each)
        if len(some) < 2:
            return [call(thing) for thing in some]
        with shared_by_threads() as carried:
            try:
                begun = self._pool.map(carried(call), some)
            except RuntimeError:
                # No pool of this process begins anything once the main thread has ended, and other threads go on.
                return [call(thing) for thing in some]
            return list(begun)

    def beside(self, call: Callable[[], T]) -> Future[T] | None:
        """Call a function while this thread goes on; `None`: it is too late for that."""
        with suppress(RuntimeError):
            return self._pool.submit(call)
        return None

    # -- what is kept --------------------------------------------------------------------------

    def kept(self, key: str) -> bytes | None:
        """An object that is kept, which never changes; `None` if it is not."""
        with self._lock:
            content = self._kept.get(key)
            if content is not None:
                self._kept.move_to_end(key)
            return content

    def keep(self, key: str, content: bytes) -> None:
        """Keep an object that never changes."""
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
        """Use those whose keys begin with a prefix."""
        self.bucket, self.patience = bucket, patience
        self._prefix = prefix

    def key(self, path: str) -> str:
        """The key of a file."""
        return f"{self._prefix}/{path}" if self._prefix else path

    def get(self, path: str, size: int = 0) -> tuple[bytes, str | None]:
        """The contents of a file, and its tag. Raises as of a `Bucket`."""
        return patiently(lambda: self.bucket.get(self.key(path), size), self.patience)

    def get_once(self, path: str) -> tuple[bytes, str | None]:
        """The same by one request."""
        return self.bucket.get(self.key(path))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """A part of a file. Raises as of a `Bucket`."""
        return patiently(lambda: self.bucket.get_range(self.key(path), start, end), self.patience)

    def put(self, path: str, content: bytes) -> None:
        """Write a file. Raises as of a `Bucket`."""
        patiently(lambda: self.bucket.put(self.key(path), content), self.patience)

    def put_if_absent(self, path: str, content: bytes) -> str | None:
        """Write a file that does not exist yet, once. Raises as of a `Bucket`."""
        return self.bucket.put_if_absent(self.key(path), content)

    def list_from(
        self, directory: str, after: str | None = None, most: int | None = None
    ) -> list[Listed]:
        """The files in a directory whose names come after a name, the first ones or all. Raises as of a `Bucket`."""
        prefix = self.key(directory)
        return patiently(lambda: self.bucket.list_from(prefix, after, most), self.patience)

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files. Raises as of a `Bucket`."""
        keys = [self.key(path) for path in paths]
        patiently(lambda: self.bucket.delete(keys), self.patience)


class StoreFile(io.RawIOBase):
    """A large file, of which only the parts are fetched that are read."""

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
        """The place."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read from the place on."""
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
    """Turns errors of the client into ours, with a text as the library has it, and the address that was asked."""

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


#: The same status as for a missing object.
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
#: The library has it before each cause.
_ARROW = "\u21b3"
#: What the client says last, for its developers, has causes that its message leaves out.
_DEBUG = "\n\nDebug source:"
_CAUSES = (
    (re.compile(r"kind: Connect\b"), "client error (Connect)"),
    (re.compile(r"\bBadScheme\b"), "URL scheme is not allowed"),
    (re.compile(r"kind: Timeout\b|\bTimedOut\b"), "operation timed out"),
)
#: Texts of deeper causes there.
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
    """A client that repeats nothing; options that no client of ours knows are left out, as the library does."""
    # Options of the client replace all that the environment says of it.
    client: dict[str, Any] = {
        plain(name): value
        for name, value in os.environ.items()
        if plain(name) in _CLIENT and plain(name) != name.lower()
    }
    #: Once each, by any of its names.
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


#: Several names for one option.
_ALIASES = {"endpoint_url": "endpoint", "bucket_name": "bucket", "token": "session_token"}


def _require_own_commits(options: Mapping[str, str]) -> None:
    """Refuse options of S3 by which only the library commits, or has credentials.

    Raises:
        NoClientError: There are such.
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
