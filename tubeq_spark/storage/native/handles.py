"""The tables that this process has open: their snapshots, one to read and one to write."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.native.errors import is_conflict, is_from_library
from tubeq_spark.storage.native.log_files import LogFiles
from tubeq_spark.storage.native.small_files import SmallFiles
from tubeq_spark.storage.sql.quoting import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Handles", "Table", "schema_of"]


class Table:
    """One table.

    A statement decides and commits on a snapshot that nobody moves on meanwhile, since what it
    commits is compared with that. Reads share it while no statement runs, so that each commit is
    looked up once, and have one of their own else: they wait for no statement.
    """

    def __init__(self, path: str, alias: str, options: Mapping[str, str]) -> None:
        self.path = path
        #: What it is called in DataFusion.
        self.alias = alias
        self.log = LogFiles(path)
        self._options = dict(options)
        self._writing, self._reading = (_Snapshot(path, options, self.log) for _ in range(2))

    @contextmanager
    def newest(self) -> Iterator[DeltaTable]:
        """The table's newest version, to be read within a block that takes a moment only.

        Raises:
            TableNotFoundError: There is none.
        """
        if self._writing.lock.acquire(blocking=False):
            try:
                yield self._writing.renewed()
            finally:
                self._writing.lock.release()
        else:
            with self._reading.lock:
                yield self._reading.renewed()

    @contextmanager
    def known(self) -> Iterator[DeltaTable | None]:
        """The version that this process wrote or looked at last, for a block; `None`: it did neither."""
        with self._writing.lock:
            yield self._writing.handle

    @contextmanager
    def writing(self) -> Iterator[DeltaTable]:
        """The table's newest version, kept from all other threads for the time of a block.

        After a block that has committed, the log is kept short.

        Raises:
            TableNotFoundError: There is none.
        """
        with self._writing.lock, self.expected():
            newest = self._writing.renewed()
            before = newest.version()
            yield newest
            self.log.committed(newest, before)

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Tell what fails of a table that is gone from what fails of one that is there.

        A snapshot that was taken before does not notice by itself that its table was removed.

        Raises:
            TableNotFoundError: There is none any more.
        """
        try:
            yield
        except TableNotFoundError:
            raise
        except Exception as error:
            if is_conflict(error) or not is_from_library(error) or self.exists():
                raise
            raise TableNotFoundError(self.path) from error

    def exists(self) -> bool:
        """Whether the table is there, by its log."""
        there = DeltaTable.is_deltatable(self.path, self._options or None)
        if not there:
            self._writing.forget()
            self._reading.forget()
        return there


class _Snapshot:
    """A version of a table that is moved on."""

    def __init__(self, path: str, options: Mapping[str, str], log: LogFiles) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._options = dict(options)
        self._log = log
        self.handle: DeltaTable | None = None

    def renewed(self) -> DeltaTable:
        """The newest version; the lock is held."""
        handle, self.handle = self.handle, None
        if handle is None or not self._log.is_newest(handle.version()):
            # Where this fails, half of a change of state must not stay.
            handle = self._moved_on(handle)
        self.handle = handle
        return handle

    def _moved_on(self, handle: DeltaTable | None) -> DeltaTable:
        if handle is not None:
            try:
                handle.update_incremental()
            except Exception as error:
                # The part of the log that it was reading may have been removed meanwhile.
                if not is_from_library(error):
                    raise
            else:
                return handle
        return DeltaTable(self._path, storage_options=self._options or None)

    def forget(self) -> None:
        """Open the table anew the next time."""
        self.handle = None


class Handles:
    """The tables of an engine, by their SQL names."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        """Open tables with these options of the storage."""
        self.options = dict(options or {})
        self.files = SmallFiles()
        self._known: dict[str, Table] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> Table:
        """The table of a SQL name, which need not be there.

        Raises:
            StoreError: The name is one in a catalog.
        """
        with self._lock:
            table = self._known.get(name)
            if table is None:
                path = path_of(name)
                if path is None:
                    msg = f"{name} is a name in a catalog: only Spark knows where it is"
                    raise StoreError(msg)
                table = Table(path, f"tubeq_table_{len(self._known)}", self.options)
                self._known[name] = table
            return table

    def close(self) -> None:
        """Forget all of them."""
        self.files.forget()
        with self._lock:
            self._known.clear()


def schema_of(handle: DeltaTable) -> pa.Schema:
    """The columns of a table's version."""
    return pa.schema(handle.schema().to_arrow())
