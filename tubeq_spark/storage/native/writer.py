"""Runs statements and appends on the table's newest snapshot: each is one commit, or none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tubeq_spark.storage.arrow.sources import held
from tubeq_spark.storage.arrow_arrays import array
from tubeq_spark.storage.expression import columns_of
from tubeq_spark.storage.native import errors, partitions
from tubeq_spark.storage.native.client_options import to_read
from tubeq_spark.storage.native.commit_notes import user_metadata
from tubeq_spark.storage.native.commit_properties import is_far, saying
from tubeq_spark.storage.native.datafusion_text import DataFusionRenderer
from tubeq_spark.storage.native.delta_log.log_files import hook
from tubeq_spark.storage.native.handles import schema_of
from tubeq_spark.storage.native.sending import sent
from tubeq_spark.storage.native.swap import decide
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.query import Select
from tubeq_spark.storage.query import count as counted
from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tubeq_spark.storage.commit_note import Note
    from tubeq_spark.storage.native.handles import Table
    from tubeq_spark.storage.statement import Append, Statement

__all__ = ["APPENDS", "Renders", "RunsQueries", "Writer", "is_of_whole_partitions", "whole"]

#: A statement that meets another commit on an object store is decided so often, before all is read anew.
DECISIONS = 5
#: An append that meets the removal of a file which it knew is written once more, so often.
APPENDS = 50


#: Writes a query.
Renders: TypeAlias = "Callable[[DataFusionRenderer], str]"


class RunsQueries(Protocol):
    """Runs a query by DataFusion, on given snapshots of tables."""

    def __call__(
        self, render: Renders, expected: int, handles: Mapping[str, DeltaTable]
    ) -> pa.Table:
        """The rows."""
        ...


class Writer:
    """Writes to tables: a decision on a snapshot is committed on that snapshot."""

    def __init__(self, query: RunsQueries, options: Mapping[str, str]) -> None:
        """Use these queries, on a storage with these options."""
        self._query = query
        self._options = dict(options)

    def execute(self, table: Table, statement: Statement, note: Note) -> Affected:
        """Run a statement; on an object store it is decided again at once after a conflict."""
        for _ in range(DECISIONS - 1 if table.is_far else 0):
            try:
                return self._execute(table, statement, note)
            except EngineError as error:
                if error.outcome is not Outcome.CONFLICT:
                    raise
        return self._execute(table, statement, note)

    def _execute(self, table: Table, statement: Statement, note: Note) -> Affected:
        def run(render: Renders) -> pa.Table:
            with errors.reading() if table.is_far else nullcontext():
                return self._query(render, statement.size, {statement.table: snapshot})

        with table.writing() as snapshot:
            target, before = _Target(snapshot), snapshot.version()
            if is_of_whole_partitions(statement, target.by):
                return sent(
                    table,
                    snapshot,
                    statement.operation_id,
                    lambda: self.remove(snapshot, statement, note),
                    lambda commit: self._removed(
                        statement, snapshot, before, commit["operationMetrics"]
                    ),
                )
            decision = decide(statement, target, run)
            rows = decision.rows
            if rows is None:
                return decision.affected
            total = _total(snapshot, statement, decision.affected)
            said = user_metadata(note, decision.affected, statement.operation_id)
            if decision.changed is None:
                write, found = self.insert, partitions.named(statement.partitions)
            else:
                write = self.swap
                found = partitions.predicate(target.by, decision.changed, statement.partitions)
            base = table.for_rows(snapshot, rows)
            self._send(table, base, statement, lambda: write(base, rows, found, said, total))
            return decision.affected

    @staticmethod
    def _send(
        table: Table, snapshot: DeltaTable, statement: Statement | Append, write: Callable[[], None]
    ) -> None:
        sent(table, snapshot, statement.operation_id, write, lambda _: None)

    def insert(
        self,
        snapshot: DeltaTable,
        rows: pa.Table,
        predicate: str,
        said: str,
        total: tuple[str, int] | None = None,
    ) -> None:
        """Commit rows if no row fulfils a predicate.

        As the very next version, which an append makes as well as a `swap`, at half the cost.
        """
        try:
            _append(snapshot, rows, saying(snapshot, said, total=total, at_once=True))
        except Exception as error:
            if is_far(snapshot) or not errors.is_conflict(error):
                raise
            # Somebody did without the lock, and may have done something else.
            self.swap(snapshot, rows, predicate, said, total)

    def swap(
        self,
        snapshot: DeltaTable,
        rows: pa.Table,
        predicate: str,
        said: str,
        total: tuple[str, int] | None = None,
    ) -> None:
        """Commit rows that replace those of a predicate.

        It fails where another commit since the snapshot added or removed what the predicate may find; on an
        object store where there is another commit.
        """
        write_deltalake(
            snapshot,
            rows,
            mode="overwrite",
            predicate=predicate,
            commit_properties=saying(snapshot, said, total=total),
            post_commithook_properties=hook(snapshot),
        )

    def remove(self, snapshot: DeltaTable, statement: Statement, note: Note) -> Affected:
        """Commit the removal of whole partitions without reading a row."""
        said = user_metadata(note, None, statement.operation_id)
        found = DataFusionRenderer().expression(statement.where)
        before = snapshot.version()
        total = None
        if statement.ended is not None:
            going = Affected(deleted=self._rows_of(statement, snapshot))
            total = _total(snapshot, statement, going)
        done = snapshot.delete(
            found,
            commit_properties=saying(snapshot, said, total=total),
            post_commithook_properties=hook(snapshot),
        )
        return self._removed(statement, snapshot, before, done)

    def _rows_of(self, statement: Statement, snapshot: DeltaTable) -> int:
        """The number of rows in the partitions that a statement removes."""
        adds = pa.table(snapshot.get_add_actions(flatten=True))
        going = array([True] * len(adds), pa.bool_())
        for name, values in statement.partitions.items():
            column = adds.column(f"partition.{name}")
            going = pc.and_(going, pc.is_in(column, value_set=array(values, column.type)))
        counts = adds.filter(going).column("num_records").to_pylist()
        if None in counts:
            return self.count(statement, snapshot, snapshot.version())
        return sum(counts)

    def _removed(
        self, statement: Statement, table: DeltaTable, before: int, metrics: Mapping[str, Any]
    ) -> Affected:
        """The number of rows that a commit has removed, by the metrics of the library."""
        if metrics["num_removed_files"] and not metrics.get("num_deleted_rows"):
            # There are files without statistics; what was there is still there, one version before.
            return Affected(deleted=self.count(statement, table, before))
        return Affected(deleted=int(metrics.get("num_deleted_rows") or 0))

    def count(self, statement: Statement, table: DeltaTable, version: int) -> int:
        """The number of rows that a statement without a source finds in a version."""
        options = to_read(table.table_uri, self._options)
        then = DeltaTable(table.table_uri, version=version, storage_options=options or None)
        counting = Select(statement.table, {"n": counted()}, statement.where)
        found = self._query(lambda r: r.query(counting), 0, {statement.table: then})
        return int(found.column("n")[0].as_py())

    def append(self, table: Table, append: Append, note: Note) -> Affected:
        """Run an append; one with an identity checks it on the snapshot before its commit."""
        rows = held(append.rows)
        affected = Affected(inserted=rows.num_rows)
        said = user_metadata(note, affected, append.operation_id, append.said)
        for is_last in (*[False] * (APPENDS - 1), True):
            try:
                with table.writing() as snapshot:
                    if append.once is not None and _is_done(snapshot, append.once):
                        break
                    base = table.for_rows(snapshot, rows)
                    write = self._writes(base, append, rows, said)
                    self._send(table, base, append, write)
                    return affected
            except Exception as error:
                # It reads nothing: what another commit did does not matter to it.
                if is_last or not errors.is_conflict(error):
                    raise
        return Affected()

    def _writes(
        self, snapshot: DeltaTable, append: Append, rows: pa.Table, said: str
    ) -> Callable[[], None]:
        """The properties of an append's commit."""
        by = append.replaces
        if by is not None:
            return lambda: self.replace(snapshot, rows, by, said, append.once)
        new = whole(rows, schema_of(snapshot))
        if append.is_total:
            properties = saying(snapshot, said, total=append.once)
            return lambda: _append(snapshot, new, properties)
        return lambda: self.add(snapshot, new, said, append.once)

    def add(
        self, snapshot: DeltaTable, rows: pa.Table, said: str, once: tuple[str, int] | None
    ) -> None:
        """Commit rows without reading others."""
        _append(snapshot, rows, saying(snapshot, said, once))

    def replace(
        self,
        snapshot: DeltaTable,
        rows: pa.Table,
        partition: str,
        said: str,
        once: tuple[str, int] | None,
    ) -> None:
        """Commit rows that replace all others, with their own schema."""
        write_deltalake(
            snapshot,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=[partition],
            commit_properties=saying(snapshot, said, once),
            post_commithook_properties=hook(snapshot),
        )


def _append(snapshot: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    write_deltalake(
        snapshot,
        rows,
        mode="append",
        commit_properties=properties,
        post_commithook_properties=hook(snapshot),
    )


def _total(
    snapshot: DeltaTable, statement: Statement, affected: Affected
) -> tuple[str, int] | None:
    """The new total of ended tasks; `None` if it does not change."""
    ended = statement.ended
    return None if ended is None else ended.total(affected, snapshot.transaction_version)


class _Target:
    """A snapshot for a statement's decision."""

    def __init__(self, snapshot: DeltaTable) -> None:
        metadata = snapshot.metadata()
        self._snapshot = snapshot
        self.schema = schema_of(snapshot)
        self.by = metadata.partition_columns
        self.properties = metadata.configuration

    def rows(self, _near: Mapping[str, Sequence[int]]) -> None:
        """A query reads the rows."""

    def is_empty(self, near: Mapping[str, Sequence[int]]) -> bool:
        """Whether such partitions have no files."""
        return not self._snapshot.file_uris(file_pruning_predicate=partitions.named(near))


def is_of_whole_partitions(statement: Statement, by: Sequence[str]) -> bool:
    """Whether it only removes rows by conditions on partition columns."""
    return statement.only_removes and columns_of(statement.where) <= set(by)


def _is_done(table: DeltaTable, once: tuple[str, int]) -> bool:
    """Whether an application id already has this transaction version."""
    app, version = once
    before = table.transaction_version(app)
    return before is not None and before >= version


def whole(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of their table; missing ones are NULL."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
