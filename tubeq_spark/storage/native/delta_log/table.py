"""A table on local files whose log this process reads and writes itself.

The library needs some milliseconds to update a snapshot by one version, to plan a commit and to
list the log, and more memory than the rest of a worker. The tables of a queue use no special
features, and a lock allows only one writer, so a commit becomes the next version or fails.
Therefore this module reads and writes their logs. Tables with further features are left to the
library.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.durability.commit_file import DamagedFileError, fault_of_length
from tubeq_spark.storage.durability.log_names import commit_file
from tubeq_spark.storage.durability.synced_log import synced_log_of
from tubeq_spark.storage.native.delta_log import checkpoints, commits, data_files, reading, versions
from tubeq_spark.storage.native.delta_log.actions import DataFile, UnknownLogError
from tubeq_spark.storage.native.delta_log.bad_files import BadFiles
from tubeq_spark.storage.native.delta_log.commits import require_space
from tubeq_spark.storage.native.delta_log.dead_files import dead_files
from tubeq_spark.storage.native.delta_log.log import LocalLog
from tubeq_spark.storage.native.delta_log.reading import require_no_hole
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.store.store import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tubeq_spark.storage.native.delta_log.log import FileIdentity
    from tubeq_spark.storage.native.delta_log.log_files import LogFiles
    from tubeq_spark.storage.native.delta_log.plain_table import Commit
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot

log = logging.getLogger(__name__)


class LocalTable:
    """A table whose log this process reads and writes. Thread-safe."""

    def __init__(self, directory: Path, files: LogFiles) -> None:
        """Use the table at a directory, which may not exist; `files` keeps its log short."""
        self.directory = directory
        self._log = directory / "_delta_log"
        self._read = LocalLog(self._log)
        self._files = files
        self._synced = synced_log_of(directory)
        #: The version that was read or written last, and the identity of its commit's file.
        self._known: tuple[Snapshot, FileIdentity | None] | None = None
        self._writing = threading.Lock()
        #: Its data files that cannot be read.
        self.bad_files = BadFiles(directory)

    @property
    def rivals(self) -> int:
        """No rivals, because the table's lock keeps them apart."""
        return 0

    def newest(self) -> Snapshot:
        """The newest version.

        Raises:
            TableNotFoundError: The table does not exist.
            UnknownLogError: Only the library can read it.
        """
        found, known, last = None, self._known, self._synced.last_readable
        if known is not None and last is not None and known[0].version > last:
            known = None
        if known is not None:
            # The order of these two checks matters, see `reading`.
            is_last = not versions.is_there(self._read, known[0].version + 1)
            if known[1] is not None and known[1] == self._read.identity(known[0].version):
                if is_last:
                    return known[0]
                found = known[0]
        return self._remember(reading.newest(self._read, found, last))

    def create(self, before: Snapshot, change: Commit) -> object:
        """Commit the first version of a table. Raises as `commit`."""
        with self._writing:
            try:
                self._log.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise EngineError(reason_of(error), Outcome.FAILED) from error
            return self.commit(before, change)

    @property
    def known(self) -> Snapshot | None:
        """The version that was last read or written; `None` if there is none yet."""
        known = self._known
        return None if known is None else known[0]

    @staticmethod
    def recent(_seconds: float) -> None:
        """`None`, because a look costs no request."""

    def history(self, limit: int) -> Iterator[Mapping[str, Any]]:
        """Yield the commit infos of the newest versions, the newest first, with their versions."""
        return versions.history(self._read, self.newest().version, limit)

    def last_checkpoint(self) -> int:
        """The version of the last checkpoint; -1 if there is none."""
        pointer = versions.pointer(self._read)
        return -1 if pointer is None else int(pointer["version"])

    def key(self, file: DataFile) -> str:
        """The key of a data file, which differs from those of all other tables."""
        return f"{self.directory}/{file.path}"

    def opened(self, file: DataFile) -> pa.NativeFile:
        """A data file to read."""
        return pa.OSFile(self.key(file))

    def fetch(self, files: Sequence[DataFile]) -> None:
        """Do nothing: a file is read when it is needed."""

    def forget(self) -> None:
        """Read the whole log again the next time."""
        self._known = None

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        self._known = (snapshot, self._read.identity(snapshot.version))
        return snapshot

    def committed_us(self, snapshot: Snapshot) -> int:
        """The time of a version, from its commit, or else from its file."""
        at_ms: int | None = versions.told(self._read, snapshot.version).get("timestamp")
        if at_ms is not None:
            return at_ms * 1000
        return os.stat(commit_file(self._log, snapshot.version)).st_mtime_ns // 1000  # noqa: PTH116

    @contextmanager
    def writing(self, *, as_known: bool = False) -> Iterator[Snapshot]:
        """The newest version, while no other thread of this process commits.

        Raises as `newest`.
        """
        with self._writing:
            yield self.newest()

    def with_checkpoint(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, with a checkpoint with which other readers can begin; the table's lock is held.

        This needs no commit, so it cannot conflict.

        Raises as `newest`.
        """
        log.info("%s gets a checkpoint, as its log misleads others", self.directory)
        self._checkpoint(snapshot, to_us(SystemClock().now()) // 1_000)
        self.forget()
        return self.newest()

    def commit(self, snapshot: Snapshot, change: Commit) -> list[tuple[DataFile, pa.Table]]:
        """Commit a change of a version, as the very next one.

        Returns:
            The new files, each with its rows.

        Raises:
            EngineError: Another commit came first, or it cannot be written: nothing was changed.
            DamagedFileError: The log has later versions; nothing was changed.
        """
        version, now_ms = snapshot.version + 1, to_us(SystemClock().now()) // 1_000
        require_no_hole(self._read, version)
        self._require_whole(change.gone)
        rows, written = change.rows, list[tuple[DataFile, pa.Table]]()
        try:
            if not self.has(change.written):
                msg = f"files that were written for {self.directory} are gone"
                raise EngineError(msg, Outcome.STALE)
            if rows is not None and rows.num_rows:
                require_space(self.directory, rows, change.gone)
                shape = change.shape or snapshot.shape
                written = data_files.write(
                    self.directory, shape, rows, now_ms, change.gone, change.order
                )
            ours = [file for file, _ in written]
            added = [*ours, *change.written]
            actions = change.actions(added, snapshot.version, now_ms)
            with self._removing_unless_sent(ours):
                is_synced = self._synced.prepare([self.directory / file.path for file in added])
                prepared = commits.prepare(self._log, actions, synced=is_synced)
            is_there = commits.create(self._log, version, prepared)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise EngineError(reason_of(error), Outcome.FAILED) from error
        if not is_there:
            msg = f"version {version} of {self.directory} was committed by somebody else"
            raise EngineError(msg, Outcome.CONFLICT)
        if is_synced:
            self._synced.committed(version)
        newest = self._remember(snapshot.after(change.after(added, now_ms)))
        if self._files.is_checkpoint_due(version):
            self._checkpoint(newest, now_ms)
        self._files.committed(version, snapshot.shape.properties, snapshot.version)
        return written

    def vacuum(self, snapshot: Snapshot) -> None:
        """Remove the old part of the log, and the files that no kept version needs; the table's lock is held."""
        checkpoints.write(self._read, snapshot, to_us(SystemClock().now()) // 1_000)
        self._files.expire(snapshot.version, snapshot.shape.properties)
        for name in dead_files(self._read, snapshot, self._listed()):
            (self.directory / name).unlink(missing_ok=True)

    def _listed(self) -> list[Entry]:
        """All files in the directory of the table and below."""
        found = []
        for place, _, names in os.walk(self.directory):
            for path in (Path(place, name) for name in names):
                with suppress(FileNotFoundError):
                    told = path.stat()
                    name = path.relative_to(self.directory).as_posix()
                    found.append(Entry(name, told.st_size, told.st_mtime, None))
        return found

    def has(self, files: Sequence[DataFile]) -> bool:
        """Whether files exist with the lengths that were written."""
        return not any(fault_of_length(self.directory / file.path, file.size) for file in files)

    def read(self, path: str) -> bytes:
        """The contents of a file below the table's directory; raises OSError."""
        return (self.directory / path).read_bytes()

    def remove(self, directory: str) -> None:
        """Remove a directory below the table's with all that is in it; raises OSError."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.directory / directory)

    def _require_whole(self, files: Sequence[DataFile]) -> None:
        """Refuse to commit the removal of files that are missing or damaged, because they may come back.

        Raises:
            EngineError: A file is bad. The statement must be decided again without it.
        """
        self.bad_files.look(files, at_content=False)
        for file in self.bad_files.among(files):
            raise EngineError(str(self.bad_files.refusal(file)), Outcome.CONFLICT)

    @contextmanager
    def _removing_unless_sent(self, files: Sequence[DataFile]) -> Iterator[None]:
        """Remove data files if a block fails before their commit has its name.

        After that they stay, whatever fails: the commit may exist, and needs them.
        """
        try:
            yield
        except OSError:
            for file in files:
                with suppress(OSError):
                    (self.directory / file.path).unlink()
            raise

    def _checkpoint(self, newest: Snapshot, now_ms: int) -> None:
        try:
            checkpoints.write(self._read, newest, now_ms)
        except (OSError, UnknownLogError, DamagedFileError, pa.ArrowException, ValueError):
            # The commit has succeeded, and readers go on from the last checkpoint.
            log.warning("%s has no new checkpoint", self.directory, exc_info=True)
