"""The tables that this process has open: their snapshots, one to read and one to write."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.sql.quoting import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Handles", "Table", "schema_of"]


class Table:
    """One table.

    Reads have a snapshot of their own: a statement decides and commits on one that nobody moves on
    meanwhile, since what it commits is compared with that.
    """

    def __init__(self, path: str, alias: str, options: Mapping[str, str]) -> None:
        self.path = path
        #: What it is called in DataFusion.
        self.alias = alias
        self._options = dict(options)
        self._handles: dict[str, DeltaTable] = {}
        self._locks = {"read": threading.RLock(), "write": threading.RLock()}

    @contextmanager
    def newest(self, use: str = "read") -> Iterator[DeltaTable]:
        """The table's newest version, kept from other threads for the time of a block.

        Args:
            use: "read", for a moment only, or "write".

        Raises:
            TableNotFoundError: There is none.
        """
        with self._locks[use]:
            handle = self._handles.get(use)
            try:
                if handle is None:
                    handle = DeltaTable(self.path, storage_options=self._options or None)
                    self._handles[use] = handle
                else:
                    handle.update_incremental()
            except BaseException:
                # Half of a change of state must not stay.
                self._handles.pop(use, None)
                raise
            yield handle

    def forget(self) -> None:
        """Open it anew, at the next use."""
        for use, lock in self._locks.items():
            with lock:
                self._handles.pop(use, None)


class Handles:
    """The tables of an engine, by their SQL names."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        """Open tables with these options of the storage."""
        self.options = dict(options or {})
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
        with self._lock:
            self._known.clear()


def schema_of(handle: DeltaTable) -> pa.Schema:
    """The columns of a table's version."""
    return pa.schema(handle.schema().to_arrow())
