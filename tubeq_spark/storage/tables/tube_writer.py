"""The statements that change a tube's table: each is one commit.

These rules make the statements simple and safe (ARCHITECTURE.md, "Segments"):

- every row that a statement changes moves to a fresh segment; other rows of its segment stay;
- so a segment only loses rows, and a row that is still in its segment has not changed;
- a statement that names rows changes all of them or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.changes import Every, Remove, errors_of, segments_of
from tubeq_spark.storage.arrow.columns import array, repeated
from tubeq_spark.storage.expression import FAIL, any_of, literal, row
from tubeq_spark.storage.rows import KEPT_KEY, stored_values
from tubeq_spark.storage.statement import Clause, Ended, Statement
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, UTUBE_ROWS, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.changes import Change, Which
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import PutIdentity, Source

_T, _S = row("t"), row("s")
_TAKEN = TaskState.TAKEN.value


class TubeWriter:
    """Builds the statements of one tube that take no tasks."""

    def __init__(self, table: TubeTable) -> None:
        """Write to a tube's table."""
        self._table = table

    def put(self, rows: pa.Table, size: int, segments: Sequence[int]) -> Statement:
        """Insert `size` rows (columns of `INSERTED`) into unused segments."""
        # The new segments are empty, and in segment 0 only a tombstone has this tube's id. So a match means that the
        # tube was dropped, and then nothing is inserted.
        return Statement(
            self._table.name,
            inserts=[Clause({**stored_values(self._table.id, "s"), "tube": _S.tube})],
            on=[_T.tube == _S.tube],
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
        is_free = predicates.is_free_key(now_us, until_us, _T)
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
        held = predicates.effective_state(now_us, None, _T) == _TAKEN
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
