"""The gate of puts that rest on what they have read: all puts of a tube with a capacity, and puts of keys.

The gate is a row with a number that only rises. Such a put reads the number together with the number of stored tasks,
and then the tasks that have its keys. Its statement increments the number, and fails if another put has done so
since. Takes and acks only make room and free keys, so they neither read nor increment it. A task whose ttl has ended
counts until a commit removes it: a take or a touch that began before the end may still commit, and then the
task lives on. So the capacity is never exceeded, and no two tasks have the same key.

The identities of such puts are rows beside the gate, because a MERGE has no transaction id of Delta.

The key of a task is a column of its row. So the key is free when the row is removed, and only puts use the column. In
a tube with `unique_for` a put adds a row for each key, too: with the negated id of the tube, in a state of its own.
The key stays in use until the moment in this row, also if the task has ended. Sweeps remove these rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.storage.arrow.columns import table_of
from tubeq_spark.storage.expression import FAIL, FALSE, Type, all_of, at, case, literal, row
from tubeq_spark.storage.log.commit_text import DamagedFileError, damaged
from tubeq_spark.storage.query import Select, count_if, greatest, named
from tubeq_spark.storage.rows import COLUMNS, PutsSeen, stored_tasks, stored_values
from tubeq_spark.storage.rows_after import rows_at
from tubeq_spark.storage.statement import Clause, Statement
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS, PUT_GATE, SEGMENT_0, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import PutIdentity, Source
    from tubeq_spark.storage.tables.tube_reader import TubeReader

#: The columns of the source rows for the gate, for identities, and for a tombstone, which must not be there. `owner` is
#: the name of an identity.
_NAMED = dict.fromkeys(("segment", "task_id", "created"), pa.int64()) | {"owner": pa.string()}
#: The name in the source row that removes the rows of old identities. No identity has this name.
_PRUNE = "prune"
_ROW, _T, _S = row(), row("t"), row("s")


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
        select = Select(self._table.name, columns, where)
        try:
            found, unread = self._engine.rows(select)[0], 0
        except DamagedFileError:
            if not counts:
                raise
            found, unread = self._readable(select)
        return PutsSeen(
            found["number"] or 0,
            found["tombstones"] > 0,
            found["version"],
            found.get("stored", 0) + unread,
            found.get("ended", 0),
        )

    def _readable(self, select: Select) -> tuple[dict[str, Any], int]:
        """Run a query without data files that cannot be read; also return the most tasks that their segments can have.

        Raises:
            DamagedFileError: The log does not have that number, or the gate is in such a file.
        """
        before = self._engine.tables.bad_files(self._table.name)
        found = self._engine.rows(replace(select, skips=()))[0]
        unread: dict[int | None, int] = {}
        # A file that can be read again by now was still left out of the query, so both lists count.
        for bad in (*before, *self._engine.tables.bad_files(self._table.name)):
            if bad.segment in OWN_SEGMENTS or bad.segment_rows is None:
                raise damaged(bad.path, bad.fault)
            # A segment may have lost rows between the two reads, so the higher number counts.
            unread[bad.segment] = max(bad.segment_rows, unread.get(bad.segment, 0))
        return found, sum(unread.values())

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
        where = all_of(self._table.is_kept_key(), _has(keys), predicates.is_alive(now_us))
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
        """Insert rows and increment the gate, or fail if another put has done so, or the tube is dropped.

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
    return predicates.one_of(_ROW.unique, keys, Type.STRING)
