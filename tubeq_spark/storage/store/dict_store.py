"""Tables in memory: the files of a queue in a dictionary, which queue objects share as they share a location."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from tubeq_spark.storage.store.store import Entry, ExistsError, SimpleStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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


class DictStore(SimpleStore):
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
