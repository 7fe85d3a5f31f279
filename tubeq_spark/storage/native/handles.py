"""The tables that this process has open: their snapshots, one to read and one to write."""

from __future__ import annotations

import logging
import os
import re
import threading
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tubeq_spark.errors import StoreError
from tubeq_spark.model.refusals import was_forked
from tubeq_spark.storage.durability.commit_file import DamagedFileError
from tubeq_spark.storage.durability.log_names import checkpoints_in, versions_of
from tubeq_spark.storage.location import TUBES, local_directory, path_of, path_table
from tubeq_spark.storage.native import errors, library_options
from tubeq_spark.storage.native.background import Background
from tubeq_spark.storage.native.delta_log.actions import FeatureError, UnknownLogError
from tubeq_spark.storage.native.delta_log.log_files import LogFiles
from tubeq_spark.storage.native.delta_log.table import LocalTable
from tubeq_spark.storage.native.errors import (
    is_conflict,
    is_from_library,
    is_of_credentials,
    may_pass,
    reading,
)
from tubeq_spark.storage.native.small_files import SmallFiles
from tubeq_spark.storage.native.stored_tables import StoredTables
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.store import store_options
from tubeq_spark.storage.store.patience import patiently
from tubeq_spark.storage.store.renewed_options import RenewedOptions
from tubeq_spark.storage.store.store_options import NoClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tubeq_spark.storage.native.delta_log.log import FileIdentity
    from tubeq_spark.storage.native.delta_log.plain_table import PlainTable
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.store.bucket import Bucket
    from tubeq_spark.storage.store.object_store import ObjectStore
    from tubeq_spark.storage.store.renewed_options import StorageOptions

log = logging.getLogger(__name__)
#: Characters that the library decodes in a local path, or takes for a slash or for the end of the path.
_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[\\#?]")


class Table:
    """The handles of one table.

    A statement decides and commits on a snapshot that no other thread updates meanwhile, because its commit is
    compared with that version. While no statement runs, reads share this snapshot, so that each commit is read
    once. While one runs, they use a snapshot of their own, and do not wait. On an object store the handle that
    commits must not repeat a failed request. There only queries share its version, and they read the files by the
    client of the other handle.
    """

    def __init__(
        self,
        path: str,
        alias: str,
        options: RenewedOptions,
        plain: Callable[[str, LogFiles], PlainTable | None] = lambda _path, _log: None,
        require_place: Callable[[Table], None] = lambda _table: None,
        *,
        by_library: bool = False,
    ) -> None:
        self.path = path
        #: Its name in DataFusion.
        self.alias = alias
        self.log = LogFiles(path)
        self._given = options
        self.patience = options.patience
        #: Whether it is on storage of another host, whose answers can be lost.
        self.is_far = local_directory(path) is None
        #: The table with its own log, which creates and changes it.
        self.own = plain(path, self.log)
        self._local = None if by_library else self.own
        #: Delta's id of the table at the last read. A table that is created again has another one.
        self._id: str | None = None
        self._require_place = require_place
        self._writing = _Snapshot(path, options, library_options.to_commit, self.log)
        self._reading = _Snapshot(path, options, library_options.to_read, self.log)

    @property
    def options(self) -> dict[str, str]:
        """The options by which the library reaches the storage."""
        return library_options.to_read(self.path, self._given.current())

    @property
    def options_to_commit(self) -> dict[str, str]:
        """The options of a handle that commits: the library repeats no request."""
        return library_options.to_commit(self.path, self._given.current())

    @property
    def local(self) -> PlainTable | None:
        """The table with its own log reader; `None` if the library must read it."""
        return self._local

    def seen(self) -> Snapshot | None:
        """The newest version from our log reader; `None` if the library must read it.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        local = self._local
        if local is None:
            return None
        try:
            return self._same(local.newest())
        except UnknownLogError as error:
            self.leave_to_library(error)
            return None

    def _same(self, snapshot: Snapshot) -> Snapshot:
        """Return a version, after a check that its location was not created again since the first read.

        Raises:
            StoreError: It was created again.
        """
        found = snapshot.shape.metadata.get("id")
        if found != self._id:
            if self._id is not None:
                self._require_place(self)
            self._id = found
        return snapshot

    def is_plain(self) -> bool:
        """Whether the library is not needed for it; on an object store as of the version that was read last.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        local = self._local
        is_known = self.is_far and local is not None and local.known is not None
        return is_known or self.seen() is not None

    def leave_to_library(self, why: UnknownLogError) -> None:
        """Stop reading and writing the log, because the table is not a plain one."""
        log.info("%s is left to deltalake: %s", self.path, why)
        self._local = None

    @contextmanager
    def deciding(self, *, as_known: bool = False) -> Iterator[tuple[PlainTable, Snapshot]]:
        """The newest version from our log reader, for a commit in a block.

        A log that misleads other readers first gets a checkpoint, because the library may run a query of the block.

        Args:
            as_known: As for `PlainTable.writing`.

        Raises:
            EngineError: The table is not a plain one, so the library must commit from now on.
            StoreError: The location was made again.
        """
        try:
            local = self._local
            if local is not None:
                with local.writing(as_known=as_known) as snapshot:
                    self._same(snapshot).shape.require_writable()
                    if snapshot.misleads:
                        snapshot = self._with_checkpoint(local, snapshot)  # noqa: PLW2901
                    yield local, snapshot
                return
        except FeatureError as error:
            raise errors.not_written(error) from error
        except UnknownLogError as error:
            self.leave_to_library(error)
        msg = f"{self.path} was changed by somebody else"
        raise EngineError(msg, Outcome.CONFLICT)

    @contextmanager
    def changing(self) -> Iterator[tuple[PlainTable, Snapshot]]:
        """The newest version from the whole log, for a change of the table itself or of its files in a block.

        Raises:
            StoreError: The table cannot be changed without Spark.
            TableNotFoundError: It does not exist.
        """
        own = self.required()
        if self.is_far:
            # The table may have been removed and created again. On local files a commit's file shows that.
            own.forget()
        try:
            with own.writing() as snapshot:
                self._same(snapshot).shape.require_writable()
                yield own, snapshot
        except UnknownLogError as error:
            raise errors.not_written(error) from error

    def required(self) -> PlainTable:
        """The table with its own log.

        Raises:
            StoreError: Only the library reaches it.
        """
        if self.own is None:
            msg = f"{self.path} cannot be changed, because only the library deltalake reaches it"
            raise StoreError(msg)
        return self.own

    def _with_checkpoint(self, local: PlainTable, snapshot: Snapshot) -> Snapshot:
        newest = local.with_checkpoint(snapshot)
        # The library may have been misled, so it must read the log again.
        self.forget()
        return newest

    def forget(self) -> None:
        """Have the library read the whole log again the next time."""
        self._writing.forget()
        self._reading.forget()

    @contextmanager
    def at(self, version: int) -> Iterator[DeltaTable]:
        """A version for a block, if it is still the newest.

        Raises:
            EngineError: Another commit came first.
        """
        with self._writing.lock:
            newest = self._renewed()
            if newest.version() != version:
                msg = f"version {newest.version()} of {self.path} was committed by somebody else"
                raise EngineError(msg, Outcome.CONFLICT)
            yield newest

    @contextmanager
    def newest(self) -> Iterator[DeltaTable]:
        """The table's newest version, for a read in a short block.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        with self._newest(shares=not self.is_far) as newest:
            yield newest

    @contextmanager
    def queried(self) -> Iterator[DeltaTable]:
        """The newest version for a query; on an object store the query also needs a `reader`.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        with self._newest(shares=True) as newest:
            yield newest

    @contextmanager
    def reader(self) -> Iterator[DeltaTable]:
        """A version, perhaps an old one, whose client repeats failed requests."""
        with self._reading.lock:
            yield self._reading.any()

    @contextmanager
    def _newest(self, *, shares: bool) -> Iterator[DeltaTable]:
        if shares and self._writing.lock.acquire(blocking=False):
            try:
                yield self._renewed()
            finally:
                self._writing.lock.release()
        else:
            with self._reading.lock:
                yield self._reading.renewed()

    @contextmanager
    def known(self) -> Iterator[DeltaTable | None]:
        """The last version that this process wrote or read, for a block; `None` if none."""
        with self._writing.lock:
            yield self._writing.handle

    @contextmanager
    def writing(self) -> Iterator[DeltaTable]:
        """The table's newest version for a block; other threads wait meanwhile.

        After a block that has committed, the log is kept short.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        with self._writing.lock, self.expected():
            newest = self._renewed()
            before = newest.version()
            yield newest
            self.log.committed(newest.version(), newest.metadata().configuration, before)

    def for_rows(self, snapshot: DeltaTable, rows: pa.Table) -> DeltaTable:
        """A version for a commit of rows, with longer time limits if they are many."""
        options = library_options.to_write(self.path, self._given.current(), rows.nbytes)
        if options is None:
            return snapshot
        version = snapshot.version()
        with reading():
            return patiently(
                lambda: DeltaTable(self.path, version=version, storage_options=options),
                self.patience,
                may_pass,
            )

    def _renewed(self) -> DeltaTable:
        if not self.is_far:
            return self._writing.renewed()
        with reading():
            return patiently(self._writing.renewed, self.patience, may_pass)

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Raise TableNotFoundError if the failure was caused by the table's removal.

        An older snapshot does not notice by itself that its table was removed.

        Raises:
            TableNotFoundError: The table no longer exists.
        """
        try:
            yield
        except TableNotFoundError:
            raise
        except Exception as error:
            # A store that does not answer now would not answer the check either.
            if is_conflict(error) or not is_from_library(error) or may_pass(error) or self.exists():
                raise
            raise TableNotFoundError(self.path) from error

    def exists(self) -> bool:
        """Whether the table exists, by its log."""
        there = self._answers() if self.is_far else self._has_log()
        if not there:
            self.forget()
            if self._local is not None:
                self._local.forget()
        return there

    def _has_log(self) -> bool:
        """Whether a table on local files has a commit or a checkpoint."""
        directory = local_directory(self.path)
        # The library would need two milliseconds for this check.
        with suppress(FileNotFoundError, NotADirectoryError):
            names = os.listdir(f"{directory}/_delta_log")  # noqa: PTH208  (names are enough)
            return bool(versions_of(names) or checkpoints_in(names))
        return False

    def _answers(self) -> bool:
        """Whether a table on an object store exists; other threads run meanwhile."""
        try:
            if self.seen() is not None:
                return True
            DeltaTable(self.path, storage_options=self.options or None)
        except TableNotFoundError:
            return False
        except (DeltaError, DamagedFileError):
            # The table exists but cannot be read. The next read raises the error.
            return True
        return True


class _Snapshot:
    """A table handle that is updated to newer versions."""

    def __init__(
        self,
        path: str,
        given: RenewedOptions,
        made: Callable[[str, Mapping[str, str]], dict[str, str]],
        log: LogFiles,
    ) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._given, self._made = given, made
        #: The options with which the handle was opened.
        self._options: Mapping[str, str] = {}
        self._log = log
        self.handle: DeltaTable | None = None
        #: A version of the handle, and the identity of its commit's file.
        self._seen: tuple[int, FileIdentity | None] = (-1, None)

    def any(self) -> DeltaTable:
        """A version, perhaps an old one, with the current options. The caller holds the lock."""
        handle = self.handle
        return handle if handle and self._options == self._given.current() else self.renewed()

    def renewed(self) -> DeltaTable:
        """The newest version. The caller holds the lock."""
        return self._given.tried(self._renewed, is_of_credentials)

    def _renewed(self, options: Mapping[str, str]) -> DeltaTable:
        handle, self.handle = self.handle, None
        if self._options != options:
            # The handle would keep its old options.
            handle, self._options = None, options
        version, commit = self._seen
        if self._log.identity(version) != commit:
            # The table was created again. The handle would go on with the files of the former one.
            handle = None
        if handle is None or not self._log.is_newest(handle.version()):
            # If this fails, a half-updated handle must not stay.
            handle = self._moved_on(handle)
        version = handle.version()
        self.handle, self._seen = handle, (version, self._log.identity(version))
        return handle

    def _moved_on(self, handle: DeltaTable | None) -> DeltaTable:
        if handle is not None and not self._log.is_far_behind(handle.version()):
            before = handle.version()
            try:
                handle.update_incremental()
            except Exception as error:
                if may_pass(error):
                    # Opening the table again takes many requests, and one of them would fail as well.
                    self.handle = handle if handle.version() == before else None
                    raise
                # The part of the log that it was reading may have been removed meanwhile.
                if not is_from_library(error):
                    raise
            else:
                return handle
        if local_directory(self._path) is not None and _MISREAD.search(self._path):
            msg = f"the library deltalake is needed here, and takes {self._path} for another directory"
            raise StoreError(msg)
        options = self._made(self._path, self._options)
        return DeltaTable(self._path, storage_options=options or None)

    def forget(self) -> None:
        """Open the table again the next time."""
        self.handle = None


#: The id of the process that used the library first; 0 if none has.
_process = 0


def require_own_process() -> None:
    """Refuse to use the library in a process that was forked from one that uses it.

    Raises:
        StoreError: This process was.
    """
    process = os.getpid()
    if process != _process:
        raise was_forked(process, _process, "has a queue open without Spark, or had one")


class Handles:
    """The tables of an engine, by their SQL names."""

    def __init__(self, options: StorageOptions | None = None, *, local: bool = True) -> None:
        """Open tables with these storage options; `local` as for a `NativeEngine`.

        Raises:
            InvalidOptionError: The options are a function that returns no options.
            StoreError: This process was forked from one that uses the library. The library's threads do not exist here.
        """
        global _process  # noqa: PLW0603  (the library's threads are those of a process)
        _process = _process or os.getpid()
        require_own_process()
        self.options = RenewedOptions(options)
        #: Option names that are probably misspelt, for error messages; `None` if none are.
        self.hint = store_options.misspelt(self.options.current())
        self._is_plain = local
        self.files = SmallFiles()
        self._background = Background()
        #: The clients of object stores, by their addresses.
        self._buckets: dict[str, Bucket] = {}
        self._known: dict[str, Table] = {}
        self._lock = threading.Lock()

    def table(self, name: str) -> Table:
        """The table with a SQL name. It need not exist.

        Raises:
            StoreError: The name is one in a catalog, or this process was forked.
        """
        require_own_process()
        with self._lock:
            table = self._known.get(name)
            if table is None:
                path = path_of(name)
                if path is None:
                    msg = f"{name} is a name in a catalog: only Spark knows where it is"
                    raise StoreError(msg)
                alias = f"tubeq_table_{len(self._known)}"
                table = Table(
                    path,
                    alias,
                    self.options,
                    self._plain,
                    self._require_place,
                    by_library=not self._is_plain,
                )
                self._known[name] = table
            return table

    def _require_place(self, table: Table) -> None:
        """Refuse a table that was created again together with its whole location.

        A new table alone is no error: the table of a dropped tube may be removed by hand before the name is used again.

        Raises:
            StoreError: The registry beside it was created again, too.
        """
        place = table.path.rpartition("/")[0]
        registry = self.table(path_table(f"{place}/{TUBES}"))
        if registry is not table:
            with suppress(TableNotFoundError):
                registry.seen()
            return
        msg = f"{place} was removed and made again since this queue object was opened: open it anew"
        raise StoreError(msg)

    def _plain(self, path: str, files: LogFiles) -> PlainTable | None:
        """The table at a path with our own log reader; `None` if only the library can read it."""
        directory = local_directory(path)
        if directory is not None:
            return LocalTable(directory, files)
        store = self._store(path)
        if store is None:
            return None
        from tubeq_spark.storage.native.store_table import StoreTable  # noqa: PLC0415  as in `_store`

        return StoreTable(path, store, self._background)

    def _store(self, path: str) -> ObjectStore | None:
        """The files below a path on an object store; `None` if only the library reaches it."""
        try:
            uri, key = store_options.place_of(path, self.options.current())
        except NoClientError as error:
            log.info("%s is left to deltalake: %s", path, error)
            return None
        # These import the clients of all object stores, which most processes never need.
        from tubeq_spark.storage.store.bucket import Bucket  # noqa: PLC0415
        from tubeq_spark.storage.store.object_store import ObjectStore  # noqa: PLC0415

        bucket = self._buckets.get(uri) or self._buckets.setdefault(uri, Bucket(uri, self.options))
        return ObjectStore(bucket, key, self.options.patience)

    def overwrites(self, location: str) -> bool:
        """Whether the object store of a location ignores the condition of a conditional PUT; four requests."""
        store = None if local_directory(location) is not None else self._store(location)
        if store is None:
            return False
        probe = f"_tubeq_probe-{uuid.uuid4()}"
        return patiently(lambda: store.overwrites(probe), self.options.patience)

    def stored_tables(self, location: str) -> StoredTables | None:
        """The tables at a location on an object store, to be checked; `None` if only the library reaches it."""
        store = self._store(location)
        return None if store is None else StoredTables(store)

    def close(self) -> None:
        """Forget all tables, after the background work has ended or has had as long as a verb waits."""
        self._background.close(self.options.patience.seconds)
        self.files.forget()
        with self._lock:
            self._known.clear()
            for bucket in self._buckets.values():
                bucket.close()


def schema_of(handle: DeltaTable) -> pa.Schema:
    """The columns of a table's version."""
    return pa.schema(handle.schema().to_arrow())


def read(path: str, options: Mapping[str, str], name: str) -> bytes | None:
    """The contents of a file; `None` if it does not exist.

    Args:
        path: Path or URI of the table.
        options: What the library needs to reach the storage.
        name: The path of the file in the table's directory.
    """
    # These import the clients of all object stores, which most processes never need.
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415
    from pyarrow.fs import FileSystem, PyFileSystem  # noqa: PLC0415

    files: FileSystem = PyFileSystem(DeltaStorageHandler(path, dict(options) or None))
    try:
        with files.open_input_stream(name) as file:
            content: bytes = file.readall()
    except FileNotFoundError:
        return None
    return content
