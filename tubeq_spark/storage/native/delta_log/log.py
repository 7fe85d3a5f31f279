"""The files of a table's log, as readers and checkpoints use them on each storage."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tubeq_spark.model.durability import Durability
from tubeq_spark.storage import disk
from tubeq_spark.storage.durability.log_names import commit_file
from tubeq_spark.storage.durability.synced_log import synced_log_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import TypeAlias

    #: Distinguishes a file from another file of the same name.
    FileIdentity: TypeAlias = tuple[int, int]


class Log(Protocol):
    """The files of one log, by their names. A missing file raises FileNotFoundError."""

    def __str__(self) -> str:
        """The place of the log."""
        ...

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        ...

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        ...

    def names(self, *, whole: bool) -> tuple[Sequence[str], bool]:
        """The names of its files, and whether these are all; none if there is no log.

        Args:
            whole: Whether all names are wanted. If not, those before the checkpoint with which readers begin may be
                left out.
        """
        ...

    def parquet(self, name: str) -> pa.NativeFile:
        """A Parquet file, opened to read."""
        ...

    def replacing(self, name: str) -> AbstractContextManager[pa.NativeFile]:
        """Write a file in a block, which is there after the block as a whole."""
        ...


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A log on local files."""

    directory: Path

    def __str__(self) -> str:
        return str(self.directory)

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        # The path is a text, which is faster than a `Path`: each verb reads some files.
        with open(f"{self.directory}/{name}", "rb") as opened:  # noqa: PTH123
            return opened.read()

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        return os.path.exists(f"{self.directory}/{name}")  # noqa: PTH110  (each read asks)

    def identity(self, version: int) -> FileIdentity | None:
        """The identity of the commit's file, which changes if the table is created again; `None` if it is gone."""
        try:
            found = os.stat(commit_file(self.directory, version))  # noqa: PTH116  (each read asks)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def names(self, *, whole: bool) -> tuple[Sequence[str], bool]:
        """The names of its files, which are all; none if there is no log."""
        try:
            return os.listdir(self.directory), True  # noqa: PTH208  (names are enough)
        except (FileNotFoundError, NotADirectoryError):
            return [], True

    def parquet(self, name: str) -> pa.NativeFile:
        """A Parquet file, opened to read."""
        return pa.OSFile(str(self.directory / name))

    @contextmanager
    def replacing(self, name: str) -> Iterator[pa.NativeFile]:
        """Write a file in a block, which is there after the block as a whole."""
        # The log is shortened because of this file, so it must have its content before its name.
        is_synced = synced_log_of(self.directory.parent).durability is not Durability.NONE
        with (
            disk.replacing(self.directory / name, synced=is_synced) as prepared,
            pa.OSFile(str(prepared), "wb") as sink,
        ):
            yield sink
