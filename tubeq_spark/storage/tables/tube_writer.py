"""The statements that change a tube's table: each is one commit.

These rules make the statements simple and safe (ARCHITECTURE.md, "Segments"):

- every row that a statement changes moves to a fresh segment; other rows of its segment stay;
- so a segment only loses rows, and a row that is still in its segment has not changed;
- a statement that names rows changes all of them or none.

Some puts rest on what they have read: all puts of a tube with a capacity, and puts of keys. Their gate is a row with a
number that only rises. Such a put reads the number together with the number of stored tasks, and then the tasks that have
its keys. Its statement raises the number, and fails if another put has raised it since. Takes and acks only make room and
free keys, so they neither read nor raise it. A task whose ttl has ended counts until a commit removes it: a take or a touch
that began before the end may still commit, and then the task lives on. So the capacity is never exceeded, and no two tasks
have the same key.

The identities of such puts are rows beside the gate, because a MERGE has no transaction id of Delta.

The key of a task is a column of its row. So the key is free when the row is removed, and only puts use the column. In
a tube with `unique_for` a put adds a row for each key, too: with the negated id of the tube, in a state of its own.
The key stays in use until the moment in this row, also if the task has ended. Sweeps remove these rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.changes import Change, Every, Remove, Which, errors_of, segments_of
from tubeq_spark.storage.arrow.columns import array, repeated, table_of
from tubeq_spark.storage.expression import FAIL, FALSE, Type, all_of, any_of, at, case, literal, row
from tubeq_spark.storage.query import Select, count_if, greatest, named, one_of
from tubeq_spark.storage.rows import COLUMNS, KEPT_KEY, PutsSeen, stored_tasks, stored_values
from tubeq_spark.storage.rows_after import rows_at
from tubeq_spark.storage.statement import Clause, Ended, Statement
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import (
    PUT_GATE,
    SEGMENT_0,
    UTUBE_ROWS,
    TubeTable,
    is_alive,
    is_free_key,
)
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import PutIdentity, Source
    from tubeq_spark.storage.tables.tube_reader import TubeReader

_ROW, _T, _S = row(), row("t"), row("s")
_SAME_TUBE = [_T.tube == _S.tube]
_TAKEN = TaskState.TAKEN.value


class TubeWriter:
    """Builds the statements of one tube that take no tasks."""

    def __init__(self, table: TubeTable) -> None:
        """Write to a tube's table."""
        self._table = table
        self._new = Clause({**stored_values(table.id, "s"), "tube": _S.tube})

    def put(self, rows: pa.Table, size: int, segments: Sequence[int]) -> Statement:
        """Insert `size` rows (columns of `INSERTED`) into unused segments."""
        # The new segments are empty, and in segment 0 only a tombstone has this tube's id. So a match means that the
        # tube was dropped, and then nothing is inserted.
        return Statement(
            self._table.name,
            inserts=[self._new],
            on=_SAME_TUBE,
            new=rows.append_column("tube", repeated(self._table.id, pa.int64(), rows.num_rows)),
            reads=[SEGMENT_0, *segments],
            size=size,
            tasks=size,
        )

    @property
    def stored(self) -> Mapping[str, Expression]:
        """The stored value of each column, computed from a row of a DataFrame (columns of `INSERTED`)."""
        return stored_values(self._table.id)

    def append(self, rows: Source, count: int, identity: PutIdentity | None) -> Statement:
        """Append `count` rows (columns of `INSERTED`), only once for the same identity."""
        once = None
        if identity is not None:
            once = (f"tubeq/{self._table.id}/{identity.name}", identity.version)
        values = [Clause(stored_values(self._table.id, "s"))]
        return Statement(
            self._table.name, inserts=values, new=rows, once=once, size=count, tasks=count
        )

    def delete_segments(self, segments: Sequence[int]) -> Statement:
        """Remove whole segments with any contents, by metadata only."""
        return Statement(self._table.name, [Clause(None)], reads=segments, removes_partitions=True)

    def fold_kept_keys(
        self,
        segments: Sequence[int],
        dest: int,
        now_us: int,
        until_us: int | None = None,
    ) -> Statement:
        """Remove rows for keys that are free from some segments, and move the others to a fresh one."""
        is_free = is_free_key(now_us, until_us, _T)
        return Statement(
            self._table.name,
            [Clause(None, is_free), Clause({"segment": literal(dest)})],
            where=self._table.is_kept_key(_T),
            reads=segments,
            writes=[dest],
        )

    def drain(self, now_us: int, gone: int, *, with_taken: bool = False) -> Statement:
        """Remove all rows and insert a tombstone. Without `with_taken` it fails if a task is taken.

        Every later put fails by the tombstone, because it reads segment 0. Taken rows move to the unused segment `gone`:
        a change feed would show a removed one as an ack.
        """
        held = self._table.state(now_us, of=_T) == _TAKEN
        ended = clause_of(self._table, Every(), Remove(gone)).sets
        tombstone = {"segment": literal(SEGMENT_0), "tube": literal(self._table.id)}
        beside = (_T.tube == -self._table.id) & any_of(
            _T.state == KEPT_KEY, _T.segment.is_in(UTUBE_ROWS)
        )
        held_row = [] if with_taken else [Clause({"task_id": FAIL}, ~_S.is_tombstone & held)]
        # A row of the source for all rows that go, and one that becomes the tombstone.
        return Statement(
            self._table.name,
            [
                *held_row,
                Clause(ended, ~_S.is_tombstone & (_T.state == _TAKEN)),
                Clause(None, ~_S.is_tombstone),
            ],
            [Clause(tombstone, _S.is_tombstone)],
            where=any_of(self._table.mine(_T), beside),
            on=[(_T.segment == SEGMENT_0) == _S.is_tombstone],
            named=pa.table({"is_tombstone": array([True, False], pa.bool_())}),
        )

    def settle(self, rows: pa.Table, changes: Sequence[tuple[Which, Change]]) -> Statement:
        """Change rows that have not moved since the decision, or fail as a whole.

        A row that is still in its segment has not changed, because every change would have moved it.

        Args:
            rows: The rows, by the columns `segment` and `task_id`; or all rows of some segments, by `segment` alone.
                No segment may be empty.
            changes: Selections of rows with their changes. The first one that applies to a row counts.
        """
        are_named = "task_id" in rows.column_names
        on = [_T.segment == _S.segment]
        if are_named:
            on.append(_T.task_id == _S.task_id)
        removes = any(isinstance(change, Remove) for _, change in changes)
        errors = next((texts for _, change in changes if (texts := errors_of(change))), None)
        if errors is not None:
            of_rows = [errors.get(task_id) for task_id in rows.column("task_id").to_pylist()]
            rows = rows.append_column("error", array(of_rows, pa.string()))
        return Statement(
            self._table.name,
            [clause_of(self._table, which, change) for which, change in changes],
            [Clause({"segment": FAIL})],
            where=self._table.mine(_T),
            on=on,
            named=rows,
            reads=rows.column("segment").unique().to_pylist(),
            writes=[segment for _, change in changes for segment in segments_of(change)],
            size=rows.num_rows,
            tasks=rows.num_rows if are_named else None,
            ended=Ended(self._table.id) if removes else None,
        )


#: The columns of the source rows for the gate, for identities, and for a tombstone, which must not be there. `owner` is
#: the name of an identity.
_NAMED = dict.fromkeys(("segment", "task_id", "created"), pa.int64()) | {"owner": pa.string()}
#: The name in the source row that removes the rows of old identities. No identity has this name.
_PRUNE = "prune"


class PutGate:
    """The gate of the puts into one tube."""

    def __init__(self, engine: Engine, table: TubeTable, reader: TubeReader) -> None:
        """Use the table of a tube."""
        self._engine, self._table, self._reader = engine, table, reader

    def read(
        self, now_us: int, identity: PutIdentity | None = None, *, counts: bool = False
    ) -> PutsSeen:
        """Read the gate, and with `counts` the number of stored tasks, from one version of the table."""
        ours = (_ROW.segment == PUT_GATE) & (_ROW.tube == -self._table.id)
        named = FALSE if identity is None else _ROW.owner == identity.name
        columns = {
            "number": greatest(case((ours & _ROW.owner.is_null(), _ROW.task_id))),
            "version": greatest(case((ours & named, _ROW.task_id))),
            "tombstones": count_if((_ROW.segment == SEGMENT_0) & self._table.mine()),
        }
        where = _ROW.segment.is_in([SEGMENT_0, PUT_GATE])
        if counts:
            stored = (_ROW.segment != SEGMENT_0) & self._table.mine()
            ended = stored & self._table.state(now_us).is_null()
            columns |= {"stored": count_if(stored), "ended": count_if(ended)}
            where = _ROW.tube.is_in([self._table.id, -self._table.id])
        found = self._engine.rows(Select(self._table.name, columns, where))[0]
        return PutsSeen(
            found["number"] or 0,
            found["tombstones"] > 0,
            found["version"],
            found.get("stored", 0),
            found.get("ended", 0),
        )

    def holders(self, keys: Collection[str], now_us: int) -> dict[str, StoredTask] | None:
        """The tasks that have some of these keys, or had them within `unique_for`: these are done.

        Returns:
            The tasks by key, in their effective states; `None` if one is stored whose ttl has ended.
        """
        if not keys:
            return {}
        # Nearly always no task is found, and then no other column is read.
        found = self._engine.arrow(self._table.select(named("task_id"), _has(keys)))
        there: dict[str, StoredTask] = {}
        rows = self._reader.by_ids(found.column("task_id").to_pylist())
        for seen in rows_at(rows, self._table.state(now_us)):
            if seen is None:
                return None
            there[seen.unique or ""] = seen
        others = [key for key in keys if key not in there]
        kept = self._kept({**COLUMNS, "state": literal(TaskState.DONE.value)}, others, now_us)
        return (
            there if kept is None else {row.unique or "": row for row in stored_tasks(kept)} | there
        )

    def used(self, keys: Collection[str], now_us: int) -> pa.ChunkedArray | None:
        """The keys among these that are in use; `None` if a task is stored whose ttl has ended."""
        columns = {**named("unique"), "state": self._table.state(now_us)}
        found = self._engine.arrow(self._table.select(columns, _has(keys)))
        if found.column("state").null_count:
            return None
        kept = self._kept(named("unique"), keys, now_us)
        chunks = [table.column("unique") for table in (found, kept) if table is not None]
        return pa.chunked_array(
            [chunk for column in chunks for chunk in column.chunks], pa.string()
        )

    def _kept(
        self, columns: Mapping[str, Expression], keys: Collection[str], now_us: int
    ) -> pa.Table | None:
        """The rows that are kept for some of these keys at a moment; `None` if there can be none."""
        if not keys or self._table.unique_for_us is None:
            return None
        where = all_of(self._table.is_kept_key(), _has(keys), is_alive(now_us))
        return self._engine.arrow(Select(self._table.name, columns, where))

    def has_ended_key(self, now_us: int) -> bool:
        """Whether a task with a key is stored whose ttl has ended."""
        has_ended = self._table.state(now_us).is_null()
        return self._reader.count(_ROW.unique.is_not_null() & has_ended) > 0

    def put(
        self,
        rows: Source,
        size: int,
        segments: Sequence[int],
        seen: PutsSeen,
        *,
        now_us: int,
        identity: PutIdentity | None = None,
        forget_us: int = 0,
    ) -> Statement:
        """Insert rows and raise the gate, or fail if another put has raised it, or the tube is dropped.

        Args:
            rows: The rows (columns of `INSERTED`).
            size: The number of rows.
            segments: Unused segments.
            seen: The gate as the put has read it.
            now_us: The moment of the put.
            identity: The identity of the put, which makes a repetition add nothing.
            forget_us: Identities that were last used before this moment are removed.
        """
        tube = self._table.id
        named: list[tuple[Any, ...]]
        named = [(SEGMENT_0, None, None, None), (PUT_GATE, seen.number + 1, now_us, None)]
        owner: Expression = _T.owner
        newer: Expression = FALSE
        if identity is not None:
            named.append((PUT_GATE, identity.version, now_us, identity.name))
            named.append((PUT_GATE, None, None, _PRUNE))
            is_old = (_T.owner != identity.name) & (_T.created < at(forget_us))
            owner = case((is_old, _PRUNE), other=_T.owner)
            newer = (_S.owner == identity.name) & (_T.task_id < identity.version)
        values = {**stored_values(tube, "s"), "owner": _S.owner}
        is_own = _S.segment == PUT_GATE
        values["tube"] = case((is_own, literal(-tube)), other=values["tube"])
        as_read = all_of(_S.owner.is_null(), _T.segment == PUT_GATE, _T.task_id == seen.number)
        return Statement(
            self._table.name,
            [
                Clause({"task_id": _S.task_id}, as_read),
                Clause({"task_id": _S.task_id, "created": values["created"]}, newer),
                Clause(None, _S.owner == _PRUNE),
                Clause({"task_id": FAIL}),
            ],
            [Clause(values, _S.task_id.is_not_null())],
            where=_T.tube.is_in([tube, -tube]),
            # The segments of the new rows are empty, so these match none.
            on=[_T.segment == _S.segment, owner.same_as(_S.owner)],
            named=table_of(named, _NAMED),
            new=rows,
            reads=[SEGMENT_0, PUT_GATE, *segments],
            size=size,
            tasks=size,
        )


def _has(keys: Collection[str]) -> Expression:
    """Rows with one of these keys."""
    return one_of(_ROW.unique, keys, Type.STRING)
