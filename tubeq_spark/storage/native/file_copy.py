"""Copies tables file by file, also to another storage: the data files first, then the log that names them.

A copy has the newest version of its table under the same number, with the transaction ids of its log: keys of
puts and totals of ended tasks. The log of the copy begins at a checkpoint, as after a clean-up. If a copy to an
object store was interrupted, the next call copies only the missing files.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import (
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    PyFileSystem,
    SubTreeFileSystem,
)

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.disk import replacing
from tubeq_spark.storage.durability.log_names import checkpoints_in
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.native import errors, library_options
from tubeq_spark.storage.store.renewed_options import RenewedOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.native.tables import NativeTables
    from tubeq_spark.storage.store.renewed_options import StorageOptions
    from tubeq_spark.storage.tables.schema import NewTable

_LOG = "_delta_log"
#: Bytes of a file that are held in memory.
_PIECE = 8 << 20


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
    """A directory on local files or an object store, with the client for it."""

    def __init__(self, uri: str, options: StorageOptions | None) -> None:
        """Use the directory, which need not exist."""
        self.uri = uri
        self._given = RenewedOptions(options)
        self._directory = directory = local_directory(uri)
        self.is_local = directory is not None
        #: The path or URI by which the library finds it.
        self.path = uri if directory is None else str(directory)
        self._made_of = self.options
        self._made = self._client()

    @property
    def options(self) -> dict[str, str]:
        """The options by which the library reaches it."""
        return library_options.to_read(self.uri, self._given.current())

    @property
    def _files(self) -> FileSystem:
        options = self.options
        if options != self._made_of:
            self._made_of, self._made = options, self._client()
        return self._made

    def _client(self) -> FileSystem:
        if self._directory is not None:
            return SubTreeFileSystem(str(self._directory), LocalFileSystem())
        return PyFileSystem(DeltaStorageHandler(self.uri, self._made_of or None))

    def sizes(self, directory: str) -> dict[str, int]:
        """The files in a directory and below, by their paths."""
        with _reaching():
            found = self._files.get_file_info(
                FileSelector(directory, allow_not_found=True, recursive=True)
            )
        return {file.path: file.size for file in found if file.type == FileType.File}

    def is_empty(self) -> bool:
        """Whether it has no file and no directory."""
        with _reaching():
            return not self._files.get_file_info(FileSelector("", allow_not_found=True))

    def read(self, path: str) -> bytes | None:
        """The contents of a file; `None` if it does not exist."""
        try:
            with _reaching(), self._files.open_input_stream(path, compression=None) as file:
                content: bytes = file.readall()
        except FileNotFoundError:
            return None
        return content

    def write(self, path: str, content: bytes) -> None:
        """Write or replace a file, as a whole or not at all."""
        with _reaching():
            if self._directory is not None:
                self._directory.mkdir(parents=True, exist_ok=True)
                with replacing(self._directory / path, synced=True) as prepared:
                    prepared.write_bytes(content)
                return
            with self._written(path) as file:
                file.write(content)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with _reaching():
            self._files.delete_file(path)

    def fetch(self, other: Place, path: str) -> None:
        """Copy a file from the same path of another place."""
        with (
            _reaching(),
            other._files.open_input_stream(path, compression=None) as content,
            self._written(path) as file,
        ):
            shutil.copyfileobj(content, file, _PIECE)

    def _written(self, path: str) -> pa.NativeFile:
        if self._directory is not None:
            (self._directory / path).parent.mkdir(parents=True, exist_ok=True)
        # The library accepts only `bytes`, and a buffer that is larger than each piece hands it such.
        return self._files.open_output_stream(path, compression=None, buffer_size=2 * _PIECE)


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
            target.fetch(source, path)


def _log_at(source: Place, name: str, version: int) -> dict[str, int]:
    """The files of a log that a reader of a version needs, in the order in which they are written."""
    found = {path.rpartition("/")[2]: size for path, size in source.sizes(f"{name}/{_LOG}").items()}
    parts: dict[int, list[str]] = {}
    checkpoints = checkpoints_in(found)
    for file, of in checkpoints.items():
        if of.files and of.version <= version:
            parts.setdefault(of.version, []).append(file)
    whole = [v for v, names in parts.items() if checkpoints[names[0]].files == len(names)]
    first = max(whole, default=0)
    commits = [f"{v:020}.json" for v in range(first, version + 1)]
    missing = [commit for commit in (commits[1:] if whole else commits) if commit not in found]
    if missing:
        msg = f"table {name} cannot be copied: its log lacks {missing[0]}"
        raise StoreError(msg)
    # `_last_checkpoint` is not copied: it is only a hint.
    files = [*(parts[first] if whole else ()), *commits]
    return {f"{name}/{_LOG}/{file}": found[file] for file in files if file in found}


def create_with_rows(tables: NativeTables, new: NewTable, rows: pa.Table) -> None:
    """Create a table with rows, in one commit or not at all.

    Raises:
        StoreError: The table exists.
    """
    if not tables.make(new, rows.select([*new.columns])):
        msg = f"{new.name} was created by another program"
        raise StoreError(msg)
