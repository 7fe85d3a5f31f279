"""The capacity of a tube: puts conflict with each other over it, takes and acks do not.

Segment 0 has one row with a sequence number, which every put to a tube with a capacity increments. A put reads
the sequence together with the number of stored tasks, and its statement fails if the sequence has changed. So no
other put has committed in between, and takes and acks only reduce the number of tasks. A task whose ttl has
ended counts until a commit removes it: a take or a touch that began before the end may still commit, and then the
task lives on. So the capacity is never exceeded. Takes and acks never read segment 0, so they never conflict
with a put.

The identities of puts are rows in segment 0, too, because a MERGE has no transaction id of Delta.

The same statement puts tasks with keys (`unique_keys`), with or without a capacity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.expression import (
    FAIL,
    FALSE,
    Literal,
    Type,
    all_of,
    any_of,
    at,
    case,
    integer,
    null,
    row,
)
from tubeq_spark.storage.log.commit_text import DamagedFileError, damaged
from tubeq_spark.storage.query import Select, count_if, greatest
from tubeq_spark.storage.rows import INSERTED, CapacityState, stored_column
from tubeq_spark.storage.statement import Clause, Given, Statement
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.tube_table import KEY_SEGMENT, SEGMENT_0, TubeTable
from tubeq_spark.storage.tables.tube_writer import partitions_of
from tubeq_spark.storage.tables.unique_keys import as_read, sequence_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import KeyState
    from tubeq_spark.storage.statement import PutIdentity, Source

#: The name in the source row that removes the rows of old identities. The column `owner` has the name of an
#: identity, and is NULL in the row of the sequence. No identity has this name.
_PRUNE = "prune"
_ROW, _T, _S = row(), row("t"), row("s")


class CapacityGate:
    """The puts into one tube with a capacity."""

    def __init__(self, engine: Engine, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Put into `table`; `fresh` makes unused numbers."""
        self._engine = engine
        self._table = table
        self._fresh = fresh

    def look(self, now_us: int, identity: PutIdentity | None = None) -> CapacityState:
        """Count the stored tasks."""
        tube = self._table.id
        ours = (_ROW.segment == SEGMENT_0) & (_ROW.tube == -tube)
        named = FALSE if identity is None else _ROW.owner == identity.name
        stored = (_ROW.segment != SEGMENT_0) & self._table.mine()
        state = predicates.effective_state(now_us, None, backoff=self._table.backoff)
        columns = {
            "sequence": greatest(case((ours & _ROW.owner.is_null(), _ROW.task_id))),
            "version": greatest(case((ours & named, _ROW.task_id))),
            "tombstones": count_if((_ROW.segment == SEGMENT_0) & self._table.mine()),
            "stored": count_if(stored),
            "ended": count_if(stored & state.is_null()),
        }
        select = Select(self._table.name, columns, _ROW.tube.is_in([tube, -tube]))
        try:
            found, unread = self._engine.rows(select)[0], 0
        except DamagedFileError:
            found, unread = self._readable(select)
        stored = found["stored"] + unread
        return CapacityState(
            found["sequence"] or 0,
            stored,
            found["ended"],
            found["tombstones"] > 0,
            found["version"],
        )

    def _readable(self, select: Select) -> tuple[dict[str, Any], int]:
        """Run a query without data files that cannot be read; also return the most tasks that their segments can have.

        Raises:
            DamagedFileError: The log does not have that number, or the sequence is in such a file.
        """
        before = self._engine.tables.bad_files(self._table.name)
        found = self._engine.rows(replace(select, skips=()))[0]
        unread: dict[int | None, int] = {}
        # A file that can be read again by now was still left out of the query, so both lists count.
        for bad in (*before, *self._engine.tables.bad_files(self._table.name)):
            if bad.segment == SEGMENT_0 or bad.segment_rows is None:
                raise damaged(bad.path, bad.fault)
            # A segment may have lost rows between the two reads, so the higher number counts.
            unread[bad.segment] = max(bad.segment_rows, unread.get(bad.segment, 0))
        return found, sum(unread.values())

    def put(
        self,
        rows: Source,
        size: int,
        segments: Sequence[int],
        room: CapacityState | None,
        *,
        now_us: int,
        identity: PutIdentity | None = None,
        forget_us: int = 0,
        keys: KeyState | None = None,
    ) -> tuple[Statement, int]:
        """Insert rows (columns of `INSERTED`), unless another put has changed a sequence since its read.

        Args:
            rows: The rows.
            size: The number of rows.
            segments: Unused segments.
            room: The count and the sequence that the put has read; `None` if the tube has no capacity.
            now_us: The moment of the put.
            identity: The identity of the put, which makes a repetition add nothing.
            forget_us: Identities that were last used before this moment are removed.
            keys: The sequence of keys, if rows have keys.

        Returns:
            The statement, and the number of rows that it inserts besides the tasks.
        """
        operation_id, tube = self._fresh(), self._table.id
        # A tombstone matches the row without a name, and so fails the statement.
        sequence = None if room is None else room.sequence
        beside = [self._row((sequence or 0) + 1, now_us, None)]
        newer: Expression = FALSE
        forgotten: Expression = FALSE
        if identity is not None:
            beside.append(self._row(identity.version, now_us, identity.name))
            beside.append(self._row(0, now_us, _PRUNE))
            newer = (_S.owner == identity.name) & (_T.task_id < identity.version)
            forgotten = (_T.owner != identity.name) & (_T.created < at(forget_us))
        values = {name: stored_column(name, "s") for name in (*INSERTED, "tube", "owner")}
        values["attempts"] = integer(0)
        inserted: Expression = ~_S.owner.same_as(_PRUNE)
        clauses: list[Clause] = []
        differs: Expression | None = None
        if sequence is None:
            # Segment 0 may have the sequence of a capacity, which this put does not use.
            differs = (_T.tube == tube) | _S.owner.is_not_null()
            inserted &= (_S.tube > 0) | _S.owner.is_not_null()
        else:
            expected = all_of(_T.tube == _S.tube, _S.owner.is_null(), _T.task_id == sequence)
            clauses.append(Clause({"task_id": _S.task_id}, expected))
        own = [SEGMENT_0]
        if keys is not None:
            own.append(KEY_SEGMENT)
            beside.append(sequence_row(keys, tube))
            clauses.append(Clause({"task_id": _S.task_id}, as_read(keys)))
        statement = Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*own, *segments, operation_id]),
                _S.tube < 0,
                _T.tube.is_in([tube, -tube]),
                any_of(_T.owner.same_as(_S.owner), (_S.owner == _PRUNE) & forgotten),
            ),
            [
                *clauses,
                Clause({"task_id": _S.task_id, "created": values["created"]}, newer),
                Clause(None, (_S.owner == _PRUNE) & _T.owner.is_not_null()),
                Clause({"task_id": FAIL}, differs),
                Clause(values, inserted, inserts=True),
            ],
            operation_id,
            _T.segment,
            Given(
                rows,
                list(INSERTED),
                {"tube": Literal(tube, Type.BIGINT), "owner": null(Type.STRING)},
                beside,
            ),
            partitions_of([*own, *segments]),
            size,
            size,
        )
        looked = room or keys
        named = identity is not None and (looked is None or looked.version is None)
        first = keys is not None and keys.sequence == 0
        return statement, (sequence == 0) + named + first

    def _row(self, task_id: int, now_us: int, owner: str | None) -> dict[str, Literal]:
        return {
            "segment": Literal(SEGMENT_0, Type.BIGINT),
            "task_id": Literal(task_id, Type.BIGINT),
            "created": Literal(now_us, Type.BIGINT),
            "tube": Literal(-self._table.id, Type.BIGINT),
            "owner": Literal(owner, Type.STRING),
        }
