"""A table whose log this process reads and writes itself, on local files or an object store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tubeq_spark.storage.ended import FOR_EVER_MS
from tubeq_spark.storage.native.delta_log.actions import Actions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.bad_files import BadFiles
    from tubeq_spark.storage.native.delta_log.snapshot import Shape, Snapshot


@dataclass(frozen=True, slots=True)
class Commit:
    """The changes of one commit.

    Attributes:
        user_metadata: Its user metadata.
        rows: New rows; `None` if there are none.
        gone: Removed files.
        once: An application id, and the version that is written under it, if any.
        total: The same for a total of ended tasks, which never expires.
        operation_id: The id in `user_metadata` that no other commit has.
        on: Makes the same change for a later version than it was decided on, with the same rows and files;
            `None` if it must be decided anew.
        written: Added files that were written before.
        order: The order in which the rows that stay in their partitions are read next; empty if there is none.
        shape: The new columns and properties of the table; `None` if they stay.
        operation: Its name in the history; `None` is that of a write or a removal.
    """

    user_metadata: str
    rows: pa.Table | None = None
    gone: Sequence[DataFile] = ()
    once: tuple[str, int] | None = None
    total: tuple[str, int] | None = None
    operation_id: int = 0
    on: Callable[[Snapshot], Commit | None] = lambda _: None
    written: Sequence[DataFile] = ()
    order: Sequence[str] = ()
    shape: Shape | None = None
    operation: str | None = None

    def transactions(self, now_ms: int) -> dict[str, tuple[int, int | None]]:
        """The transaction versions of application ids, with their times for Spark's expiry."""
        found: dict[str, tuple[int, int | None]] = {}
        if self.once is not None:
            found[self.once[0]] = (self.once[1], now_ms)
        if self.total is not None:
            found[self.total[0]] = (self.total[1], FOR_EVER_MS)
        return found

    def actions(
        self, added: Sequence[DataFile], before: int, now_ms: int
    ) -> list[Mapping[str, Any]]:
        """The lines of its log, with the commit info in the words of the library.

        Args:
            added: The files of its rows, and `written`.
            before: The version on which it is committed.
            now_ms: The moment, in milliseconds since 1970.
        """
        count = sum(file.rows or 0 for file in added)
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": self.operation or ("WRITE" if added else "DELETE"),
            "operationParameters": {"mode": "Overwrite" if self.gone else "Append"}
            if added
            else {},
            "operationMetrics": {
                "num_added_files": len(added),
                "num_removed_files": len(self.gone),
                "num_added_rows": count,
            },
            "engineInfo": "tubeq_spark",
            "userMetadata": self.user_metadata,
        }
        if before >= 0:
            info["readVersion"] = before
        found: list[Mapping[str, Any]] = [{"commitInfo": info}]
        if self.shape is not None and before < 0:
            found.append({"protocol": self.shape.protocol})
        if self.shape is not None:
            found.append({"metaData": self.shape.metadata})
        found += [
            {"txn": {"appId": app, "version": version, "lastUpdated": at_ms}}
            for app, (version, at_ms) in self.transactions(now_ms).items()
        ]
        found += [file.removed(now_ms) for file in self.gone]
        found += [file.added() for file in added]
        return found

    def after(self, added: Sequence[DataFile], now_ms: int) -> Actions:
        """What its readers find in the log. Arguments as for `actions`."""
        removes = [file.removed(now_ms)["remove"] for file in self.gone]
        metadata = None if self.shape is None else self.shape.metadata
        return Actions(list(added), removes, self.transactions(now_ms), metadata)


class PlainTable(Protocol):
    """A table that needs no library. Thread-safe."""

    #: Its data files that cannot be read.
    bad_files: BadFiles

    @property
    def known(self) -> Snapshot | None:
        """The version that was last read or written; `None` if there is none yet."""
        ...

    def recent(self, seconds: float) -> Snapshot | None:
        """The known version if it was the newest within so many seconds, where a look costs a request."""
        ...

    @property
    def rivals(self) -> int:
        """How many commits of others came before the last commits of this process; 0 under a lock."""
        ...

    def newest(self) -> Snapshot:
        """The newest version.

        Raises:
            TableNotFoundError: The table does not exist.
            UnknownLogError: Only the library can read it.
            OSError: The storage fails.
        """
        ...

    def forget(self) -> None:
        """Read the whole log again the next time."""
        ...

    def writing(self, *, as_known: bool = False) -> AbstractContextManager[Snapshot]:
        """The newest version, while no other thread of this process commits.

        Args:
            as_known: Whether the newest version of a moment ago is enough, where each look costs a request.

        Raises as `newest`.
        """
        ...

    def create(self, before: Snapshot, change: Commit) -> object:
        """Commit the first version of a table that did not exist at the last read. Raises as `commit`."""
        ...

    def vacuum(self, snapshot: Snapshot) -> None:
        """Remove the old part of the log, and the files that no kept version needs; the table's lock is held.

        Args:
            snapshot: The newest version. It gets a checkpoint.

        Raises:
            OSError: The storage fails.
            UnknownLogError: A commit has something that this package does not know.
        """
        ...

    def with_checkpoint(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, with a checkpoint with which other readers can begin. Raises as `newest`."""
        ...

    def commit(self, snapshot: Snapshot, change: Commit) -> Sequence[tuple[DataFile, pa.Table]]:
        """Commit a change of a version.

        Returns:
            The new files, each with its rows.

        Raises:
            EngineError: Another commit came first, or it cannot be written: nothing was changed.
        """
        ...

    def committed_us(self, snapshot: Snapshot) -> int:
        """The time of a version, from its commit, or else from its file."""
        ...

    def history(self, limit: int) -> Iterator[Mapping[str, Any]]:
        """Look for new commits, and yield the newest commit infos with their versions, the newest first.

        Raises as `newest`.
        """
        ...

    def last_checkpoint(self) -> int:
        """The version of the last checkpoint; -1 if there is none."""
        ...

    def key(self, file: DataFile) -> str:
        """The key of a data file, which differs from those of all other tables."""
        ...

    def opened(self, file: DataFile) -> pa.NativeFile:
        """A data file to read.

        Raises:
            OSError: It is gone, or the storage fails.
        """
        ...

    def has(self, files: Sequence[DataFile]) -> bool:
        """Whether files of one directory exist with the lengths that were written."""
        ...

    def read(self, path: str) -> bytes:
        """The contents of a file below the table's directory; raises OSError."""
        ...

    def remove(self, directory: str) -> None:
        """Remove a directory below the table's with all that is in it; raises OSError."""
        ...

    def fetch(self, files: Sequence[DataFile]) -> None:
        """Fetch small data files that are read next, where each costs a request."""
        ...
