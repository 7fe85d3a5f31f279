"""Runs statements and appends on the table's newest snapshot: each is one commit, or none."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tubeq_spark.storage.arrow.arrays import array
from tubeq_spark.storage.arrow.columns import whole
from tubeq_spark.storage.arrow.sources import held
from tubeq_spark.storage.expression_parts import columns_of
from tubeq_spark.storage.native import errors, partitions
from tubeq_spark.storage.native.commit_notes import is_far, saying, user_metadata
from tubeq_spark.storage.native.delta_log.log_files import hook
from tubeq_spark.storage.native.handles import read, schema_of
from tubeq_spark.storage.native.library_options import to_read
from tubeq_spark.storage.native.sending import ShortLogError, sent_once
from tubeq_spark.storage.native.swap import plan_rewrite
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.query import Select
from tubeq_spark.storage.query import count as counted
from tubeq_spark.storage.statement import Affected
from tubeq_spark.storage.store.patience import has_made

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from tubeq_spark.storage.native.datafusion import DataFusion
    from tubeq_spark.storage.native.handles import Table
    from tubeq_spark.storage.outcome import Note
    from tubeq_spark.storage.statement import Append, Statement
    from tubeq_spark.storage.store.renewed_options import RenewedOptions

T = TypeVar("T")

#: On an object store a statement is decided so many times after conflicts, before the verb reads again.
DECISIONS = 5
#: An append is written so many times, because the removal of a file in its snapshot conflicts with it.
APPENDS = 50


class Writer:
    """Writes to tables: a decision on a snapshot is committed on that snapshot."""

    def __init__(self, datafusion: Callable[[], DataFusion], options: RenewedOptions) -> None:
        """Read by DataFusion, on a storage that is reached by these options."""
        self._datafusion = datafusion
        self._options = options

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
        with table.writing() as snapshot:
            target = _Target(table, snapshot, statement, self._datafusion)
            before = snapshot.version()
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
            decision = plan_rewrite(statement, target)
            rows = decision.rows
            if rows is None:
                return decision.affected
            total = new_total(statement, decision.affected, snapshot.transaction_version)
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

        They are appended as the very next version, at half the cost of a `swap`.
        """
        try:
            _append(snapshot, rows, saying(snapshot, said, total=total, at_once=True))
        except Exception as error:
            if is_far(snapshot) or not errors.is_conflict(error):
                raise
            # Another program has committed without the lock, and may have changed those rows.
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

        It fails if another commit since the snapshot has added or removed rows that the predicate may find. On an
        object store it fails after any other commit.
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
        found = self._datafusion().condition(statement.where)
        before = snapshot.version()
        total = None
        if statement.ended is not None:
            going = Affected(deleted=self._rows_of(statement, snapshot))
            total = new_total(statement, going, snapshot.transaction_version)
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
            # Some files have no statistics. The removed rows can still be counted in the version before.
            return Affected(deleted=self.count(statement, table, before))
        return Affected(deleted=int(metrics.get("num_deleted_rows") or 0))

    def count(self, statement: Statement, table: DeltaTable, version: int) -> int:
        """The number of rows that a statement without a source finds in a version."""
        options = to_read(table.table_uri, self._options.current())
        then = DeltaTable(table.table_uri, version=version, storage_options=options or None)
        counting = Select(statement.table, {"n": counted()}, statement.where)
        found = self._datafusion().query(counting, at=then)
        return int(found.column("n")[0].as_py())

    def append(self, table: Table, append: Append, note: Note) -> Affected:
        """Run an append, unless it has an identity that the snapshot before its commit has, too."""
        rows = held(append.rows)
        affected = Affected(inserted=rows.num_rows)
        said = user_metadata(note, affected, append.operation_id, append.user_metadata)
        for is_last in (*[False] * (APPENDS - 1), True):
            try:
                with table.writing() as snapshot:
                    if is_done(append, snapshot.transaction_version):
                        break
                    base = table.for_rows(snapshot, rows)
                    write = self._writes(base, append, rows, said)
                    self._send(table, base, append, write)
                    return affected
            except Exception as error:
                # An append reads nothing, so the changes of another commit do not matter.
                if is_last or not errors.is_conflict(error):
                    raise
        return Affected()

    def _writes(
        self, snapshot: DeltaTable, append: Append, rows: pa.Table, said: str
    ) -> Callable[[], None]:
        """The function that commits an append."""
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


def new_total(
    statement: Statement, affected: Affected, version_under: Callable[[str], int | None]
) -> tuple[str, int] | None:
    """The new total of ended tasks; `None` if it does not change.

    Args:
        statement: A statement.
        affected: What it changes.
        version_under: Tells the last transaction version of an application id.
    """
    return None if statement.ended is None else statement.ended.total(affected, version_under)


def sent(
    table: Table,
    snapshot: DeltaTable,
    operation_id: int,
    send: Callable[[], T],
    told: Callable[[Mapping[str, Any]], T],
) -> T:
    """Commit the version that follows a snapshot by the library. Arguments and errors as for `sent_once`."""
    if not table.is_far:
        return send()
    version = snapshot.version() + 1

    def seen() -> Mapping[str, Any] | None:
        # This comes first: unlike the read of a file it lets other threads run while the store is silent.
        with table.newest() as newest:
            last = newest.version()
        if last < version:
            return None
        found = _commit_info(table, version)
        if found is None:
            msg = f"begins after version {version}"
            raise ShortLogError(msg)
        return found

    done = sent_once(table.path, version, operation_id, table.patience, send, seen, told)
    has_made(None)
    return done


def _commit_info(table: Table, version: int) -> Mapping[str, Any] | None:
    """The commit info of a commit; `None` if the version does not exist."""
    text = read(table.path, table.options, f"_delta_log/{version:020}.json")
    if text is None:
        return None
    actions = (json.loads(line) for line in text.splitlines() if line.strip())
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


class _Target:
    """The snapshot on which a statement decides."""

    #: Commits of rivals that do not affect the statement may come in between.
    is_next = False

    def __init__(
        self,
        table: Table,
        snapshot: DeltaTable,
        statement: Statement,
        datafusion: Callable[[], DataFusion],
    ) -> None:
        metadata = snapshot.metadata()
        self._table = table
        self._snapshot = snapshot
        self._statement = statement
        self._datafusion = datafusion
        self.schema = schema_of(snapshot)
        self.by = metadata.partition_columns
        self.properties = metadata.configuration

    def rows(self) -> pa.Table:
        """The rows in the partitions that the statement names."""
        with self._reading():
            return self._datafusion().rows(self._statement, self.schema, self._snapshot)

    def changed(self, *, is_new: bool) -> pa.Table:
        """The rows after the statement."""
        with self._reading():
            return self._datafusion().changed(
                self._statement, self.schema, self.by, self._snapshot, is_new=is_new
            )

    def _reading(self) -> AbstractContextManager[None]:
        return errors.reading() if self._table.is_far else nullcontext()

    def is_empty(self) -> bool:
        """Whether there are no files in these partitions."""
        near = partitions.named(self._statement.partitions)
        return not self._snapshot.file_uris(file_pruning_predicate=near)


def is_of_whole_partitions(statement: Statement, by: Sequence[str]) -> bool:
    """Whether a statement only removes rows, by conditions on partition columns."""
    return statement.only_removes and columns_of(statement.where) <= set(by)


def is_done(append: Append, version_under: Callable[[str], int | None]) -> bool:
    """Whether an append with an identity was made before. Arguments as for `new_total`."""
    if append.once is None:
        return False
    app, version = append.once
    before = version_under(app)
    return before is not None and before >= version
