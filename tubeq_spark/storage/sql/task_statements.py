"""The statements that change a tube's table: each is one commit.

What keeps the statements simple and safe (ARCHITECTURE.md, "Segments"):

- every row that a statement changes moves to a fresh segment; other rows of its segment stay;
- so a segment only loses rows, and a predicate over it can never match more than was decided;
- a *lease segment* (the segment that a take moved rows to) is written once and leaves as a whole:
  whoever takes a row out of it moves all the rest to a fresh lease segment, so that the owner's
  DELETE of the partition finds everything or nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.rules.row_changes import (
    Become,
    Every,
    InSegments,
    Move,
    Remove,
    Take,
    Takeable,
    segments_of,
)
from tubeq_spark.storage.chosen import Chosen
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.rows import INSERTED, stored_column, stored_rows
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.inline_rows import rows_source
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, bigints
from tubeq_spark.storage.sql.row_change_text import clause_of, condition_of
from tubeq_spark.storage.sql.tube_table import SEGMENT_0, TubeTable
from tubeq_spark.storage.statement import FAIL, Append, Clause, Statement
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.rules.row_changes import Change, Which
    from tubeq_spark.storage.put_identity import PutIdentity
    from tubeq_spark.storage.statement import Source

__all__ = ["Statements", "partitions_of"]

#: In place of a task id, which is never negative: every row of a segment, and a row that no source
#: row names though the source names all of its segment.
_EVERY, _UNNAMED = bigint(-1), bigint(-2)


class Statements:
    """Builds the statements of one tube."""

    def __init__(self, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Write to a tube's table.

        Args:
            table: The tube.
            fresh: A number that was never used: each statement's operation id. No other statement
                may ever name it, or a lost answer would be recognised in another's commit.
        """
        self._table = table
        self._fresh = fresh

    def put(self, rows: Source, size: int, segments: Sequence[int]) -> Statement:
        """Insert `size` rows (columns of `INSERTED`) into segments that nobody has used."""
        values = {name: stored_column(name, f"s.{name}") for name in INSERTED}
        values |= {"tube": "s.tube", "attempts": "CAST(0 AS INT)"}
        # Nothing is in the new segments, and nothing but a tombstone in segment 0: a match
        # means that the tube is gone, and then nothing is inserted.
        operation_id = self._fresh()
        source = f"(SELECT *, {bigint(self._table.id)} AS tube FROM {{rows}})"
        return Statement(
            self._table.name,
            f"{noted('t.segment')} "
            f"AND t.segment IN ({bigints([SEGMENT_0, *segments, operation_id])}) "
            "AND t.tube = s.tube",
            [Clause(values, inserts=True)],
            operation_id,
            source,
            partitions_of([SEGMENT_0, *segments]),
            {"rows": rows},
            size,
            size,
        )

    def append(self, rows: Source, count: int, identity: PutIdentity | None) -> Append:
        """Append `count` rows (columns of `INSERTED`), with an identity once for it."""
        if isinstance(rows, pa.Table):
            stored: Source = stored_rows(rows, self._table.id)
        else:
            stored = rows.selectExpr(
                *[f"{stored_column(name, name)} AS {name}" for name in INSERTED],
                f"{bigint(self._table.id)} AS tube",
                "CAST(0 AS INT) AS attempts",
            )
        once = None
        if identity is not None:
            # The table remembers names, and may have had another tube of this name before.
            once = (f"tubeq/{self._table.id}/{identity.name}", identity.version)
        return Append(self._table.name, stored, self._fresh(), once, count)

    def take(
        self,
        segments: Sequence[int],
        lease_segments: Sequence[tuple[OrderPosition, int]],
        lease: NewLease,
        now_us: int,
        size: int,
    ) -> Statement:
        """Move what is takeable in `segments`, up to the last position, to the lease segments.

        Args:
            segments: Where the candidates are; none of them a lease segment.
            lease_segments: A lease segment for each consumer, with the last position in the order
                that goes there.
            lease: Who takes, and from when on.
            now_us: The moment that the candidates were read for.
            size: How many rows it moves, about.
        """
        last, operation_id = lease_segments[-1], self._fresh()
        moved_to = [lease_segment for _, lease_segment in lease_segments]
        takeable = condition_of(self._table, Takeable(last[0], now_us))
        taken = clause_of(self._table, Every(), Take(lease_segments, lease))
        return Statement(
            self._table.name,
            f"{noted('t.segment')} "
            f"AND t.segment IN ({bigints([*segments, *moved_to, operation_id])}) "
            f"AND {self._table.mine('t.')} AND {takeable}",
            [replace(taken, when="")],
            operation_id,
            "(SELECT 1 AS one)",
            partitions_of([*segments, *moved_to]),
            size=size,
            tasks=size,
        )

    def delete_lease_segment(self, lease_segment: int) -> Statement:
        """Remove a whole lease segment: only metadata is written; all of it is found or nothing."""
        return replace(self.delete_segments([lease_segment]), ended=Ended(self._table.id))

    def delete_segments(self, segments: Sequence[int]) -> Statement:
        """Remove whole segments, whatever they hold: only metadata is written."""
        operation_id = self._fresh()
        where = f"{noted('segment')} AND segment IN ({bigints([*segments, operation_id])})"
        return Statement(
            self._table.name,
            where,
            [Clause(None)],
            operation_id,
            partitions=partitions_of(segments),
        )

    def drain(self, now_us: int) -> Statement:
        """Remove every row and leave a tombstone, or fail when a task is taken.

        The tombstone refuses every later put: it reads segment 0, too.
        """
        held = f"{predicates.effective_state(now_us, None, 't.')} = 't'"
        operation_id, gone = self._fresh(), self._fresh()
        # With a change feed a deleted row that was taken would be an ack.
        ended = clause_of(self._table, Every(), Remove(gone)).sets
        tombstone = {"segment": bigint(SEGMENT_0), "tube": bigint(self._table.id)}
        return Statement(
            self._table.name,
            f"{noted('t.segment')} AND t.segment <> {bigint(operation_id)} "
            f"AND {self._table.mine('t.')} "
            f"AND s.is_tombstone = (t.segment = {bigint(SEGMENT_0)})",
            [
                Clause({"task_id": FAIL}, f"NOT s.is_tombstone AND {held}"),
                Clause(ended, "NOT s.is_tombstone AND t.state = 't'"),
                Clause(None, "NOT s.is_tombstone"),
                Clause(tombstone, "s.is_tombstone", inserts=True),
            ],
            operation_id,
            "(SELECT TRUE AS is_tombstone UNION ALL SELECT FALSE)",
        )

    def settle_segments(self, segments: Iterable[int], *changes: tuple[Which, Change]) -> Statement:
        """Change all rows of whole segments, or fail when one of these is empty.

        Args:
            segments: Lease segments, or others where no row may have moved; at least one.
            changes: Which rows become what; the first that applies.
        """
        return self.settle([Chosen(segment, None) for segment in segments], changes, {})

    def settle(
        self,
        rows: Sequence[Chosen],
        changes: Sequence[tuple[Which, Change]],
        moves: Mapping[int, int],
    ) -> Statement:
        """Change rows where they are still as decided, or fail as a whole.

        A row that is still in its segment is as it was: every change would have moved it.

        Args:
            rows: What is changed, and what only moves along; of a segment that is complete nothing
                else may be there.
            changes: Which rows become what; the first that applies.
            moves: For each lease segment that loses rows: the fresh one of its rest.
        """
        operation_id = self._fresh()
        segments = list(dict.fromkeys([*(row.segment for row in rows), *moves.values()]))
        clauses = [clause_of(self._table, which, change) for which, change in changes]
        if any(row.complete for row in rows):
            clauses.insert(0, Clause({"task_id": FAIL}, f"s.task_id = {_UNNAMED}"))
        if moves:
            clauses.append(clause_of(self._table, InSegments(list(moves)), Move(moves)))
        clauses.append(Clause({"segment": FAIL}, f"s.task_id <> {_UNNAMED}", inserts=True))
        values = [
            (row.segment, -1 if row.task_id is None else row.task_id, row.chosen) for row in rows
        ]
        values += [
            (segment, -2, False) for segment in dict.fromkeys(r.segment for r in rows if r.complete)
        ]
        columns = {"segment": "BIGINT", "task_id": "BIGINT", "chosen": "BOOLEAN"}
        source, frames = rows_source(columns, values)
        # Without the rest of their lease segments, which moves along; of whole ones it is unknown.
        whole = any(row.task_id is None for row in rows)
        return Statement(
            self._table.name,
            f"{noted('t.segment')} AND t.segment IN ({bigints([*segments, operation_id])}) "
            f"AND t.segment = s.segment AND {_same_task(rows)} AND {self._table.mine('t.')}",
            clauses,
            operation_id,
            source,
            partitions_of(segments, *(change for _, change in changes)),
            frames,
            len(rows),
            None if whole else sum(row.chosen for row in rows),
            self._ended([change for _, change in changes]),
        )

    def _ended(self, changes: Sequence[Change]) -> Ended | None:
        """What comes to its end by such changes: rows that are removed, or one that is kept as done."""
        for change in changes:
            match change:
                case Remove(gone):
                    return Ended(self._table.id, gone=gone if self._table.change_feed else None)
                case Become(_, after) if after.state is TaskState.DONE:
                    return Ended(self._table.id, 1)
        return None


def partitions_of(segments: Iterable[int], *changes: Change) -> dict[str, list[int]]:
    """The partitions that a statement over some segments reads and writes."""
    to = [segment for change in changes for segment in segments_of(change)]
    return {"segment": list(dict.fromkeys([*segments, *to]))}


def _same_task(rows: Sequence[Chosen]) -> str:
    """The condition of a `settle` by which a row is one that the source names."""
    every = dict.fromkeys(row.segment for row in rows if row.task_id is None)
    complete = dict.fromkeys(row.segment for row in rows if row.complete)
    if len(every) == len(rows):
        return "TRUE"
    cases = f"WHEN t.segment IN ({bigints(every)}) THEN {_EVERY} " if every else ""
    if complete:
        named = bigints(row.task_id for row in rows if row.complete and row.task_id is not None)
        cases += (
            f"WHEN t.segment IN ({bigints(complete)}) AND t.task_id NOT IN ({named}) "
            f"THEN {_UNNAMED} "
        )
    return f"{f'CASE {cases}ELSE t.task_id END' if cases else 't.task_id'} = s.task_id"
