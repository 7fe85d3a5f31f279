"""The queue's tables without Spark: queries by DataFusion, statements by swapping partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tubeq_spark.rules.refusals import no_spark
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.commit_notes import told_by, user_metadata
from tubeq_spark.storage.native.dialect import columns_of, translated
from tubeq_spark.storage.native.handles import Handles, Table, schema_of
from tubeq_spark.storage.native.queries import Query
from tubeq_spark.storage.native.swap import Decision, condition, decide
from tubeq_spark.storage.native.tables import NativeTables
from tubeq_spark.storage.outcome import EngineError
from tubeq_spark.storage.statement import Affected, Append, Statement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tubeq_spark.storage.commit_note import Note
    from tubeq_spark.storage.statement import Source

__all__ = ["NativeEngine"]

#: How far back a lost answer is looked for; more commits than this do not fit into one operation.
HISTORY_LIMIT = 200
#: An append that meets the removal of a file which it knew is written once more.
_APPENDS = 50


class NativeEngine:
    """The library `deltalake` as the verbs need it. For threads."""

    #: There is nothing between it and the storage that could be gone for good.
    unreachable = False

    def __init__(self, storage_options: Mapping[str, str] | None = None) -> None:
        """Work on tables at paths or URIs.

        Args:
            storage_options: What the library needs to reach the storage.
        """
        self._handles = Handles(storage_options)
        self._admin = NativeTables(self._handles)

    def close(self) -> None:
        """Let go of all tables."""
        self._handles.close()

    @property
    def tables(self) -> NativeTables:
        """Its tables, to be made, changed and measured."""
        return self._admin

    def answers(self) -> bool:
        """Whether statements can be run."""
        return True

    @staticmethod
    def committer() -> None:
        """The process in which statements run: this one, so nobody need wait for another."""

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads tables of the queue, and turn what the library fails with into our error."""
        return errors.reading()

    # -- queries ------------------------------------------------------------------------------

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a small query."""
        found: list[dict[str, Any]] = self.arrow(sql).to_pylist(maps_as_pydicts="strict")
        return found

    def arrow(
        self, sql: str, sources: Mapping[str, Source] | None = None, expected: int = 0
    ) -> pa.Table:
        """The rows of a query, as Arrow.

        Args:
            sql: The query, in Spark's dialect.
            sources: As of a `Statement`.
            expected: How many rows it reads, about.
        """
        with self.reading():
            return self._run(sql, sources or {}, expected, {})

    def _run(
        self,
        sql: str,
        sources: Mapping[str, Source],
        expected: int,
        handles: Mapping[str, DeltaTable],
    ) -> pa.Table:
        """Run a query.

        Args:
            sql: The query.
            sources: The rows that it names.
            expected: How many rows it reads, about.
            handles: Snapshots that it is to read, by the tables' names; else it reads the newest.
        """
        query = Query(expected)
        known: set[str] = set()

        def named(name: str) -> str:
            table = self._handles.of(name)
            if name not in known:
                known.add(name)
                if name in handles:
                    query.over(table.alias, handles[name])
                else:
                    with table.newest() as newest:
                        query.over(table.alias, newest)
            return table.alias

        return query.rows(translated(sql, named), _held(sources))

    # -- statements ---------------------------------------------------------------------------

    def execute(self, statement: Statement | Append, note: Note) -> Affected:
        """Run one committing statement.

        Args:
            statement: What to run.
            note: What its commit says of itself.

        Returns:
            The rows it changed; where it changes none there is no commit.
        """
        table = self._handles.of(statement.table)
        if isinstance(statement, Append):
            return self._append(table, statement, note)
        with errors.telling(), table.newest("write") as newest:
            if self._is_of_whole_partitions(statement, newest):
                return self.remove(newest, statement, note)
            decision = self.decided(statement, newest)
            if decision.rows is not None:
                self.commit(decision, newest, statement, note)
            return decision.affected

    def decided(self, statement: Statement, snapshot: DeltaTable) -> Decision:
        """What a statement makes of a snapshot of its table. No commit."""

        def run(sql: str) -> pa.Table:
            handles = {statement.table: snapshot}
            return self._run(sql, statement.sources, statement.size, handles)

        return decide(statement, snapshot, statement.table, run)

    def commit(
        self, decision: Decision, snapshot: DeltaTable, statement: Statement, note: Note
    ) -> None:
        """Commit what was decided on a snapshot, unless another commit there came first."""
        said = user_metadata(note, decision.affected, statement.operation_id)
        write_deltalake(
            snapshot,
            decision.replacing,
            mode="overwrite",
            predicate=decision.predicate,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": said}),
        )

    @staticmethod
    def _is_of_whole_partitions(statement: Statement, table: DeltaTable) -> bool:
        if statement.using or any(clause.sets is not None for clause in statement.clauses):
            return False
        return columns_of(condition(statement)) <= set(table.metadata().partition_columns)

    def remove(self, table: DeltaTable, statement: Statement, note: Note) -> Affected:
        """Commit that whole partitions of a snapshot go, unless another commit there came first."""
        said = user_metadata(note, None, statement.operation_id)
        done = table.delete(
            translated(condition(statement)),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": said}),
        )
        return Affected(deleted=int(done["num_deleted_rows"] or 0))

    def _append(self, table: Table, append: Append, note: Note) -> Affected:
        rows = append.rows
        if not isinstance(rows, pa.Table):
            raise no_spark()
        said = user_metadata(note, Affected(inserted=rows.num_rows), append.operation_id)
        once = None if append.once is None else [Transaction(*append.once)]
        properties = CommitProperties(custom_metadata={"userMetadata": said}, app_transactions=once)
        tries = 0
        while True:
            tries += 1
            try:
                with errors.telling(), table.newest("write") as newest:
                    if append.once is not None and _is_done(newest, append.once):
                        return Affected()
                    _write(newest, rows, append.replaces, properties)
                    return Affected(inserted=rows.num_rows)
            except EngineError as error:
                # It reads nothing: what another commit did does not matter to it.
                if not errors.is_conflict(error) or tries == _APPENDS:
                    raise

    # -- what became of a statement -----------------------------------------------------------

    def find(self, statement: Statement | Append) -> Affected | None:
        """What a statement changed that may have landed; `None` when the history does not have it."""
        for commit in self._history(statement.table, HISTORY_LIMIT):
            told = told_by(commit, statement.operation_id)
            if told is not None:
                return told
        return None

    def version_of(self, table: str, operation_id: int) -> int | None:
        """The version of the commit that holds `operation_id`; `None` when the history has none."""
        for commit in self._history(table, HISTORY_LIMIT):
            if told_by(commit, operation_id) is not None:
                return int(commit["version"])
        return None

    def _history(self, table: str, limit: int | None) -> list[dict[str, Any]]:
        with self.reading(), self._handles.of(table).newest() as newest:
            return newest.history(limit)


def _held(sources: Mapping[str, Source]) -> dict[str, pa.Table]:
    """The sources, all of which the process holds."""
    held: dict[str, pa.Table] = {}
    for name, source in sources.items():
        if not isinstance(source, pa.Table):
            raise no_spark()
        held[name] = source
    return held


def _is_done(table: DeltaTable, once: tuple[str, int]) -> bool:
    """Whether a version as high was written under an id."""
    app, version = once
    before = table.transaction_version(app)
    return before is not None and before >= version


def _write(
    table: DeltaTable, rows: pa.Table, replaces: str | None, properties: CommitProperties
) -> None:
    if replaces is None:
        whole = _whole(rows, schema_of(table))
        write_deltalake(table, whole, mode="append", commit_properties=properties)
        return
    write_deltalake(
        table,
        rows,
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=[replaces],
        commit_properties=properties,
    )


def _whole(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of their table; what they do not name is NULL."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
