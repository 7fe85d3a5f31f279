"""Makes, changes, measures and maintains Delta tables, and reads what Spark has written for a put.

Spark writes the files of a put to a directory of their own below the table, before a commit of ours adds them. Nobody else
writes to such a directory. A sweep removes what a stopped put has left there.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import SystemClock, to_us
from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.storage.engine import EngineError, Extent, Outcome, Rivals, Tables
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.log.actions import info_in
from tubeq_spark.storage.log.log_files import LogFiles, checksum_of, commit_name, pointer
from tubeq_spark.storage.log.next_version import Change
from tubeq_spark.storage.log.snapshot import Shape, Snapshot, shape_of, with_property
from tubeq_spark.storage.native import handles
from tubeq_spark.storage.native.file_statistics import least, told_file
from tubeq_spark.storage.statement import (
    HISTORY,
    Commit,
    Note,
    WrittenRows,
    is_of,
    new_operation_id,
    read_commit,
    total_of,
)
from tubeq_spark.storage.store.local_files import PUT
from tubeq_spark.storage.store.store import Store, patiently
from tubeq_spark.storage.tables.schema import PARTITION, NewTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tubeq_spark.storage.native.handles import Handles
    from tubeq_spark.storage.rows import BadFile, ToldFile

log = logging.getLogger(__name__)
#: How many commits back a lost answer is searched for. During one operation others make fewer.
HISTORY_LIMIT = 200


def _small_in(newest: Snapshot, rows: int, size: int) -> int:
    """The number of partitions whose files together are small; files without a row count have no rows here."""
    counts: Counter[int | None] = Counter()
    sizes: Counter[int | None] = Counter()
    for file in newest.files.values():
        counts[file.partition[PARTITION]] += file.rows or 0
        sizes[file.partition[PARTITION]] += file.size
    return sum(counts[part] <= rows and of <= size for part, of in sizes.items())


class NativeTables(Tables):
    """The tables of a `NativeEngine`."""

    def __init__(self, handles: Handles) -> None:
        """Work with these handles."""
        self._handles = handles

    # -- making and changing -----------------------------------------------------------------

    def create(self, table: NewTable) -> bool:
        """Create a table, in one commit, if it does not exist.

        Returns:
            Whether it did not exist, and nobody else has created it meanwhile.

        Raises:
            CommitUnknownError: The commit was sent, and nobody can tell whether the table exists.
        """
        opened = self._handles.table(table.name)
        if opened.is_far:
            # Otherwise the first commit of a table that was removed by hand could follow the versions of the old one.
            opened.forget()
        if self.is_table(table.name):
            return False
        now_ms = to_us(SystemClock().now()) // 1_000
        shape = shape_of(table, str(uuid.uuid4()), now_ms)
        change = _change(shape)
        return _is_first(table.name, lambda: opened.create(Snapshot.before(shape), change))

    def set_property(self, table: str, name: str, value: str) -> bool:
        """Set a table property; False when another commit came first that has changed the table itself.

        Raises:
            StoreError: The storage failed. The property may be set.
        """
        opened = self._handles.table(table)

        def commit() -> None:
            with opened.changing() as base:
                before = base.snapshot.shape
                shape = with_property(before, name, value)
                opened.commit(base, _change(shape, before))

        return _is_first(table, commit)

    def vacuum(self, table: str, *, purges: bool = False) -> None:
        """Remove the files that no kept version of a table needs, and the old part of its log."""
        opened = self._handles.table(table)
        with handles.telling(), opened.changing() as base:
            opened.vacuum(base.snapshot, purges=purges)

    def has_payload(self, table: str, payload: str | None) -> bool:
        """Whether the table of a tube holds payloads of this type."""
        schema = self.newest(table).shape.schema
        if not {"data", "tube"} <= {*schema.names}:
            raise StoreError(f"{table} cannot be used: it is not the table of a tube")
        wanted = pa.string() if payload is None else columns_of(payload)
        return bool(schema.field("data").type == wanted)

    # -- looking ------------------------------------------------------------------------------

    def newest(self, table: str) -> Snapshot:
        """A table's newest version."""
        with handles.reading():
            return self._handles.table(table).newest()

    def is_table(self, name: str) -> bool:
        """Whether a table exists; false if its log has no commit yet."""
        with handles.reading():
            return self._handles.table(name).exists()

    def properties(self, table: str) -> Mapping[str, str | None]:
        """The properties of a table."""
        return self.newest(table).shape.properties

    def extent(self, table: str) -> Extent:
        """Measure a table's files and log."""
        opened = self._handles.table(table)
        with handles.reading():
            newest = opened.newest()
            sizes = [file.size for file in newest.files.values()]
            log_files, name = LogFiles(opened.store), commit_name(newest.version)
            last, at_ms = pointer(log_files), info_in(log_files.read(name)).get("timestamp")
            if at_ms is None:
                at_ms = log_files.list_from(commit_name(newest.version - 1))[name].at * 1000
        at_us = int(at_ms * 1000)
        commits = newest.version - (-1 if last is None else int(last["version"]))
        return Extent(len(sizes), sum(sizes), newest.version, at_us, commits)

    def version(self, table: str) -> int | None:
        """A table's newest version."""
        return self.newest(table).version

    def segment_bytes(self, table: str, segments: Collection[int]) -> Mapping[int, int]:
        """The size of the data files of some segments of a tube."""
        found: Counter[int] = Counter()
        for file in self.newest(table).files.values():
            segment = file.partition[PARTITION]
            if segment is not None and segment in segments:
                found[segment] += file.size
        return found

    def bad_files(self, table: str) -> Sequence[BadFile]:
        """The data files of a tube that are missing or damaged."""
        newest, bad = self.newest(table), self._handles.table(table).bad_files
        bad.look(newest.files.values(), at_content=False)
        return bad.told(newest)

    def store_of(self, uri: str) -> Store:
        """The files below a path or URI."""
        return self._handles.plain(uri).store

    def told_files(self, table: str, order: Sequence[str] = ()) -> Iterable[ToldFile] | None:
        """The facts that the log tells about a tube's data files, in an order; `None` if a file is bad."""
        opened = self._handles.table(table)
        with handles.reading():
            newest = opened.newest()
        if opened.bad_files.of(newest):
            return None
        bounds = [(least(file, order), file) for file in newest.files.values()]
        bounds.sort(key=lambda bound: bound[0] or ())
        return (told_file(file, newest.shape.schema, bound) for bound, file in bounds)

    def rivals(self, table: str) -> Rivals:
        """The commits of others that came before the last ones of this process to a table."""
        return self._handles.table(table).rivals

    def small_segments(self, table: str, rows: int, size: int, every: int) -> int:
        """The number of segments of at most this many rows and bytes, at every `every`-th version; else 0."""
        known = self._handles.table(table).known
        if known is None or known.version % every:
            return 0
        return _small_in(known, rows, size)

    def data_files(self, table: str) -> int:
        """How many data files a table has, as far as its newest version is known; else 0."""
        known = self._handles.table(table).known
        return 0 if known is None else len(known.files)

    def ended(self, table: str, tube: int) -> int:
        """The total of ended tasks of a tube."""
        with handles.reading():
            return self._handles.table(table).newest().version_under(total_of(tube)) or 0

    def overwrites(self, location: str) -> str | None:
        """Why no queue is safe at a location: its object store ignores conditions of a PUT; `None` if it does not."""
        if local_directory(location) is not None:
            return None
        with handles.reading():
            store, probe = self._handles.store(location), f"_tubeq_probe-{uuid.uuid4()}"
            if not patiently(lambda: store.overwrites(probe), store.patience):
                return None
        return (
            f"the object store of {location} overwrites an object where a conditional PUT (If-None-Match: *) must "
            "be refused: two programs would overwrite each other's commits, and tasks would be lost"
        )

    def commit_of(self, table: str, operation_id: int) -> Commit | None:
        """The commit with an operation id, among the newest ones; `None` if none of them has it."""
        with handles.reading():
            infos = self._handles.table(table).history(HISTORY_LIMIT)
            found = (read_commit(_row(info)) for info in infos if is_of(info, operation_id))
            return next(found, None)

    def commits(self, table: str, limit: int) -> list[Commit]:
        """The newest commits to a table, the newest first."""
        with handles.reading():
            return [read_commit(_row(info)) for info in self._handles.table(table).history(limit)]


def _is_first(table: str, commit: Callable[[], object]) -> bool:
    """Commit a change of a table itself; False when another commit came first.

    Raises:
        CommitUnknownError: It was sent, and its outcome cannot be found out.
        StoreError: The storage failed.
    """
    try:
        with handles.telling():
            commit()
    except EngineError as error:
        if error.outcome is Outcome.CONFLICT:
            return False
        msg = f"{table} could not be created or changed: {reason_of(error)}"
        raise StoreError(msg, passes=error.outcome is Outcome.LOST) from error
    return True


def _row(info: Mapping[str, Any]) -> dict[str, Any]:
    """A commit info with its version as Spark's DESCRIBE HISTORY shows it; the time in microseconds."""
    at_us = int(info.get("timestamp") or 0) * 1000
    return {name: info.get(name) for name in HISTORY} | {"timestamp": at_us}


def _change(shape: Shape, before: Shape | None = None) -> Change:
    """The commit that makes a table of a shape, or gives a table this shape in place of the former one."""

    def on(later: Snapshot) -> Change | None:
        """The same change behind commits of others that leave the table itself as it is."""
        return change if later.shape is before else None

    step, operation = "create", "CREATE TABLE"
    if before is not None:
        step, operation = "set_property", "SET TBLPROPERTIES"
    note = Note(step, operation_id=new_operation_id())
    change = Change(note, on=on, shape=shape, operation=operation)
    return change


class PutDirectories:
    """The put directories of a native engine's tables."""

    def __init__(self, handles: Handles) -> None:
        """Use the tables of these handles."""
        self._handles = handles

    def shape(self, table: str) -> Shape:
        """The columns and properties that files must have so that our commit can add them, by the newest version.

        Raises:
            StoreError: The table has features, so our commits do not write it.
        """
        opened = self._handles.table(table)
        # If the table has changed since, the rows do not `fit`, and are written again.
        with handles.telling():
            shape = opened.newest().shape
            shape.require_writable()
        return shape

    @staticmethod
    def new_name() -> str:
        """The name of a new directory."""
        return f"{PUT}{uuid.uuid4()}"

    def read(self, table: str, directory: str, shape: Shape) -> WrittenRows:
        """The rows that Spark has written to a directory, for a table of a shape.

        Raises:
            StoreError: They cannot be read.
        """
        opened = self._handles.table(table)
        try:
            files = opened.written(directory, shape)
            if not opened.is_far:
                # Hadoop's checksums are not synced. Spark reads a file without one, but not beside a wrong one.
                opened.store.delete([str(checksum_of(Path(file.path))) for file in files])
        except (OSError, pa.ArrowException) as error:
            msg = f"the files of the put cannot be read, nothing was put: {reason_of(error)}"
            raise StoreError(msg) from error
        return WrittenRows(directory, files, sum(file.rows or 0 for file in files), shape)

    def fit(self, table: str, rows: WrittenRows) -> bool:
        """Whether rows can still be added to a table."""
        opened = self._handles.table(table)
        with handles.reading():
            return rows.shape.is_like(opened.newest().shape) and opened.has(rows.files)

    def discard(self, table: str, directory: str) -> None:
        """Remove a directory, unless the table has files of it."""
        opened, inside = self._handles.table(table), f"{directory}/"
        try:
            with handles.reading():
                newest = opened.newest()
            if not any(path.startswith(inside) for path in newest.files):
                opened.remove(directory)
        except Exception:
            log.warning("%s/%s is left to a sweep", table, directory, exc_info=True)
