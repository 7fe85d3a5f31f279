"""The gates of a tube's takes and puts, and the taken-utube rows: rows of its own table beside the tasks.

A gate is a row with a number, which is never removed and only rises. A take with limits (of
sub-queues, or `most_taken`) reads the gates, and the taken tasks at the same time or later. Its statement increments
the numbers of the gates on which it rests, and fails if another take has incremented one of them since. Acks, releases
and ended leases only make room, so they neither read nor increment gates.

Which sub-queues are taken is computed from the tasks. A sub-queue with moments to remember (`rate`, `order="fair"`)
has a row with the moments at which its last leases began. It changes only in commits that increment its gate.

The puts of a tube with a capacity, and puts of keys, have a gate of their own. Such a put reads the number together
with the number of stored tasks, and then the tasks that have its keys. Its statement raises the number, and fails if
another put has raised it since. Takes and acks only make room and free keys, so they neither read nor raise it. A task
whose ttl has ended counts until a commit removes it: a take or a touch that began before the end may still commit, and
then the task lives on. So the capacity is never exceeded, and no two tasks have the same key.

The identities of such puts are rows beside the gate, because a MERGE has no transaction id of Delta.

The key of a task is a column of its row. So the key is free when the row is removed, and only puts use the column. In
a tube with `unique_for` a put adds a row for each key, too: with the negated id of the tube, in a state of its own.
The key stays in use until the moment in this row, also if the task has ended. Sweeps remove these rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import US
from tubeq_spark.model.ids import hash_of
from tubeq_spark.storage.arrow.columns import array, table_of
from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.expression import (
    FAIL,
    FALSE,
    Expression,
    Type,
    all_of,
    at,
    case,
    integer,
    literal,
    row,
)
from tubeq_spark.storage.query import Select, Union, count, count_if, greatest, least, named, one_of
from tubeq_spark.storage.rows import COLUMNS, GatesSeen, PutsSeen, stored_tasks, stored_values
from tubeq_spark.storage.rows_after import rows_at
from tubeq_spark.storage.statement import Clause, Statement
from tubeq_spark.storage.tables.tube_table import (
    GATES,
    PUT_GATE,
    SEGMENT_0,
    UTUBE_ROWS,
    WHOLE_UTUBES,
    TubeTable,
    is_alive,
)
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.statement import PutIdentity, Source
    from tubeq_spark.storage.tables.tube_reader import TubeReader

_ROW, _T, _S = row(), row("t"), row("s")
#: A session whose last take began earlier has no share of the gates.
RECENT_US = 10 * US


class Gates:
    """The gates and the taken-utube rows of one tube."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Use the table of a tube."""
        self._engine, self._table = engine, table

    @staticmethod
    def segment_of(utube: str | None) -> int:
        """The segment of the row of a sub-queue."""
        return UTUBE_ROWS[hash_of(utube) % len(UTUBE_ROWS)]

    def read(self, *, with_rows: bool) -> GatesSeen:
        """Read the gates, and with `with_rows` the taken-utube rows."""
        return _seen(self._engine.arrow(self._ours(with_rows=with_rows)))

    def read_with_taken(
        self, now_us: int, acked: Collection[int] = (), *, with_rows: bool, skips: bool
    ) -> GatesSeen:
        """Read the gates and the taken tasks by one query, which reads the gates first.

        Args:
            now_us: The moment.
            acked: The ids of tasks that do not count.
            with_rows: Whether to read the taken-utube rows, too.
            skips: Whether sub-queues with tasks in an unreadable file may be left out.
        """
        lasting = _ROW.next_event.is_null() | (_ROW.next_event > at(now_us))
        columns = {
            "utube": _ROW.utube,
            "segment": literal(0),
            "task_id": literal(0),
            "owner": least(_ROW.owner),
            "n": count(),
            "lasting": count_if(lasting),
            "new": count_if(_ROW.since > at(now_us - RECENT_US)),
        }
        taken = self._table.mine() & (_ROW.state == TaskState.TAKEN.value)
        if acked:
            taken &= ~self._table.has_id(acked)
        by_utube = Select(
            self._table.name, columns, taken, ["utube"], skips=WHOLE_UTUBES if skips else None
        )
        return _seen(self._engine.arrow(Union([self._ours(with_rows=with_rows), by_utube])))

    def _ours(self, *, with_rows: bool) -> Select:
        """A query for the gates, and with `with_rows` for the taken-utube rows."""
        segments = (*GATES, *UTUBE_ROWS) if with_rows else GATES
        none = {"n": literal(0), "lasting": literal(0), "new": literal(0)}
        columns = {**named("utube", "segment", "task_id", "owner"), **none}
        ours = _ROW.segment.is_in(segments) & (_ROW.tube == -self._table.id)
        return Select(self._table.name, columns, ours)

    def begin(self, now_us: int, *, several: bool) -> Statement:
        """Write the gates before the first take. It fails if there are some.

        Args:
            now_us: The moment.
            several: Whether takes of different sub-queues may commit side by side, so that there are several gates.
        """
        # Both choices begin with the same gate, so only one program can begin.
        segments = GATES if several else GATES[:1]
        names = [None] * len(segments)
        return Statement(
            self._table.name,
            [Clause({"task_id": FAIL})],
            [Clause(new_row(self._table, now_us))],
            where=_T.tube == -self._table.id,
            on=[_T.segment == _S.segment, _T.utube.same_as(_S.utube)],
            named=pa.table(
                {"segment": array(segments, pa.int64()), "utube": array(names, pa.string())}
            ),
            reads=segments,
            size=len(segments),
            tasks=0,
        )


def _seen(found: pa.Table) -> GatesSeen:
    """The gates, the taken-utube rows and the taken tasks among the rows of a query."""
    taken, own = matching(found, _ROW.n > 0), matching(found, _ROW.n == 0)
    gates = matching(own, _ROW.owner.is_null()).to_pylist()
    numbers = {gate["segment"]: gate["task_id"] for gate in gates}
    return GatesSeen(numbers, matching(own, _ROW.owner.is_not_null()), taken)


def new_row(table: TubeTable, now_us: int) -> dict[str, Expression]:
    """The columns of a new gate or taken-utube row, with the segment and the name of its source row."""
    return {
        "segment": _S.segment,
        "utube": _S.utube,
        "task_id": literal(0),
        "tube": literal(-table.id),
        "created": at(now_us),
        "attempts": integer(0),
    }


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
        """The tasks that have some of these keys, at least one, or had them within `unique_for`: these are done.

        Returns:
            The tasks by key, in their effective states; `None` if one is stored whose ttl has ended.
        """
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
        done = [row for table in kept for row in stored_tasks(table)]
        return {row.unique or "": row for row in done} | there

    def used(self, keys: Collection[str], now_us: int) -> pa.ChunkedArray | None:
        """The keys among these that are in use; `None` if a task is stored whose ttl has ended."""
        columns = {**named("unique"), "state": self._table.state(now_us)}
        found = self._engine.arrow(self._table.select(columns, _has(keys)))
        if found.column("state").null_count:
            return None
        kept = self._kept(named("unique"), keys, now_us)
        columns_of = [table.column("unique") for table in (found, *kept)]
        return pa.chunked_array(
            [chunk for column in columns_of for chunk in column.chunks], pa.string()
        )

    def _kept(
        self, columns: Mapping[str, Expression], keys: Collection[str], now_us: int
    ) -> list[pa.Table]:
        """The rows that are kept for some of these keys at a moment, as a table; no table if there can be none."""
        if not keys or self._table.unique_for_us is None:
            return []
        where = all_of(self._table.is_kept_key(), _has(keys), is_alive(now_us))
        return [self._engine.arrow(Select(self._table.name, columns, where))]

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
