"""The capacity of a tube: puts contend for the room in it, takes and acks do not.

Segment 0 holds one row with a sequence, which every put to a limited tube makes one greater. A put
counts what is stored, and its statement fails unless the sequence is still the one that was read
with the count: no other put came between, and takes and acks only make room. A task whose life has
ended counts until that is written down: a take or a touch that began before its end may still commit,
and then it lives on. So the capacity is never exceeded, and takes and acks, which never read segment 0,
never wait for a put.

Names of puts are rows beside the sequence: a MERGE has no transaction id of Delta's.

The same statement puts tasks with keys (`unique_keys`), with or without a capacity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.durability.commit_file import DamagedFileError, damaged
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
from tubeq_spark.storage.query import Select, count_if, greatest
from tubeq_spark.storage.rows import CapacityState, stored_column
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

#: The source row that removes the rows of old names. Names are in the owner column, which the
#: sequence's row leaves empty, and none of them is this.
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
        """What a query finds where some data files cannot be read, and how many tasks are in their segments at most.

        Raises:
            DamagedFileError: The log does not tell, or the sequence is in one of them.
        """
        before = self._engine.tables.bad_files(self._table.name)
        found = self._engine.rows(replace(select, skips=()))[0]
        unread: dict[int | None, int] = {}
        # The segment of one that is back by now was left out all the same.
        for bad in (*before, *self._engine.tables.bad_files(self._table.name)):
            if bad.segment == SEGMENT_0 or bad.segment_rows is None:
                raise damaged(bad.path, bad.fault)
            # It may have lost rows meanwhile, which were left out with it.
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
        """Insert rows (columns of `TubeTable.inserted`), unless another put has changed a sequence since.

        Args:
            rows: The rows.
            size: How many.
            segments: Segments that nobody has used.
            room: What the put was decided on; `None`: the tube has no capacity.
            now_us: The moment of the put.
            identity: What it is known by.
            forget_us: Names that were last used before this moment are forgotten.
            keys: The sequence, if rows have keys.

        Returns:
            The statement, and how many rows it inserts besides.
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
        values = {
            name: stored_column(name, "s") for name in (*self._table.inserted, "tube", "owner")
        }
        values["attempts"] = integer(0)
        inserted: Expression = ~_S.owner.same_as(_PRUNE)
        clauses: list[Clause] = []
        differs: Expression | None = None
        if sequence is None:
            # The sequence of a capacity that the tube once had may be there.
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
                list(self._table.inserted),
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
