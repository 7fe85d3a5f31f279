"""The queue's tables without Spark: queries by Arrow, statements by swapping partitions; and how they are opened."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.validation import no_queue
from tubeq_spark.storage.arrow.columns import records
from tubeq_spark.storage.arrow.fold import answer_by_parts
from tubeq_spark.storage.engine import Engine
from tubeq_spark.storage.location import TUBES, Location, local_directory, refuse_mounts
from tubeq_spark.storage.native import handles
from tubeq_spark.storage.native.file_statistics import files_of
from tubeq_spark.storage.native.handles import Handles
from tubeq_spark.storage.native.plain_table import PlainTable, left_out
from tubeq_spark.storage.native.small_files import FileParts, Listed
from tubeq_spark.storage.native.tables import NativeTables, PutDirectories
from tubeq_spark.storage.native.writer import Writer
from tubeq_spark.storage.opened_location import (
    NATIVE,
    OpenedLocation,
    create_system_tables,
    recover_system_tables,
    require_ours,
)
from tubeq_spark.storage.query import Query, Select, Union
from tubeq_spark.storage.statement import Affected, Commit, Note, Statement, versions_read
from tubeq_spark.storage.store.store import (
    finding_out,
    is_patience_over,
    one_patience,
    verb_patience,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store_options import StorageOptions

log = logging.getLogger(__name__)


class NativeEngine(Engine):
    """Reads and writes tables in this process. Thread-safe."""

    counts_ended = True

    def __init__(self, storage: StorageOptions | Handles | None = None) -> None:
        """Work on tables at paths or URIs, or on those of some handles.

        Args:
            storage: The options by which the storage is reached, a function that returns them, or handles.
        """
        self._handles = storage if isinstance(storage, Handles) else Handles(storage)
        self._admin = NativeTables(self._handles)
        self.writer = Writer(self._handles.files)
        self.put_directories = PutDirectories(self._handles)

    def close(self) -> None:
        """Forget all tables."""
        self._handles.close()

    @property
    def tables(self) -> NativeTables:
        """Creates, changes and measures its tables."""
        return self._admin

    @property
    def unreachable(self) -> bool:
        """Whether the verb of this thread has lost all of its time by requests without an answer."""
        return is_patience_over()

    def patience(self) -> AbstractContextManager[None]:
        """Limit the time that a verb may lose by requests without an answer.

        Raises:
            StoreError: This process was forked. The verb could wait for a lock whose holder, a thread, does not exist here.
        """
        self._handles.require_own_process()
        return verb_patience()

    @staticmethod
    def operating(_operation: str, _table: str | None) -> AbstractContextManager[None]:
        """Limit the lost time if the block is not part of a verb, and look for new commits of each table only once."""
        return one_patience()

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads, and turn errors of the storage into ours."""
        return handles.reading()

    @staticmethod
    def committing_jvm() -> None:
        """Statements run in this process."""

    # -- queries ------------------------------------------------------------------------------

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        return records(self.arrow(query))

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query, as Arrow; about `expected` rows are read."""
        with self.reading():
            if isinstance(query, Union):
                # Each of them reads another table.
                return pa.concat_tables([self.arrow(each, expected) for each in query.selects])
            table = self._handles.table(query.table)
            while True:
                newest = table.newest()
                if (read := versions_read.get(None)) is not None:
                    read[query.table] = newest.version
                bad = table.bad_files.of(newest)
                asked, without = _readable(query, table, newest, bad)
                schema = newest.shape.schema
                may_hold = files_of(asked.where, schema)
                listed = Listed(table, without.within({}), schema)
                try:
                    parts = FileParts(self._handles.files, listed, may_hold)
                    return answer_by_parts(asked, schema, parts.read)
                except (OSError, *handles.OF_ROWS):
                    if not _finds_bad(query, table, bad):
                        raise
                    # The next attempt leaves the damaged files out, or raises an error that names one.
                    log.info("%s is read once more", table.store, exc_info=True)

    def look_ahead(self, table: str) -> None:
        """Update the snapshot on which the next statement will decide."""
        with suppress(Exception):
            self._handles.table(table).newest()

    # -- statements ---------------------------------------------------------------------------

    def execute(self, statement: Statement, note: Note) -> Affected:
        """Run one committing statement.

        Args:
            statement: What to run.
            note: The note of its commit.

        Returns:
            The rows that it changed. If it changes none, it makes no commit.

        Raises:
            EngineError: A row would get `FAIL`, another commit came first, or the storage failed. Its outcome says
                which.
        """
        table = self._handles.table(statement.table)
        with handles.telling():
            return self.writer.execute(table, statement, note)

    def commit_of(self, table: str, operation_id: int) -> Commit | None:
        """The commit with an operation id, among the newest ones; `None` if none of them has it."""
        # These requests share the time limit of the verb's commits.
        with finding_out():
            return self.tables.commit_of(table, operation_id)


def _readable(
    query: Select, table: PlainTable, newest: Snapshot, bad: Sequence[DataFile]
) -> tuple[Select, Snapshot]:
    """A query and the newest version, without the files that cannot be read.

    Raises:
        DamagedFileError: The query needs rows of such a file.
    """
    if not bad:
        return query, newest
    if query.skips is None:
        for file in filter(files_of(query.where, newest.shape.schema), bad):
            raise table.bad_files.refusal(file)
        return query, newest
    readable = left_out(newest.beside(bad), query.skips)
    return replace(query, where=query.where & readable), newest.without(bad)


def _finds_bad(query: Select, table: PlainTable, bad: Sequence[DataFile]) -> bool:
    """Whether a query has failed because of a data file that was not yet known as bad."""
    newest = table.newest()
    known = {file.path for file in bad}
    read = filter(files_of(query.where, newest.shape.schema), newest.files.values())
    others = [file for file in read if file.path not in known]
    table.bad_files.look(others)
    return bool(table.bad_files.among(others))


def open_location(
    engine: Engine, text: object, config: QueueConfig, *, create: bool = True
) -> OpenedLocation:
    """Parse a location, and create missing system tables.

    Raises:
        InvalidOptionError: The text is no location, or the location has another durability.
        QueueNotFoundError: There is no queue, and `create` is False.
        StoreError: The location cannot be used, or not by this engine, or another checkout made it.
    """
    location = Location.parse(text)
    if location.in_catalog:
        raise StoreError(location.needs_a_session())
    refuse_mounts(location)
    directory = local_directory(location.text)
    opened = OpenedLocation.without_spark(location)
    try:
        if directory is not None and (directory / TUBES).is_dir():
            recover_system_tables(opened)
        is_new = not engine.tables.is_table(location.table(TUBES))
        if is_new and not create:
            raise no_queue(location.text)
        if is_new:
            danger = engine.tables.overwrites(location.text)
            if danger is not None:
                raise StoreError(danger)
            log.info("creating the tables of a new queue at %s", location.text)
            opened = replace(opened, is_new=True, durability=config.new_durability())
            create_system_tables(opened, config, engine, NATIVE)
    except OSError as error:
        msg = f"location {location.text!r} cannot be used: {reason_of(error)}"
        raise StoreError(msg) from error
    marks = engine.tables.properties(location.table(TUBES))
    return require_ours(marks, opened, NATIVE, config.durability)
