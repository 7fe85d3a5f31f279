"""A table on local files. A commit is a hard link, so it becomes the next version or fails."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.config import Durability
from tubeq_spark.storage import disk
from tubeq_spark.storage.store.store import Entry, ExistsError, Store

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from tubeq_spark.storage.durability.synced_log import SyncedLog

#: The directory of the log, whose files others list while they are written.
_LOG = "_delta_log/"


class LocalStore(Store):
    """The files of a table below its directory."""

    def __init__(self, synced: SyncedLog) -> None:
        """Use the directory of a table, which may not exist, with what is known of its log on the disk."""
        # Paths are texts, which are faster than a `Path`: each verb reads and writes some files.
        self._directory = str(synced.table)
        self._synced = synced

    def __str__(self) -> str:
        """The directory."""
        return self._directory

    def get(
        self, name: str, *, size: int = 0, span: tuple[int, int] | None = None
    ) -> tuple[bytes, str | None]:
        """Read a file."""
        del size
        with open(self._path(name), "rb", buffering=0) as file:  # noqa: PTH123  (each verb reads some)
            found = os.fstat(file.fileno())
            if span is None:
                return file.readall(), _tag(found)
            file.seek(span[0])
            return file.read(span[1] - span[0]), _tag(found)

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file; a new data file may be incomplete until this returns."""
        try:
            self._put(name, content)
        except FileNotFoundError:
            self._make_directories_of(name)
            self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        if name.endswith(".parquet") and _LOG not in name:
            with suppress(FileExistsError):
                self._write_new(self._path(name), content)
                return
        # Others may read the file, and a log is shortened because of a checkpoint: so it has its content before its
        # name.
        is_synced = self._synced.durability is not Durability.NONE
        with disk.replacing(self._synced.table / name, synced=is_synced) as prepared:
            self._write_new(str(prepared), content)

    def put_if_absent(self, name: str, content: bytes, needs: Sequence[str] = ()) -> str | None:
        """Write a file that does not exist yet, by a hard link.

        Raises:
            ExistsError: It exists.
            OSError: The write failed. A file system such as NFS may have made the link all the same.
        """
        is_synced = self._synced.prepare(self._synced.table / file for file in needs)
        place = self._path(name)
        # The library names its uncommitted files like this. It is removed when the log is shortened.
        prepared = f"{os.path.dirname(place)}/_commit_{uuid.uuid4()}.json.tmp"  # noqa: PTH120
        try:
            self._write_new(prepared, content)
            if is_synced:
                disk.sync_file(prepared)
            os.link(prepared, place)
        except FileExistsError as error:
            raise ExistsError(place) from error
        finally:
            # The file exists or not. A prepared file that stays does not change that.
            with suppress(OSError):
                os.unlink(prepared)  # noqa: PTH108
        # It is committed, whatever fails now.
        with suppress(OSError):
            return _tag(os.stat(place))  # noqa: PTH116
        return None

    def list(self, directory: str, after: str = "", most: int | None = None) -> Sequence[Entry]:
        """List the files in and below a directory."""
        root = self._path(directory) if directory else self._directory
        found: list[Entry] = []
        self._add(root, "", after, found)
        found.sort(key=lambda entry: entry.name)
        return found[:most]

    def _add(self, root: str, prefix: str, after: str, found: MutableSequence[Entry]) -> None:
        # A missing directory has no files, and others may remove any while it is listed.
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{root}/{prefix}") as entries,
        ):
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    self._add(root, f"{name}/", after, found)
                elif name > after:
                    with suppress(FileNotFoundError):
                        stat = entry.stat()
                        found.append(Entry(name, stat.st_size, stat.st_mtime, _tag(stat)))

    def delete(self, names: Sequence[str]) -> None:
        """Remove files, in this order."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))  # noqa: PTH108

    def open_file(self, name: str, size: int) -> pa.NativeFile:
        """Open a file to read parts of it."""
        del size
        return pa.OSFile(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _make_directories_of(self, name: str) -> None:
        """Make the directories of a partition, but not that of the table, which may have been removed by hand."""
        directory = self._directory
        for part in name.split("/")[:-1]:
            directory = f"{directory}/{part}"
            with suppress(FileExistsError):
                os.mkdir(directory)  # noqa: PTH102

    @staticmethod
    def _write_new(path: str, content: bytes) -> None:
        """Write a file that does not exist; if that fails, no part of it stays."""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with open(file, "wb", buffering=0) as opened:  # noqa: PTH123
                rest = memoryview(content)
                while rest:
                    rest = rest[opened.write(rest) :]
        except BaseException:
            # This file may be what fills the disk.
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            raise


def _tag(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_mtime_ns}"
