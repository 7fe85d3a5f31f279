"""The interface of a storage: the files of one table, by their names in the table's directory.

The simplest implementation keeps them in memory. Where requests fail, they are repeated, and a verb loses a limited time
by that.
"""

from __future__ import annotations

import math
import random
import re
import threading
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from tubeq_spark.clock import RetryWaits, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

T = TypeVar("T")


class ExistsError(Exception):
    """A file that should be created exists. Another program has written it, or an earlier request of ours."""


class RequestError(OSError):
    """A request to an object store failed.

    Attributes:
        was_sent: Whether the request may have reached the store, so that a write may be done, or be done later.
        passes: Whether the same request may succeed if it is repeated.
        is_of_credentials: Whether the store may accept the request with other credentials.
    """

    def __init__(
        self,
        message: str,
        *,
        was_sent: bool = False,
        passes: bool = False,
        is_of_credentials: bool = False,
    ) -> None:
        """Fail with a message."""
        super().__init__(message)
        self.was_sent = was_sent
        self.passes = passes
        self.is_of_credentials = is_of_credentials


def is_refused(error: Exception) -> bool:
    """Whether the storage did not let a file be read; such an error says nothing about its contents.

    Arrow raises errors of the class `OSError`, without a number of the system, for bad contents.
    """
    is_of_store = isinstance(error, (RequestError, FileNotFoundError))
    return is_of_store or (isinstance(error, OSError) and error.errno is not None)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a listing.

    Attributes:
        name: Its name below the listed directory.
        size: Its bytes.
        at: When it was written, in seconds since 1970, by the storage's clock.
        tag: It distinguishes this file from another file of the same name; `None` if the storage has no tags.
    """

    name: str
    size: int
    at: float
    tag: str | None


class Store(Protocol):
    """The files of one table. Thread-safe. Each call is one request, which is sent once unless it says otherwise.

    A missing file raises `FileNotFoundError`. A storage that fails raises another `OSError`; an object store raises
    `RequestError`.

    Methods with a body are for a storage that needs no requests at the same time.
    """

    def __str__(self) -> str:
        """The path or URI of the table."""
        ...

    def get(
        self, name: str, *, size: int = 0, span: tuple[int, int] | None = None
    ) -> tuple[bytes, str | None]:
        """Read a file. Repeated after errors that may pass.

        Args:
            name: The name.
            size: The bytes of the file, if they are known: a large file has more time.
            span: The first byte, and the one after the last; `None` is the whole file.

        Returns:
            The contents, and the tag of the file.
        """
        ...

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file, as a whole or not at all. Repeated after errors that may pass."""
        ...

    def put_if_absent(self, name: str, content: bytes, needs: Sequence[str] = ()) -> str | None:
        """Write a file that does not exist yet, as a whole or not at all, and return its tag. Never repeated.

        Args:
            name: The name.
            content: The contents.
            needs: Files that this one names. After a power cut this file may be there only if they are.

        Raises:
            ExistsError: It exists.
            RequestError: If `was_sent`, the file may exist now, or later.
        """
        ...

    def list(self, directory: str, after: str = "", most: int | None = None) -> Sequence[Entry]:
        """List the files in and below a directory in the order of their names. Repeated after errors that may pass.

        Args:
            directory: The directory; empty for that of the table. A missing directory has no files.
            after: Only names after this one.
            most: At most about this many files.
        """
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove files; missing ones are no error. Repeated after errors that may pass."""
        ...

    def together(self, call: Callable[[Any], T], items: Iterable[Any]) -> Sequence[T]:
        """Call a function for several items, at the same time where each call waits for the storage."""
        return [call(item) for item in items]

    def beside(self, call: Callable[[], T]) -> Future[T] | None:
        """Call a function while this thread goes on; `None` if that would save no time."""
        del call
        return None

    def open_file(self, name: str, size: int) -> pa.NativeFile:
        """Open a file that never changes, to read parts of it. It may be cached in memory."""
        del size
        return pa.BufferReader(self.get(name)[0])

    def prefetch(self, files: Sequence[tuple[str, int]]) -> None:
        """Read files that are opened next, by name and size, at the same time where each costs a request."""
        del files


class Files:
    """The files of all tables of a location, by their paths. Thread-safe."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin without files.

        Args:
            now: Returns the time in seconds since 1970.
        """
        self.now = now
        self.lock = threading.Lock()
        #: Contents, time and number of each file of each table.
        self.tables: defaultdict[str, dict[str, tuple[bytes, float, int]]] = defaultdict(dict)
        #: The number of the last file that was written.
        self.written = 0


class DictStore(Store):
    """The files of one table."""

    def __init__(self, files: Files, table: str) -> None:
        """Use the files of the table at a path."""
        self._files, self._table = files, table
        self._contents = files.tables[table]

    def __str__(self) -> str:
        """The path of the table."""
        return self._table

    def get(
        self, name: str, *, size: int = 0, span: tuple[int, int] | None = None
    ) -> tuple[bytes, str | None]:
        """Read a file."""
        del size
        found = self._contents.get(name)
        if found is None:
            raise FileNotFoundError(f"{self._table}/{name}")
        content, _, number = found
        return content if span is None else content[span[0] : span[1]], str(number)

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file."""
        with self._files.lock:
            self._write(name, content)

    def put_if_absent(self, name: str, content: bytes, needs: Sequence[str] = ()) -> str | None:
        """Write a file that does not exist yet.

        Raises:
            ExistsError: It exists.
        """
        del needs
        with self._files.lock:
            if name in self._contents:
                raise ExistsError(name)
            return self._write(name, content)

    def _write(self, name: str, content: bytes) -> str:
        files = self._files
        files.written += 1
        self._contents[name] = bytes(content), files.now(), files.written
        return str(files.written)

    def list(self, directory: str, after: str = "", most: int | None = None) -> Sequence[Entry]:
        """List the files in and below a directory."""
        prefix = f"{directory}/" if directory else ""
        with self._files.lock:
            found = [
                Entry(path[len(prefix) :], len(content), at, str(number))
                for path, (content, at, number) in self._contents.items()
                if path.startswith(prefix) and path[len(prefix) :] > after
            ]
        return sorted(found, key=lambda entry: entry.name)[:most]

    def delete(self, names: Sequence[str]) -> None:
        """Remove files."""
        with self._files.lock:
            for name in names:
                self._contents.pop(name, None)


V = TypeVar("V")
_CLOCK = SystemClock()

#: A verb repeats several requests together, so one of them fails more often. By default only time limits this.
_RETRIES, _SECONDS = 1_000, 30.0

#: The prefixes of each store's own names, in options and in the environment.
_STORE_PREFIX = re.compile(r"^(?:aws|azure|google)_")
_PART = re.compile(r"([0-9]+)\s*(ns|us|ms|milli|s|m|h|d)[a-z]*\s*")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "milli": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}


def plain(name: str) -> str:
    """The name of an option without the store's prefix."""
    return _STORE_PREFIX.sub("", name.lower())


def _seconds_of(text: str) -> float | None:
    """Parse a duration such as `1m 30s`; `None` if it is not one."""
    if _PART.sub("", text).strip():
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)) or None


@dataclass(frozen=True, slots=True)
class Patience:
    """How often, and for how many seconds, requests are repeated after errors that may pass."""

    retries: int
    seconds: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Patience:
        """The values of the options `max_retries` and `retry_timeout`, or the defaults for what is none."""
        named = {plain(name): value for name, value in options.items()}
        retries = named.get("max_retries", "")
        return cls(
            int(retries) if retries.isdecimal() else _RETRIES,
            _seconds_of(named.get("retry_timeout", "")) or _SECONDS,
        )


def passes(error: BaseException) -> bool:
    """Whether a failed request may succeed if it is repeated."""
    return isinstance(error, RequestError) and error.passes


def patiently(call: Callable[[], T], patience: Patience) -> T:
    """Run a request that may be repeated, and repeat it after errors that may pass."""
    for wait in waits(patience):
        try:
            return call()
        except Exception as error:
            if wait is None or not passes(error):
                raise
        sleep(wait)
    raise AssertionError  # never: the last wait is `None`


@dataclass(slots=True)
class _Lost:
    """The time that a verb has lost by failed requests. Threads that make them at the same moment share it.

    Attributes:
        seconds: By requests that are not about a commit that was sent.
        of_commits: By commits, and by finding out their outcome.
        is_over: Whether `seconds` has reached its limit, so that no failed request is repeated.
    """

    seconds: float = 0.0
    of_commits: float = 0.0
    is_over: bool = False


class _Verb(threading.local):
    """The verb and the operation of this thread.

    Attributes:
        lost: The lost time of its verb, or of its operation outside a verb; `None` if it runs neither.
        finds_out: Whether it finds out the outcome of a commit.
        began: When its operation began, or made its last commit, by the monotonic clock; `None` if it runs none.
        made: The version that this commit has made.
    """

    lost: _Lost | None = None
    finds_out: bool = False
    began: float | None = None
    made: object = None


_verb = _Verb()


@contextmanager
def verb_patience() -> Iterator[None]:
    """Let all requests of a verb share one `Patience`, and its commits another one.

    Only failed requests and the waits after them count: a block without failures may take any time. A block
    within a block has limits of its own.
    """
    outer, _verb.lost = _verb.lost, _Lost()
    try:
        yield
    finally:
        _verb.lost = outer


@contextmanager
def one_patience() -> Iterator[None]:
    """Run an operation. Outside a verb it has the limits of a verb; within another operation it is a part of that.

    It may be an attempt after another one that failed, so versions that were read before it do not count as new.
    """
    if _verb.began is not None:
        has_made(None)
        yield
        return
    _verb.began = _CLOCK.monotonic()
    try:
        with verb_patience() if _verb.lost is None else nullcontext():
            yield
    finally:
        _verb.began = _verb.made = None


def is_patience_over() -> bool:
    """Whether the verb of this thread has lost all of its time, so that no failed request is repeated."""
    return _verb.lost is not None and _verb.lost.is_over


@contextmanager
def finding_out() -> Iterator[None]:
    """Run a block that finds out the outcome of a commit: its lost time counts as that of commits."""
    before, _verb.finds_out = _verb.finds_out, True
    try:
        yield
    finally:
        _verb.finds_out = before


def has_made(what: object) -> None:
    """Note a commit of this thread's operation: versions that it has read before are old now."""
    if _verb.began is not None:
        _verb.began, _verb.made = _CLOCK.monotonic(), what


def is_fresh(what: object, at: float) -> bool:
    """Whether a version was the newest during this thread's operation, after the commits that it has made.

    So one look serves all reads of the operation, and its statement: its commit fails if there is a newer version.

    Args:
        what: The version.
        at: When it was known to be the newest, by the monotonic clock.
    """
    return _verb.began is not None and (at >= _verb.began or what is _verb.made)


def carried(call: Callable[[V], T]) -> Callable[[V], T]:
    """A call for other threads that shares the limits of this one."""
    lost, finds_out = _verb.lost, _verb.finds_out

    def run(thing: V) -> T:
        _verb.lost, _verb.finds_out = lost, finds_out
        try:
            return call(thing)
        finally:
            _verb.lost, _verb.finds_out = None, False

    return run


def impatient(call: Callable[[], T]) -> Callable[[], T]:
    """A call for another thread that repeats no failed request."""

    def run() -> T:
        _verb.lost = _Lost(seconds=math.inf)
        try:
            return call()
        finally:
            _verb.lost = None

    return run


def waits(patience: Patience, *, of_commit: bool = False) -> Iterator[float | None]:
    """The waits after failures; `None` after the last one.

    Args:
        patience: The limits.
        of_commit: Whether a commit may be on its way whose outcome must be found out. The commits of a verb
            have limits of their own, whatever was lost before.
    """
    shared, began = _verb.lost, _CLOCK.monotonic()
    of_commit = of_commit or _verb.finds_out
    name = "of_commits" if of_commit else "seconds"
    before: float = 0.0 if shared is None else getattr(shared, name)

    def lost() -> float:
        # If this is called again, the attempt in between has failed.
        seconds = before + _CLOCK.monotonic() - began
        if shared is not None:
            setattr(shared, name, max(seconds, getattr(shared, name)))
            shared.is_over = shared.is_over or (not of_commit and seconds >= patience.seconds)
        return seconds

    retry_waits = RetryWaits(patience.retries + 1, patience.seconds, first=0.1, most=2.0)
    yield from retry_waits.waits(lost, random.random)
    yield None


def sleep(seconds: float) -> None:
    """Wait, in real time."""
    _CLOCK.sleep(seconds)
