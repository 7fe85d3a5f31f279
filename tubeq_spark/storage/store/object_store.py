"""The files of one table on an object store.

Requests that only read, and those that write files which no commit names yet, are repeated as long as `Patience`
allows. A conditional PUT is never repeated, because only the caller can find out its outcome.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
import pyarrow as pa
from obstore import exceptions

from tubeq_spark.storage.store.bucket import PART, Bucket
from tubeq_spark.storage.store.error_text import text_of
from tubeq_spark.storage.store.store import Entry, ExistsError, Patience, RequestError, patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from obstore import ObjectMeta
    from obstore.store import ObjectStore as Client


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


class ObjectStore:
    """The files whose keys begin with a prefix, as a `Store`."""

    def __init__(self, bucket: Bucket, prefix: str, patience: Patience) -> None:
        """Use them. Requests are repeated for as long as `patience` allows."""
        self._bucket, self._prefix, self.patience = bucket, prefix, patience

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
                raise ExistsError(text_of(error, self._bucket.uri, key)) from error
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

    def together(self, call: Callable[[Any], T], items: Iterable[Any]) -> Sequence[T]:
        """Call a function for several items at the same time. The threads share the patience of this one."""
        return self._bucket.together(call, items)

    def beside(self, call: Callable[[], T]) -> Future[T] | None:
        """Call a function while this thread goes on, and repeat none of its requests."""
        return self._bucket.beside(call)

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
