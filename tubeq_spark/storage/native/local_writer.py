"""Runs statements and appends on a table whose log this process writes: each is one commit or none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.arrow.arrays import array
from tubeq_spark.storage.arrow.columns import whole
from tubeq_spark.storage.arrow.evaluate import NotByArrowError, holds, of_table
from tubeq_spark.storage.arrow.sources import held
from tubeq_spark.storage.expression import Column, In
from tubeq_spark.storage.expression_parts import implied
from tubeq_spark.storage.native.commit_notes import user_metadata
from tubeq_spark.storage.native.delta_log.definition import with_types
from tubeq_spark.storage.native.delta_log.plain_table import Commit
from tubeq_spark.storage.native.errors import is_from_library
from tubeq_spark.storage.native.small_files import Listed
from tubeq_spark.storage.native.swap import plan_rewrite
from tubeq_spark.storage.native.writer import (
    APPENDS,
    DECISIONS,
    is_done,
    is_of_whole_partitions,
    new_total,
)
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tubeq_spark.storage.arrow.columns import Partition
    from tubeq_spark.storage.native.datafusion import DataFusion
    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.plain_table import PlainTable
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.native.handles import Table
    from tubeq_spark.storage.native.small_files import SmallFiles
    from tubeq_spark.storage.native.writer import Writer
    from tubeq_spark.storage.outcome import Note
    from tubeq_spark.storage.statement import Append, Statement


class LocalWriter:
    """Writes to such tables: a change that was decided on a version is committed as the next version."""

    def __init__(
        self, datafusion: Callable[[], DataFusion], files: SmallFiles, library: Writer
    ) -> None:
        """Decide by the rows of files, and leave unknown cases to the library."""
        self._datafusion = datafusion
        self._files = files
        self._library = library

    def execute(self, table: Table, statement: Statement, note: Note) -> Affected:
        """Run a statement; on an object store it is decided again at once after a conflict."""
        as_known = table.is_far and _removes_known(table, statement)
        for _ in range(DECISIONS - 1 if table.is_far else 0):
            try:
                return self._execute(table, statement, note, as_known=as_known)
            except EngineError as error:
                if error.outcome is not Outcome.CONFLICT or table.local is None:
                    raise
            as_known = False
        return self._execute(table, statement, note)

    def _execute(
        self, table: Table, statement: Statement, note: Note, *, as_known: bool = False
    ) -> Affected:
        with table.deciding(as_known=as_known) as (local, snapshot):
            bad = local.bad_files
            for file in bad.among(
                snapshot.within(statement.partitions) if bad.of(snapshot) else ()
            ):
                raise bad.refusal(file)
            if is_of_whole_partitions(statement, snapshot.shape.by):
                return self._remove(table, local, snapshot, statement, note)
            target = _Target(table, local, snapshot, statement, self._files, self._datafusion)
            try:
                decision = plan_rewrite(statement, target)
            except Exception as error:
                if is_from_library(error):
                    bad.look(near := snapshot.within(statement.partitions))
                    if bad.among(near):
                        # The next decision leaves the file out, or raises an error that names it.
                        raise EngineError(reason_of(error), Outcome.CONFLICT) from error
                raise
            if decision.rows is not None:
                affected, written = _with_written(statement, decision.affected, snapshot)
                gone = target.files_in(decision.changed or ())
                change = _change(snapshot, statement, note, affected, gone, decision.rows, written)
                self.commit(local, snapshot, change)
                return affected
            return decision.affected

    def append(self, table: Table, append: Append, note: Note) -> Affected:
        """Run an append, unless it has an identity that the version before its commit has, too."""
        rows = held(append.rows)
        once, total = (None, append.once) if append.is_total else (append.once, None)

        for is_last in (*[False] * (APPENDS - 1), True):
            try:
                with table.deciding() as (local, snapshot):
                    if is_done(append, snapshot.version_under):
                        break
                    added = Affected(inserted=rows.num_rows)
                    affected, written = _with_written(append, added, snapshot)
                    said = user_metadata(note, affected, append.operation_id, append.user_metadata)
                    if append.replaces is None:
                        new = whole(rows, snapshot.shape.schema)
                        change = Commit(
                            said, new, (), once, total, append.operation_id, written=written
                        )
                        change = _appended(change, snapshot, append)
                    else:
                        gone, shape = snapshot.within({}), with_types(snapshot.shape, rows.schema)
                        change = Commit(
                            said, rows, gone, once, operation_id=append.operation_id, shape=shape
                        )
                    self.commit(local, snapshot, change)
                    return affected
            except EngineError as error:
                # An append reads nothing, so the changes of another commit do not matter.
                if is_last or error.outcome is not Outcome.CONFLICT:
                    raise
        return Affected()

    def commit(self, local: PlainTable, snapshot: Snapshot, change: Commit) -> None:
        """Commit a change that was decided on a version, and cache its new rows: the next statement probably reads them.

        Args:
            local: The table.
            snapshot: The version.
            change: The change.
        """
        # The first piece of a segment is read next. It is cached last, so it stays if not all pieces fit.
        for file, rows in reversed(local.commit(snapshot, change)):
            self._files.keep(local.key(file), rows)

    def _remove(
        self, table: Table, local: PlainTable, snapshot: Snapshot, statement: Statement, note: Note
    ) -> Affected:
        """Commit the removal of whole partitions without reading a row."""
        try:
            gone = _files_that_go(snapshot, statement)
        except (NotByArrowError, pa.ArrowException):
            return self._library.execute(table, statement, note)
        if not gone:
            return Affected()
        counts = [file.rows for file in gone]
        if None in counts:
            # Some files have no statistics.
            with table.at(snapshot.version) as newest:
                count = self._library.count(statement, newest, snapshot.version)
        else:
            count = sum(count or 0 for count in counts)
        affected = Affected(deleted=count)
        self.commit(local, snapshot, _change(snapshot, statement, note, affected, gone))
        return affected


class _Target:
    """The version on which a statement decides."""

    is_next = True

    def __init__(
        self,
        table: Table,
        local: PlainTable,
        snapshot: Snapshot,
        statement: Statement,
        files: SmallFiles,
        datafusion: Callable[[], DataFusion],
    ) -> None:
        self._table = table
        self._version = snapshot.version
        self._statement = statement
        self.schema = snapshot.shape.schema
        self._all = Listed(local, snapshot.within(statement.partitions), self.schema)
        #: The files that are read. The others stay, because none of their rows changes.
        self._listed = self._all
        if len(self._all.files) > 1:
            self._listed = self._all.narrowed(implied(statement.where, "t", ""))
        self._files = files
        self._datafusion = datafusion
        self.by = snapshot.shape.by
        self.properties = snapshot.shape.properties

    def rows(self) -> pa.Table:
        """The rows in the partitions that the statement names, without files that have no row for its condition."""
        rows = self._files.rows(self._listed)
        if rows is not None:
            return rows
        self._listed = self._all
        with self._table.at(self._version) as newest:
            return self._datafusion().rows(self._statement, self.schema, newest)

    def changed(self, *, is_new: bool) -> pa.Table:
        """The rows after the statement, by DataFusion."""
        self._listed = self._all
        with self._table.at(self._version) as newest:
            return self._datafusion().changed(
                self._statement, self.schema, self.by, newest, is_new=is_new
            )

    def is_empty(self) -> bool:
        """Whether there are no files in these partitions."""
        return not self._all.files

    def files_in(self, partitions: Collection[Partition]) -> list[DataFile]:
        """The files in some partitions whose rows were read."""
        return [
            file
            for file in self._listed.files
            if tuple(file.partition[name] for name in self.by) in partitions
        ]


def _removes_known(table: Table, statement: Statement) -> bool:
    """Whether a statement removes partitions that the known version has, as an ack does after its take."""
    known = None if table.local is None else table.local.known
    return (
        known is not None
        and is_of_whole_partitions(statement, known.shape.by)
        and bool(known.within(statement.partitions))
    )


def _files_that_go(snapshot: Snapshot, statement: Statement) -> list[DataFile]:
    """The files whose partitions a statement removes.

    Raises:
        NotByArrowError: Only the library can evaluate the condition.
        pa.ArrowException: The condition cannot be computed.
    """
    files = snapshot.within(statement.partitions)
    if not files:
        return []
    where = statement.where
    if isinstance(where, In) and isinstance(where.part, Column) and not where.negated:
        # Each ack has this condition. To compare a few numbers, Arrow would need a tenth of the ack's time.
        wanted = {literal.value for literal in where.values} - {None}
        return [file for file in files if file.partition[where.part.name] in wanted]
    schema = snapshot.shape.schema
    columns = {
        name: array([file.partition[name] for file in files], schema.field(name).type)
        for name in snapshot.shape.by
    }
    going = holds(where, of_table(pa.table(columns)), len(files))
    return [file for file, goes in zip(files, going.to_pylist(), strict=True) if goes]


def _with_written(
    statement: Statement | Append, affected: Affected, snapshot: Snapshot
) -> tuple[Affected, Sequence[DataFile]]:
    """The changed rows, with those that were written before the commit, and the files of the latter.

    Raises:
        EngineError: Since they were written, the table has been created again, or its writers were told to begin
            anew.
    """
    written = statement.written
    if written is None:
        return affected, ()
    if not written.shape.is_like(snapshot.shape):
        msg = f"{statement.table} is not as it was when rows were written for it"
        raise EngineError(msg, Outcome.STALE)
    return replace(affected, inserted=affected.inserted + written.size), written.files


def _change(
    snapshot: Snapshot,
    statement: Statement,
    note: Note,
    affected: Affected,
    gone: Sequence[DataFile],
    rows: pa.Table | None = None,
    written: Sequence[DataFile] = (),
) -> Commit:
    """The commit of a statement that was decided on a version."""

    def on(later: Snapshot) -> Commit | None:
        """The same commit for a later version, if the partitions that were read have not changed."""
        if later.shape is not snapshot.shape or _paths(later, statement) != read:
            return None
        return replace(change, total=new_total(statement, affected, later.version_under))

    said = user_metadata(note, affected, statement.operation_id)
    total = new_total(statement, affected, snapshot.version_under)
    read = _paths(snapshot, statement)
    operation_id = statement.operation_id
    change = Commit(said, rows, gone, None, total, operation_id, on, written, statement.order)
    return change


def _paths(snapshot: Snapshot, statement: Statement) -> set[str]:
    """The paths of the files that a statement reads."""
    return {file.path for file in snapshot.within(statement.partitions)}


def _appended(change: Commit, snapshot: Snapshot, append: Append) -> Commit:
    """The commit of an append. It reads only whether the append was made before."""

    def on(later: Snapshot) -> Commit | None:
        is_changed = later.shape is not snapshot.shape
        return None if is_changed or is_done(append, later.version_under) else change

    return replace(change, on=on)
