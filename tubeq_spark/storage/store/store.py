"""The interface of a storage: the files of one table, by their names in the table's directory.

The simplest implementation keeps them in memory.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

T = TypeVar("T")


class ExistsError(Exception):
    """A file that should be created exists. Another program has written it, or an earlier request of ours."""


class RequestError(OSError):
    """A request to an object store failed.

    Attributes:
        status: The HTTP status of the answer; `None` if there was no answer.
        was_sent: Whether the request may have reached the store, so that a write may be done, or be done later.
        passes: Whether the same request may succeed if it is repeated.
        is_of_credentials: Whether the store may accept the request with other credentials.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        was_sent: bool = False,
        passes: bool = False,
        is_of_credentials: bool = False,
    ) -> None:
        """Fail with a message."""
        super().__init__(message)
        self.status = status
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
