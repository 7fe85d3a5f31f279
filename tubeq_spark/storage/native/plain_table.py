"""A table whose log this process reads and writes: the log over the storage, and its data files.

Checkpoints on object stores and the removal of files that nobody needs run in the background: no verb waits for them.

On local files a read that fails looks for missing and damaged data files, and the next reads leave these out. A file can be
missing for a moment, so each read checks the known ones again.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability.background import Background, at_once
from tubeq_spark.storage.durability.synced_log import synced_log_of
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.expression import FALSE, Expression, all_of, any_of, row
from tubeq_spark.storage.location import SYSTEM
from tubeq_spark.storage.log.actions import (
    DamagedFileError,
    UnknownLogError,
    damaged,
    fault_of_file,
)
from tubeq_spark.storage.log.data_files import file_of
from tubeq_spark.storage.log.log import Log
from tubeq_spark.storage.log.tidying import LocalRetention, StoreRetention, Tidying
from tubeq_spark.storage.rows import BadFile
from tubeq_spark.storage.store.local_files import LocalStore
from tubeq_spark.storage.store.store import Entry, Patience, one_patience
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from tubeq_spark.storage.durability.synced_log import SyncedLog
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.log_reader import Base
    from tubeq_spark.storage.log.next_version import Change
    from tubeq_spark.storage.log.snapshot import Shape, Snapshot
    from tubeq_spark.storage.store.object_store import ObjectStore

log = logging.getLogger(__name__)
_ROW = row()


class BadFiles:
    """The data files of one table that are missing, cut or no Parquet. Thread-safe.

    A file that the system refuses to read for another reason is not among them.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """Begin without bad files, for the table at a directory; `None` is one on an object store, which has none."""
        self._directory = directory or Path()
        self._is_local = directory is not None
        #: The fault of each bad file, by its path.
        self._faults: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, version: Snapshot) -> list[DataFile]:
        """The known bad files of a version that have not come back."""
        if not self._faults:
            return []
        with self._lock:
            # A file that a later version has removed is no longer a file of the table.
            known = [path for path in self._faults if path in version.files]
            self._faults = {path: self._faults[path] for path in known}
        files = [version.files[path] for path in known]
        self.look(files)
        return [file for file in files if file.path in self._faults]

    def look(self, files: Iterable[DataFile], *, at_content: bool = True) -> None:
        """Check some files.

        Args:
            files: The files.
            at_content: Whether to check for the end of a Parquet file, too, and not only the length.
        """
        for file in files if self._is_local else ():
            place, is_known = self._directory / file.path, file.path in self._faults
            fault = ""
            with suppress(OSError):
                fault = fault_of_file(place, file.size, at_ends=at_content or is_known)
            if fault and not is_known:
                log.warning("%s %s: reads leave its segment out", place, fault)
            elif is_known and not fault:
                log.warning("%s is as it was written again", place)
            with self._lock:
                if fault:
                    self._faults[file.path] = fault
                else:
                    self._faults.pop(file.path, None)

    def among(self, files: Iterable[DataFile]) -> list[DataFile]:
        """The known bad files among some files."""
        return [file for file in files if file.path in self._faults] if self._faults else []

    def told(self, version: Snapshot) -> list[BadFile]:
        """The bad files of a version with their faults, for reports."""
        found = []
        for file in self.of(version):
            counts = [other.rows for other in version.beside([file])]
            rows = None if None in counts else sum(count or 0 for count in counts)
            fault = self._faults.get(file.path, "was not there")
            path, segment = str(self._directory / file.path), file.partition[PARTITION]
            found.append(BadFile(path, fault, segment, rows))
        return found

    def refusal(self, file: DataFile) -> DamagedFileError:
        """The error for a read that needs the rows of a bad file."""
        return damaged(self._directory / file.path, self._faults.get(file.path, "was not there"))


def left_out(files: Sequence[DataFile], together: Sequence[str]) -> Expression:
    """The condition for the rows of a tube that are read although some files are bad.

    Args:
        files: All files of the segments of the bad files, at least one. None of their rows is read.
        together: Columns whose values keep rows together: rows with a value that may be in one of these files are
            left out, too.
    """
    segments = {file.partition[PARTITION] for file in files}
    others = [_ROW.segment != segment for segment in segments if segment is not None]
    of_tasks = [file for file in files if file.partition[PARTITION] not in OWN_SEGMENTS]
    return all_of(*others, *(_is_apart(file, name) for name in together for file in of_tasks))


def _is_apart(file: DataFile, column: str) -> Expression:
    """The condition for rows whose value of a column is in no row of a file, by the file's statistics."""
    value = _ROW[column]
    if file.is_null(column):
        return value.is_not_null()
    least, greatest = (file.bound(which, column) for which in ("minValues", "maxValues"))
    if least is None or greatest is None:
        return FALSE
    outside = any_of(value < least, value > greatest)
    return any_of(value.is_null(), outside) if file.has_no_null(column) else outside


_CLOCK = SystemClock()


class PlainTable(Log):
    """The log of a table, and its data files, with the checks before each use. Thread-safe.

    Attributes:
        bad_files: Its data files that cannot be read.
        require_place: Raises if its location was created again since the table was opened.
    """

    bad_files = BadFiles()
    require_place: Callable[[], None]
    #: Delta's id of the table at the last read. A table that is created again has another one.
    _id: str | None = None
    #: Its log on the disk, on local files.
    _synced: SyncedLog | None = None
    #: The last commit of another program that was synced.
    _synced_stranger = ""

    def newest(self) -> Snapshot:
        """The newest version.

        Raises:
            EngineError: The table does not exist.
            StoreError: Its location was created again.
            UnknownLogError: This package cannot read it.
        """
        return self._same(super().newest())

    def _same(self, snapshot: Snapshot) -> Snapshot:
        """Return a version, after a check that its location was not created again since the first read.

        Raises:
            StoreError: It was created again.
        """
        found = snapshot.shape.metadata.get("id")
        if found != self._id:
            if self._id is not None:
                self.require_place()
            self._id = found
        return snapshot

    @contextmanager
    def deciding(self, *, as_known: bool = False) -> Iterator[Base]:
        """The newest version for a commit in a block. On local files what others have committed is synced before.

        Args:
            as_known: As for `writing`.

        Raises as `newest`, and:
            UnknownLogError: This package cannot write the table.
        """
        with self.writing(as_known=as_known) as base:
            if self.stranger != self._synced_stranger:
                if self._synced is not None:
                    self._synced.require_trust(is_known=False)
                if not self._synced_stranger:
                    log.warning(
                        "%s: %s, which is no queue: its commits can overwrite those of queues. Let tubeq sweep "
                        "compact tables and remove old files, and tubeq delete remove tasks",
                        self.store,
                        self.stranger,
                    )
                self._synced_stranger = self.stranger
            self._same(base.snapshot).shape.require_writable()
            yield base

    @contextmanager
    def changing(self) -> Iterator[Base]:
        """The newest version from the whole log, for a change of the table itself or of its files in a block.

        Raises as `deciding`.
        """
        if self.is_far:
            # The table may have been removed and created again. On local files a commit's file shows that.
            self.forget()
        with self.deciding() as base:
            yield base

    def exists(self) -> bool:
        """Whether the table exists, by its log."""
        try:
            self.newest()
        except EngineError as error:
            if not error.missing:
                raise
            self.forget()
            return False
        except (DamagedFileError, UnknownLogError):
            # The table exists but cannot be read. The next read raises the error.
            return True
        return True

    def key(self, file: DataFile) -> str:
        """The key of a data file, which differs from those of all other tables."""
        return f"{self.store}/{file.path}"

    def has(self, files: Sequence[DataFile]) -> bool:
        """Whether files of one directory exist with the lengths that were written."""
        if not files:
            return True
        directory = files[0].path.split("/")[0]
        there = {f"{directory}/{entry.name}": entry.size for entry in self.store.list(directory)}
        return all(there.get(file.path) == file.size for file in files)

    def written(self, directory: str, shape: Shape) -> Sequence[DataFile]:
        """The data files that Spark has written to a directory below the table's, by their footers.

        Raises:
            OSError: One cannot be read.
            pa.ArrowException: One is no Parquet file.
        """
        from pyarrow.parquet import read_metadata  # noqa: PLC0415  what only looks does without

        def read(entry: Entry) -> DataFile:
            path = f"{directory}/{entry.name}"
            with self.store.open_file(path, entry.size) as opened:
                footer = read_metadata(opened)
            return file_of(path, entry.size, shape, footer, round(entry.at * 1000))

        # Hadoop writes checksums beside them on local files.
        listed = self.store.list(directory)
        return self.store.together(read, [e for e in listed if e.name.endswith(".parquet")])

    def remove(self, directory: str) -> None:
        """Remove a directory below the table's with all that is in it; raises OSError."""
        self.store.delete([f"{directory}/{entry.name}" for entry in self.store.list(directory)])


class LocalTable(PlainTable):
    """A table on local files, on a disk that can be full or damaged. The caller of `commit` holds its lock."""

    def __init__(self, directory: Path) -> None:
        """Use the table at a directory, which may not exist."""
        self.directory = directory
        synced = synced_log_of(directory)
        store = LocalStore(synced)
        tidying = Tidying(store, _CLOCK, LocalRetention(synced), at_once)
        # A local file is asked for once, so no patience is needed.
        super().__init__(store, _CLOCK, tidying, Patience(0, 0.0))
        self.bad_files, self._synced = BadFiles(directory), synced

    def create(self, before: Snapshot, change: Change) -> None:
        """As `Log.create`."""
        try:
            synced_log_of(self.directory).make_directory()
        except OSError as error:
            raise EngineError(reason_of(error), Outcome.FAILED) from error
        super().create(before, change)

    def write(self, snapshot: Snapshot, change: Change) -> Sequence[tuple[DataFile, pa.Table]]:
        """As `Log.write`. Puts are refused while some space is still left on the disk.

        The removal of files that are missing or damaged is refused, too, because they may come back.
        """
        self.bad_files.look(change.gone, at_content=False)
        for file in self.bad_files.among(change.gone):
            # The statement must be decided again without the file.
            raise EngineError(str(self.bad_files.refusal(file)), Outcome.CONFLICT)
        if not self.has(change.written):
            msg = f"files that were written for {self.directory} are gone"
            raise EngineError(msg, Outcome.STALE)
        if change.rows is not None and change.rows.num_rows:
            require_space(self.directory, change.rows, change.gone)
        return super().write(snapshot, change)

    def remove(self, directory: str) -> None:
        """Remove a directory below the table's with all that is in it; raises OSError."""
        if (self.directory / directory).exists():
            shutil.rmtree(self.directory / directory)


def store_table(store: ObjectStore, background: Background) -> PlainTable:
    """A table on an object store."""
    tidying = Tidying(
        store, _CLOCK, StoreRetention(), lambda work: background.run(one_patience()(work))
    )
    return PlainTable(store, _CLOCK, tidying, store.patience, is_far=True)


#: The bytes that are kept free, or this part of a small disk.
_KEPT, _PART = 256 << 20, 32
#: The column that only rows of tasks have a value in.
_STATE = "state"


def require_space(table: Path, rows: pa.Table, gone: Sequence[DataFile]) -> None:
    """Refuse a commit that adds tasks to a tube if the disk is nearly full.

    A take, an ack and a heartbeat also write to the disk, so on a completely full disk no task could be processed any
    more.

    Args:
        table: The directory of its table.
        rows: The rows that the commit writes.
        gone: The files that they replace.

    Raises:
        EngineError: The disk is nearly full.
    """
    if table.name in SYSTEM or _STATE not in rows.column_names:
        return
    replaced = [file.rows for file in gone if file.partition[PARTITION] not in OWN_SEGMENTS]
    # A gate or the tombstone of a drop adds a row, too, which has no state: takes and drops need them.
    tasks = rows.num_rows - rows[_STATE].null_count
    if None in replaced or tasks <= sum(count or 0 for count in replaced):
        return
    space = shutil.disk_usage(table)
    kept = min(_KEPT, space.total // _PART)
    if space.free < kept:
        why = (
            f"only {space.free >> 10} KB are free: the last {kept >> 10} KB are for takes and acks"
        )
        raise EngineError(f"[Errno {errno.ENOSPC}] {why}: {str(table)!r}", Outcome.FAILED)
