"""The queue's tables without Spark: queries by DataFusion, statements by swapping partitions."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.arrow.columns import records
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.select import answer, innermost
from tubeq_spark.storage.arrow.sources import held
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.commit_notes import is_of, told_by
from tubeq_spark.storage.native.datafusion_text import DataFusionRenderer
from tubeq_spark.storage.native.handles import Handles
from tubeq_spark.storage.native.local_writer import LocalWriter
from tubeq_spark.storage.native.queries import MANY, ArrowHandover, RunningQuery
from tubeq_spark.storage.native.small_files import SmallFiles
from tubeq_spark.storage.native.tables import NativeTables
from tubeq_spark.storage.native.writer import Writer
from tubeq_spark.storage.outcome import EngineError
from tubeq_spark.storage.query import Union
from tubeq_spark.storage.statement import Affected, Append, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from deltalake import DeltaTable

    from tubeq_spark.storage.commit_note import Note
    from tubeq_spark.storage.native.writer import Renders
    from tubeq_spark.storage.query import Query, Select
    from tubeq_spark.storage.statement import Source

__all__ = ["NativeEngine"]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How far back a lost answer is looked for; more commits than this do not fit into one operation.
HISTORY_LIMIT = 200


class NativeEngine:
    """The library `deltalake` as the verbs need it. For threads."""

    #: There is nothing between it and the storage that could be gone for good.
    unreachable = False
    #: What it commits are rows that leave and rows that come.
    keeps_feeds = False

    def __init__(
        self, storage_options: Mapping[str, str] | None = None, *, local: bool = True
    ) -> None:
        """Work on tables at paths or URIs.

        Args:
            storage_options: What the library needs to reach the storage.
            local: Whether the log of a table on local files is read and written by this process
                itself. Without, all is as on an object store.
        """
        self._handles = Handles(storage_options, local=local)
        self._admin = NativeTables(self._handles)
        self._exchange = ArrowHandover()
        self.writer = Writer(self._run, self._handles.options)
        self.local_writer = LocalWriter(self._run, self._handles.files, self.writer)

    def close(self) -> None:
        """Let go of all tables."""
        self._handles.close()
        self._exchange.close()

    @property
    def tables(self) -> NativeTables:
        """Its tables, to be made, changed and measured."""
        return self._admin

    def answers(self) -> bool:
        """Whether statements can be run."""
        return True

    @staticmethod
    def carried(run: Callable[[], T]) -> Callable[[], T]:
        """Make of `run` what does the same in another thread: nothing here goes by the thread."""
        return run

    @staticmethod
    def committer() -> None:
        """The process in which statements run: this one, so nobody need wait for another."""

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads, and turn what the library fails with into our error."""
        return errors.reading()

    # -- queries ------------------------------------------------------------------------------

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        return records(self.arrow(query))

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query, as Arrow; about `expected` rows are read."""
        with self.reading():
            if isinstance(query, Union):
                # Each is about another table.
                return pa.concat_tables([self.arrow(each, expected) for each in query.selects])
            few = self._few(query) if expected < MANY else None
            return self._run(lambda r: r.query(query), expected, {}) if few is None else few

    def _few(self, query: Select) -> pa.Table | None:
        """The rows of a query about a small table, by Arrow; `None`: it is left to DataFusion."""
        inner = innermost(query)
        table = self._handles.of(str(inner.table))
        newest, local = table.seen(), table.local
        if newest is None or local is None:
            return None
        listed = SmallFiles.listed(local, newest, {}, inner.where)
        rows = None if listed is None else self._handles.files.rows(listed)
        if rows is None:
            return None
        try:
            return answer(query, rows)
        except (NotByArrowError, pa.ArrowException):
            return None

    def _run(self, render: Renders, expected: int, handles: Mapping[str, DeltaTable]) -> pa.Table:
        """Run a query by DataFusion.

        Args:
            render: Writes the query.
            expected: How many rows it reads, about.
            handles: Snapshots that it is to read, by the tables' names; else it reads the newest.
        """
        running = RunningQuery(self._exchange, expected)
        known: set[str] = set()

        def named(name: str) -> str:
            table = self._handles.of(name)
            if name not in known:
                known.add(name)
                if name in handles:
                    running.over(table.alias, handles[name])
                else:
                    with table.queried() as newest:
                        running.over(table.alias, newest)
                if table.is_far:
                    # All files of a table are read by the client that was registered for it last.
                    with table.reader() as reader:
                        running.over(f"{table.alias}_reader", reader)
            return table.alias

        renderer = DataFusionRenderer(named)
        text = render(renderer)
        with ExitStack() as stack:
            for name in known:
                stack.enter_context(self._handles.of(name).expected())
            return running.rows(text, _all_held(renderer.sources))

    def look_ahead(self, table: str) -> None:
        """Move the snapshot on that the next statement decides on."""
        with suppress(Exception):
            if self._handles.of(table).seen() is None:
                with self._handles.of(table).newest():
                    pass

    def mend(self, table: str, held: Callable[[], AbstractContextManager[None]]) -> None:
        """Make a log readable for all that an earlier version wrote such that the library misreads it.

        Args:
            table: The table.
            held: Holds the table against other writers for a block.
        """
        opened = self._handles.of(table)
        try:
            with self.reading():
                seen = opened.seen()
                if seen is not None and seen.is_misread:
                    with held(), opened.deciding():
                        pass
        except (EngineError, StoreError):
            # Who may not write reads it all the same; whatever else is wrong fails in the next verb.
            log.info("%s was not looked at, or stays as others misread it", table, exc_info=True)

    # -- statements ---------------------------------------------------------------------------

    def execute(self, statement: Statement | Append, note: Note) -> Affected:
        """Run one committing statement.

        Args:
            statement: What to run.
            note: What its commit says of itself.

        Returns:
            The rows it changed; where it changes none there is no commit.

        Raises:
            EngineError: A row would get `FAIL`, another commit came first, or the storage failed: it
                says which.
        """
        table = self._handles.of(statement.table)
        with errors.telling(is_far=table.is_far):
            writer = self.writer if table.seen() is None else self.local_writer
            if isinstance(statement, Append):
                return writer.append(table, statement, note)
            return writer.execute(table, statement, note)

    # -- what became of a statement -----------------------------------------------------------

    def find(self, statement: Statement | Append) -> Affected | None:
        """What a statement changed that may have landed; `None` when the history does not have it."""
        for commit in self._history(statement.table, HISTORY_LIMIT):
            if is_of(commit, statement.operation_id):
                return told_by(commit) or self._changed(statement, int(commit["version"]))
        return None

    def _changed(self, statement: Statement | Append, version: int) -> Affected:
        """What a statement has changed of which the history says no more than that it landed."""
        if isinstance(statement, Append):
            # It is written as a whole or not at all.
            return Affected(inserted=statement.size)
        if not statement.only_removes:
            msg = f"the history does not say what version {version} of the table has changed"
            raise StoreError(msg)
        with self.reading(), self._handles.of(statement.table).newest() as newest:
            return Affected(deleted=self.writer.count(statement, newest, version - 1))

    def version_of(self, table: str, operation_id: int) -> int | None:
        """The version of the commit that holds `operation_id`; `None` when the history has none."""
        for commit in self._history(table, HISTORY_LIMIT):
            if is_of(commit, operation_id):
                return int(commit["version"])
        return None

    def _history(self, table: str, limit: int | None) -> list[dict[str, Any]]:
        with self.reading(), self._handles.of(table).newest() as newest:
            return newest.history(limit)


def _all_held(sources: Mapping[str, Source]) -> dict[str, pa.Table]:
    """The sources, all of which the process holds."""
    return {name: held(source) for name, source in sources.items()}
