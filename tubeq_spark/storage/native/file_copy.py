"""Copies tables file by file, also to another storage: the data files first, then the log that names them.

A copy has the newest version of its table under the same number, with the transaction ids of its log: keys of
puts and totals of ended tasks. The log of the copy begins at a checkpoint, as after a clean-up. If a copy to an
object store was interrupted, the next call copies only the missing files.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.disk import replacing
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.log.names import checkpoints_in
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.handles import Handles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.native.tables import NativeTables
    from tubeq_spark.storage.store.renewed_options import StorageOptions
    from tubeq_spark.storage.tables.schema import NewTable

_LOG = "_delta_log"


@contextmanager
def _reaching() -> Iterator[None]:
    """Run a block that reads and writes files.

    Raises:
        FileNotFoundError: A file does not exist.
        StoreError: Something else failed.
    """
    try:
        with errors.reading():
            yield
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        raise


class Place:
    """A directory on local files or an object store."""

    def __init__(self, uri: str, options: StorageOptions | None) -> None:
        """Use the directory, which need not exist."""
        self.uri = uri
        self._directory = directory = local_directory(uri)
        self.is_local = directory is not None
        self._store = None if directory is not None else Handles(options).store(uri)

    def sizes(self, directory: str) -> dict[str, int]:
        """The files in a directory and below, by their paths."""
        with _reaching():
            if self._store is not None:
                listed = self._store.list(directory)
                return {f"{directory}/{file.name}": file.size for file in listed}
            root = self._local("")
            found = (path for path in (root / directory).rglob("*") if path.is_file())
            return {path.relative_to(root).as_posix(): path.stat().st_size for path in found}

    def is_empty(self) -> bool:
        """Whether it has no file and no directory."""
        with _reaching():
            if self._store is not None:
                return not self._store.list("", most=1)
            root = self._local("")
            return not root.exists() or not any(root.iterdir())

    def read(self, path: str) -> bytes | None:
        """The contents of a file; `None` if it does not exist."""
        try:
            with _reaching():
                if self._store is not None:
                    return self._store.get(path)[0]
                return self._local(path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        """Write or replace a file, as a whole or not at all."""
        with _reaching():
            if self._store is not None:
                self._store.put(path, content)
                return
            self._local("").mkdir(parents=True, exist_ok=True)
            with replacing(self._local(path), synced=True) as prepared:
                prepared.write_bytes(content)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with _reaching():
            if self._store is not None:
                self._store.delete([path])
            else:
                self._local(path).unlink()

    def fetch(self, other: Place, path: str, size: int) -> None:
        """Copy a file of so many bytes from the same path of another place."""
        with _reaching(), other._opened(path, size) as content:
            if self._store is not None:
                self._store.put(path, content.read())
                return
            place = self._local(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                shutil.copyfileobj(content, file)

    def _opened(self, path: str, size: int) -> IO[bytes] | pa.NativeFile:
        if self._store is not None:
            return self._store.open_file(path, size)
        return self._local(path).open("rb")

    def _local(self, path: str) -> Path:
        """The path of a file on this host."""
        return Path(self.uri if self._directory is None else self._directory, path)


def copy_table(
    source: Place, target: Place, name: str, newest: Snapshot, require_alone: Callable[[], None]
) -> None:
    """Copy a table.

    Args:
        source: Where it is.
        target: Where to.
        name: Its name.
        newest: Its newest version.
        require_alone: Raises if other programs may use the target; called before each change of a log there.

    Raises:
        FileNotFoundError: Another program has removed old files meanwhile.
    """
    data = {path: file.size for path, file in newest.files.items()}
    log = _log_at(source, name, newest.version)
    there = target.sizes(name)
    for path in there:
        if path.startswith(f"{name}/{_LOG}/") and path not in log:
            require_alone()
            target.remove(path)
    for path, size in [*((f"{name}/{path}", size) for path, size in data.items()), *log.items()]:
        # After a power cut a local file may have its length without its contents, so it is copied again.
        if target.is_local or there.get(path) != size:
            if path in log:
                require_alone()
            target.fetch(source, path, size)


def _log_at(source: Place, name: str, version: int) -> dict[str, int]:
    """The files of a log that a reader of a version needs, in the order in which they are written."""
    found = {path.rpartition("/")[2]: size for path, size in source.sizes(f"{name}/{_LOG}").items()}
    checkpoints = {of.version: file for file, of in checkpoints_in(found).items() if of.is_plain}
    first = max((v for v in checkpoints if v <= version), default=None)
    commits = [f"{v:020}.json" for v in range(first or 0, version + 1)]
    missing = [c for c in (commits if first is None else commits[1:]) if c not in found]
    if missing:
        msg = f"table {name} cannot be copied: its log lacks {missing[0]}"
        raise StoreError(msg)
    # `_last_checkpoint` is not copied: it is only a hint.
    files = [*(() if first is None else (checkpoints[first],)), *commits]
    return {f"{name}/{_LOG}/{file}": found[file] for file in files if file in found}


def create_with_rows(tables: NativeTables, new: NewTable, rows: pa.Table) -> None:
    """Create a table with rows, in one commit or not at all.

    Raises:
        StoreError: The table exists.
    """
    if not tables.make(new, rows.select([*new.columns])):
        msg = f"{new.name} was created by another program"
        raise StoreError(msg)
