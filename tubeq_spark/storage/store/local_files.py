"""Files of this host: a table's files as a `Store`, their syncs, and the removal of empty directories.

A commit is a hard link, so it becomes the next version or fails.

Each put and each take makes a segment with its directory, and VACUUM leaves the empty directory. The number of a segment
is never used again, so no program writes to an old directory. Tombstones of drops are in segment 0, whose directory stays.

A put of a DataFrame may write its files to a directory of its own. If it is interrupted, VACUUM removes the files, which
no version names.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import os
import struct
import sys
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import SystemClock
from tubeq_spark.config import Durability
from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.location import local_directory, path_of
from tubeq_spark.storage.log.log_files import checksum_of
from tubeq_spark.storage.store.store import Entry, ExistsError, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableSequence, Sequence
    from pathlib import Path

    from tubeq_spark.storage.durability.synced_log import SyncedLog

#: The directory of the log, whose files others list while they are written.
_LOG = "_delta_log/"
#: The errors of a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


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
        with replacing(self._synced.table / name, synced=is_synced) as prepared:
            self._write_new(str(prepared), content)

    def put_if_absent(self, name: str, content: bytes, needs: Sequence[str] = ()) -> str | None:
        """Write a file that does not exist yet, by a hard link.

        Raises:
            ExistsError: It exists.
            StoreError: The file system has no hard links.
            OSError: The write failed. A file system such as NFS may have made the link all the same.
        """
        is_synced = self._synced.prepare(self._synced.table / file for file in needs)
        place = self._path(name)
        # The library names its uncommitted files like this. It is removed when the log is shortened.
        prepared = f"{os.path.dirname(place)}/_commit_{uuid.uuid4()}.json.tmp"  # noqa: PTH120
        try:
            self._write_new(prepared, content)
            if is_synced:
                sync_file(prepared)
            _link(prepared, place)
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
            with open(file, "wb") as opened:  # noqa: PTH123
                opened.write(content)
        except BaseException:
            # This file may be what fills the disk.
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            raise


def _link(name: str, other: str) -> None:
    try:
        os.link(name, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise StoreError(
            f"{os.path.dirname(other)} is on a file system without hard links, by which the native engine commits "  # noqa: PTH120
            f"({error.strerror}): put the queue on one that has them (ext4, xfs, btrfs, APFS, NTFS), or open "
            "it with a Spark session and engine='spark'"
        ) from error


def _tag(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_mtime_ns}"


#: Arguments of Linux' `statx`: resolve a relative path as usual, and return the id of the mount, which is never
#: used again.
_AT_FDCWD, _STATX_MNT_ID, _STATX_MNT_ID_UNIQUE = -100, 0x1000, 0x4000
#: The size of the answer of `statx`, and the offsets of the mask of returned fields and of the mount.
_STATX_SIZE, _MASK, _MOUNT = 256, 0, 0x90


class SyncError(StoreError):
    """A commit is in the log, but may not be on the disk."""


def sync_file(path: str | Path) -> None:
    """Sync the contents of a file to the disk.

    Raises:
        OSError: The contents may not be on the disk. If another try succeeds, that proves nothing, because the
            system discards data that it could not write.
    """
    _sync(path)


def sync_directory(path: str | Path) -> None:
    """Sync a directory to the disk; raises as `sync_file` does."""
    # Windows opens no directories, and writes their names with the files.
    if os.name != "nt":
        _sync(path)


def make_directory(path: Path, *, synced: bool) -> None:
    """Make a directory, and those above it that are missing.

    Args:
        path: The directory, which may be there.
        synced: Whether the names of the directories that it makes must be on the disk when it returns.

    Raises:
        OSError: One cannot be made, or synced.
    """
    made = list(itertools.takewhile(lambda each: not each.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(made) if synced else ():
        sync_directory(each.parent)


def sync_file_system(path: str | Path) -> None:
    """Sync the whole file system of a path to its disk; raises as `sync_file` does."""
    whole = getattr(_libc(), "syncfs", None)
    if whole is None:
        os.sync()
        return
    file = os.open(path, os.O_RDONLY)
    try:
        if whole(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(file)


@contextmanager
def replacing(place: Path, *, synced: bool) -> Iterator[Path]:
    """Write a file of a log atomically, in place of an earlier one.

    Args:
        place: The path of the file after the block.
        synced: Whether to sync the content to the disk before the rename.

    Yields:
        The path to which the block writes the file.
    """
    prepared = place.with_name(f"_{place.name}_{uuid.uuid4()}.tmp")
    try:
        yield prepared
        if synced:
            sync_file(prepared)
        # A checksum file of Hadoop belongs to the earlier file.
        checksum_of(place).unlink(missing_ok=True)
        prepared.replace(place)
    finally:
        prepared.unlink(missing_ok=True)


def mount_of(path: str | Path) -> str:
    """The id of the mount of a path; empty if the system does not have it.

    If the system has unique ids, a file system that is mounted again gets another one.
    """
    statx = getattr(_libc(), "statx", None)
    if statx is None:
        return ""
    answer = ctypes.create_string_buffer(_STATX_SIZE)
    asked = _STATX_MNT_ID | _STATX_MNT_ID_UNIQUE
    if statx(_AT_FDCWD, os.fsencode(path), 0, asked, answer):
        return ""
    (told,) = struct.unpack_from("I", answer, _MASK)
    (mount,) = struct.unpack_from("Q", answer, _MOUNT)
    return str(mount) if told & asked else ""


def _sync(path: str | Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        if sys.platform == "darwin":
            import fcntl  # noqa: PLC0415  Windows has none

            # `fsync` leaves data in the memory of the disk there.
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
        else:
            os.fsync(file)
    finally:
        os.close(file)


@functools.cache
def _libc() -> Any:
    """The C library; missing functions are not available."""
    with suppress(OSError, TypeError):
        return ctypes.CDLL(None, use_errno=True)
    return object()


class FileError(StoreError):
    """A file or directory of this host cannot be used; nothing was written."""


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Run a block that uses a file or a directory.

    Raises:
        FileError: It cannot be used.
    """
    try:
        yield
    except OSError as error:
        # The error may name a file beside it, such as that of the waiting line.
        reason = reason_of(error).replace(f": {str(error.filename)!r}", "", 1)
        raise FileError(f"{path} cannot be used: {reason}") from error


#: The prefix of the directories to which Spark writes the files of a put (`native/tables`).
PUT = "put-"
#: Directories that stay though they may be empty.
_STAYING = ("_delta_log", "segment=0")
#: Seconds after the last write to a directory from which on it is old. A writer writes its file right after it has
#: made the directory.
_OLD = 3600.0


@contextmanager
def without_empty_directories(table: str) -> Iterator[None]:
    """Run a block that removes dead files of a table, then remove its old empty directories, if it is on local files.

    Args:
        table: The SQL name of the table.
    """
    path = path_of(table)
    directory = None if path is None else local_directory(path)
    before = SystemClock().now().timestamp() - _OLD
    # The times are read before the block, because the removal of files changes them.
    old = [] if directory is None else [*_old_directories(directory, before)]
    yield
    for place in old:
        # It may have files, or another process has removed it.
        with suppress(OSError):
            os.rmdir(place)  # noqa: PTH106  (there may be a million)


def _old_directories(directory: str | Path, before: float) -> Iterator[str]:
    """The directories below one that were not written to since a time, inner ones first."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name not in _STAYING and entry.is_dir(follow_symlinks=False):
                yield from _old_directories(entry.path, before)
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    yield entry.path
