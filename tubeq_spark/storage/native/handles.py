"""The tables that this process has open, and what errors of their storage mean for reads and statements."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.validation import was_forked
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.durability.background import Background
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.location import TUBES, local_directory, path_of, path_table
from tubeq_spark.storage.log.actions import UnknownLogError
from tubeq_spark.storage.native.plain_table import LocalTable, PlainTable, store_table
from tubeq_spark.storage.native.small_files import SmallFiles
from tubeq_spark.storage.store import store_options
from tubeq_spark.storage.store.store import RequestError, passes
from tubeq_spark.storage.store.store_options import RenewedOptions, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.storage.store.object_store import Bucket, ObjectStore

#: The remedy for a table that this package does not know.
_SWITCH_OFF = (
    "switch off features that it does not know (ALTER TABLE … DROP FEATURE, or SET TBLPROPERTIES)"
)
#: The errors of a query or a statement that Arrow cannot compute, or not from the files of a table.
OF_ROWS = (NotByArrowError, pa.ArrowException)


@contextmanager
def telling() -> Iterator[None]:
    """Run a block that writes, and turn errors of the storage into outcomes.

    Raises:
        StoreError: Nothing was written: the table has features, or a request failed before the commit.
        EngineError: Another error of the storage, or rows cannot be computed.
    """
    try:
        yield
    except UnknownLogError as error:
        msg = f"nothing was written, as the native engine cannot write this table: {error}; {_SWITCH_OFF}"
        raise StoreError(msg) from error
    except RequestError as error:
        # The outcome of a commit that was sent is known by now, and has an error of our own.
        raise StoreError(f"nothing was written: {reason_of(error)}", passes=error.passes) from error
    except (OSError, *OF_ROWS) as error:
        raise EngineError(reason_of(error), Outcome.FAILED) from error


@contextmanager
def reading() -> Iterator[None]:
    """Run a block that reads tables, and turn errors of the storage into ours.

    Raises:
        StoreError: The storage failed to read, or this package cannot read the table.
    """
    try:
        yield
    except UnknownLogError as error:
        msg = f"the native engine cannot read this table: {error}; {_SWITCH_OFF}"
        raise StoreError(msg) from error
    except (OSError, *OF_ROWS) as error:
        msg = f"storage could not be read: {reason_of(error)}"
        raise StoreError(msg, passes=passes(error)) from error


#: The id of the process that opened a table first; 0 if none has.
_process = 0


class Handles:
    """The tables of an engine, by their SQL names."""

    def __init__(self, options: StorageOptions | None = None) -> None:
        """Open tables with these storage options.

        Raises:
            InvalidOptionError: The options are a function that returns no options.
            StoreError: This process was forked from one that has tables open.
        """
        self.require_own_process()
        self.options = RenewedOptions(options)
        self.files = SmallFiles()
        self._background = Background()
        #: The clients of object stores, by their addresses.
        self._buckets: dict[str, Bucket] = {}
        self._known: dict[str, PlainTable] = {}
        self._lock = threading.Lock()

    def require_own_process(self) -> None:
        """Refuse to use tables in a process that was forked from one that uses them: its threads do not exist here.

        Raises:
            StoreError: This process was.
        """
        global _process  # noqa: PLW0603  (threads are those of a process)
        process = os.getpid()
        _process = _process or process
        if process != _process:
            raise was_forked(process, _process, "has a queue open without Spark, or had one")

    def table(self, name: str) -> PlainTable:
        """The table with a SQL name. It need not exist.

        Raises:
            StoreError: The name is one in a catalog, or the storage is not reached, or this process was forked.
        """
        self.require_own_process()
        with self._lock:
            table = self._known.get(name)
            if table is None:
                path = path_of(name)
                if path is None:
                    raise StoreError(f"{name} is a name in a catalog: only Spark knows where it is")
                table = self._known[name] = self.plain(path)
                table.require_place = partial(self._require_place, path)
            return table

    def _require_place(self, path: str) -> None:
        """Refuse a table that was created again together with its whole location.

        A new table alone is no error: the table of a dropped tube may be removed by hand before the name is used again.

        Raises:
            StoreError: The registry beside it was created again, too.
        """
        place = path.rpartition("/")[0]
        registry = f"{place}/{TUBES}"
        if registry != path:
            with suppress(EngineError):
                self.table(path_table(registry)).newest()
            return
        msg = f"{place} was removed and made again since this queue object was opened: open it anew"
        raise StoreError(msg)

    def plain(self, path: str) -> PlainTable:
        """The log and the files of the table at a path."""
        directory = local_directory(path)
        if directory is not None:
            return LocalTable(directory)
        return store_table(self.store(path), self._background)

    def store(self, path: str) -> ObjectStore:
        """The files below a path on an object store.

        Raises:
            StoreError: This package does not reach it.
        """
        uri, key = store_options.place_of(path, self.options.current())
        # These import the clients of all object stores, which most processes never need.
        from tubeq_spark.storage.store.object_store import Bucket, ObjectStore  # noqa: PLC0415

        bucket = self._buckets.get(uri) or self._buckets.setdefault(uri, Bucket(uri, self.options))
        return ObjectStore(bucket, key, self.options.patience)

    def close(self) -> None:
        """Forget all tables, after the background work has ended or has had as long as a verb waits."""
        self._background.close(self.options.patience.seconds)
        self.files.forget()
        with self._lock:
            self._known.clear()
            for bucket in self._buckets.values():
                bucket.close()
