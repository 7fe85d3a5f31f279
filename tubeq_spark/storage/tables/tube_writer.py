"""The statements that change a tube's table: each is one commit.

These rules make the statements simple and safe (ARCHITECTURE.md, "Segments"):

- every row that a statement changes moves to a fresh segment; other rows of its segment stay;
- so a segment only loses rows, and a row that is still in its segment has not changed;
- a statement that names rows changes all of them or none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.changes import Change, Every, Remove, Which, errors_of
from tubeq_spark.model.tube_types import OrderPosition
from tubeq_spark.storage.arrow.columns import array, repeated, table_of, whole
from tubeq_spark.storage.expression import FAIL, TRUE, all_of, any_of, literal, row
from tubeq_spark.storage.rows import KEPT_KEY, stored_values
from tubeq_spark.storage.statement import Clause, Ended, Statement
from tubeq_spark.storage.tables.gates import Gates, new_row
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, UTUBE_ROWS, TubeTable, is_alive
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import GateIncrements
    from tubeq_spark.storage.statement import PutIdentity, Source

_T, _S = row("t"), row("s")
_SAME_TUBE = [_T.tube == _S.tube]
_TAKEN = TaskState.TAKEN.value


#: The columns of source rows that name a task, with its lease segment and its take id; these are NULL if it is acked.
_OF_TASKS = dict.fromkeys(("segment", "task_id", "to", "claim"), pa.int64())
#: The further columns if there are gates. `number` is the new number of a gate, `text` that of a taken-utube row.
_OF_GATES = {
    "tube": pa.int64(),
    "utube": pa.string(),
    "number": pa.int64(),
    "text": pa.string(),
}


class TubeWriter:
    """Builds the statements of one tube, but for those of gates alone."""

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

    def fold_kept_keys(self, segments: Sequence[int], dest: int, now_us: int) -> Statement:
        """Remove rows for keys that are free from some segments, and move the others to a fresh one."""
        return Statement(
            self._table.name,
            [Clause(None, ~is_alive(now_us, _T)), Clause({"segment": literal(dest)})],
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
            writes=[change.dest for _, change in changes if change.dest is not None],
            size=rows.num_rows,
            tasks=rows.num_rows if are_named else None,
            ended=Ended(self._table.id) if removes else None,
        )

    # -- takes --------------------------------------------------------------------------------

    def take(
        self,
        chosen: pa.Table,
        to: pa.Array,
        claim: pa.Array,
        lease: NewLease,
        increments: GateIncrements,
        acked: Sequence[StoredTask] = (),
    ) -> Statement:
        """Move tasks to lease segments, and remove acked ones.

        Args:
            chosen: The tasks to take, in the tube's order.
            to: Their lease segments.
            claim: Their take ids.
            lease: The owner and the begin of the leases.
            increments: The gates on which the take rests.
            acked: The tasks to remove.
        """
        tasks = {name: chosen.column(name) for name in ("segment", "task_id")}
        tasks |= {"to": to, "claim": claim}
        if increments.numbers:
            tasks["utube"] = chosen.column("utube")
            tasks["tube"] = repeated(self._table.id, pa.int64(), chosen.num_rows)
        others = [
            *({"segment": t.segment, "task_id": t.task_id, "utube": t.utube} for t in acked),
            *self._own_rows(increments),
        ]
        beside = list(dict.fromkeys(row["segment"] for row in others))
        changes = [Clause(self._table.taking(_S.to, lease, _S.claim))]
        if acked:
            changes.insert(0, Clause(None, _S.to.is_null()))
        named = self._named(others, increments, tasks)
        statement = self._incrementing(
            named, changes, self._near(chosen, beside), increments, lease.at_us
        )
        return replace(
            statement,
            writes=to.unique().to_pylist(),
            tasks=chosen.num_rows + len(acked),
            ended=Ended(self._table.id, len(acked)) if acked else None,
        )

    def take_up_to(self, chosen: pa.Table, take_id: int, lease: NewLease, now_us: int) -> Statement:
        """Move all ready tasks of some segments, up to the last chosen one, to one lease segment.

        Segments only lose rows. So these are the chosen tasks, without those that have changed since.

        Args:
            chosen: All tasks of the tube up to the last of them that were ready at the moment.
            take_id: Their take id and lease segment.
            lease: The owner and the begin of the leases.
            now_us: The moment.
        """
        return Statement(
            self._table.name,
            [Clause(self._table.taking(literal(take_id), lease, literal(take_id)))],
            where=all_of(
                self._table.mine(_T), self._table.is_ready(now_us, _T), self._near(chosen)
            ),
            reads=chosen.column("segment").unique().to_pylist(),
            writes=[take_id],
            size=chosen.num_rows,
            tasks=chosen.num_rows,
        )

    def tidy(self, change: GateIncrements, now_us: int) -> Statement:
        """Change or remove taken-utube rows."""
        named = self._named(self._own_rows(change), change)
        return self._incrementing(named, [Clause(None, _S.to.is_null())], TRUE, change, now_us)

    def _incrementing(
        self,
        named: pa.Table,
        changes: Sequence[Clause],
        near: Expression,
        increments: GateIncrements,
        now_us: int,
    ) -> Statement:
        """A statement over named rows that also increments gates.

        Args:
            named: The rows.
            changes: The changes of tasks.
            near: A condition that holds for all rows, by which files are skipped.
            increments: The gates, which are among the rows.
            now_us: The moment.
        """
        on = [_T.segment == _S.segment, _T.task_id == _S.task_id]
        own: list[Clause] = []
        new: list[Clause] = []
        if increments.numbers:
            on += [_T.utube.same_as(_S.utube), _T.tube == _S.tube]
            own.append(Clause({"task_id": _S.number}, _S.number.is_not_null()))
            if increments.texts:
                own.append(Clause({"owner": _S.text}, _S.text.is_not_null()))
                values = new_row(self._table, now_us) | {"owner": _S.text}
                new.append(Clause(values, _S.text.is_not_null()))
        else:
            near = self._table.mine(_T) & near
        new.append(Clause({"segment": FAIL}))
        return Statement(
            self._table.name,
            [*own, *changes],
            new,
            where=near,
            on=on,
            named=named,
            reads=named.column("segment").unique().to_pylist(),
            size=named.num_rows,
            tasks=0,
            order=self._table.order,
        )

    def _named(
        self,
        others: Sequence[dict[str, Any]],
        increments: GateIncrements,
        tasks: Mapping[str, pa.Array | pa.ChunkedArray] | None = None,
    ) -> pa.Table:
        """The source rows of a take: tasks to take, and rows for acked tasks, gates and taken-utube rows."""
        kinds = _OF_TASKS | _OF_GATES if increments.numbers else _OF_TASKS
        found = []
        if tasks is not None:
            found.append(whole(pa.table(dict(tasks)), pa.schema(kinds)))
        if others or tasks is None:
            values = [
                [{"tube": self._table.id, **other}.get(name) for name in kinds] for other in others
            ]
            found.append(table_of(values, kinds))
        return pa.concat_tables(found)

    def _own_rows(self, change: GateIncrements) -> list[dict[str, Any]]:
        """The source rows for gates and taken-utube rows."""
        gates: list[dict[str, Any]] = [
            {"segment": gate, "task_id": number, "number": number + 1}
            for gate, number in change.numbers.items()
        ]
        texts = [
            {"segment": Gates.segment_of(utube), "task_id": 0, "utube": utube, "text": text}
            for utube, text in change.texts.items()
        ]
        return [{"tube": -self._table.id, **own} for own in (*gates, *texts)]

    def _near(self, chosen: pa.Table, beside: Sequence[int] = ()) -> Expression:
        """Up to the last chosen task. All named rows are there, but files with later tasks need not be read."""
        key, last = (
            chosen.column(name)[-1].as_py() for name in (self._table.order_column, "task_id")
        )
        up_to = self._table.up_to(OrderPosition(key, last), _T)
        return any_of(_T.segment.is_in(beside), up_to) if beside else up_to
