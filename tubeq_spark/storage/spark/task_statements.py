"""The statements that change a tube's table: each is one commit.

What keeps the statements simple and safe (ARCHITECTURE.md, "Segments"):

- every row that a statement changes moves to a fresh segment; other rows of its segment stay;
- so a segment only loses rows, and a predicate over it can never match more than was decided;
- a *lease segment* (the segment that a take moved rows to) is written once and leaves as a whole:
  whoever takes a row out of it moves all the rest to a fresh lease segment, so that the owner's
  DELETE of the partition finds everything or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.rows import INSERTED, stored_column
from tubeq_spark.storage.spark import predicates
from tubeq_spark.storage.spark.change_feed import note, note_of_take, removal
from tubeq_spark.storage.spark.commit_tags import noted
from tubeq_spark.storage.spark.conflicts import STALE
from tubeq_spark.storage.spark.inline_rows import rows_source
from tubeq_spark.storage.spark.quoting import bigint, bigints, integer, moment, string
from tubeq_spark.storage.spark.tube_table import SEGMENT_0, OrderPosition, TubeTable
from tubeq_spark.storage.statement import Append, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.storage.put_identity import PutIdentity
    from tubeq_spark.storage.statement import Source

__all__ = ["Chosen", "Statements", "move_as", "move_to_lease_segment", "moved_segment"]

#: In place of a task id, which is never negative: every row of a segment, and a row that no source
#: row names though the source names all of its segment.
_EVERY, _UNNAMED = bigint(-1), bigint(-2)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One source row of a `settle`: a row of a segment, or all of it.

    Attributes:
        segment: Where the row is.
        task_id: The row; `None` is every row of the segment.
        chosen: Whether it is changed, or only moved along with the rest of its lease segment.
        complete: Whether the source names every row of the segment: one more fails the statement.
    """

    segment: int
    task_id: int | None
    chosen: bool = True
    complete: bool = False


def moved_segment(moves: Mapping[int, int]) -> str:
    """The fresh segment of a row, by the one it is in."""
    cases = " ".join(f"WHEN {bigint(a)} THEN {bigint(b)}" for a, b in moves.items())
    return f"CASE t.segment {cases} END"


def move_to_lease_segment(
    table: TubeTable, lease_segment: str, lease: NewLease, take_id: str | None = None
) -> str:
    """The action of every take: a row moves to a lease segment (in SQL), and its lease begins.

    The number of the lease segment is the take id, too, unless another is given.
    """
    return (
        f"UPDATE SET segment = {lease_segment}, claim = {take_id or lease_segment}, state = 't', "
        f"owner = {string(lease.owner)}, attempts = t.attempts + 1, "
        f"taken_at = {moment(lease.at_us)}, "
        f"next_event = {predicates.lease_end(lease, 't.ttr')}{note_of_take(table)}"
    )


def move_as(dest: int, after: StoredTask, *, data: bool = False) -> str:
    """The action for a single row that leaves its lease segment, for a fresh one, as decided.

    Args:
        dest: The segment.
        after: What it becomes.
        data: Whether its payload (JSON text) changes, too.
    """
    payload = f", data = {string(after.data)}" if data else ""
    return (
        f"UPDATE SET segment = {bigint(dest)}, owner = NULL, claim = NULL, "
        f"state = {string(after.state.value)}, pri = {integer(after.pri)}, "
        f"ttl = {bigint(after.ttl)}, next_event = {moment(after.next_event)}, "
        f"expires_at = {moment(after.expires_at)}, attempts = {integer(after.attempts)}{payload}"
    )


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
        values = ", ".join(stored_column(name, f"s.{name}") for name in INSERTED)
        # Nothing is in the new segments, and nothing but a tombstone in segment 0: a match
        # means that the tube is gone, and then nothing is inserted.
        operation_id = self._fresh()
        source = f"(SELECT *, {bigint(self._table.id)} AS tube FROM {{rows}})"
        sql = (
            f"MERGE INTO {self._table.name} t USING {source} s "
            f"ON {noted('t.segment')} "
            f"AND t.segment IN ({bigints([SEGMENT_0, *segments, operation_id])}) "
            f"AND t.tube = s.tube "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(INSERTED)}, tube, attempts) "
            f"VALUES ({values}, s.tube, CAST(0 AS INT))"
        )
        return Statement(self._table.name, sql, operation_id, {"rows": rows}, size, size)

    def append(self, rows: DataFrame, count: int, identity: PutIdentity | None) -> Append:
        """Append `count` rows (columns of `INSERTED`), with an identity once for it."""
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
        literals = bigints(
            [*segments, *(lease_segment for _, lease_segment in lease_segments), operation_id]
        )
        sql = (
            f"MERGE INTO {self._table.name} t USING (SELECT 1 AS one) s "
            f"ON {noted('t.segment')} AND t.segment IN ({literals}) "
            f"AND {self._table.mine('t.')} AND {self.takeable(last[0], now_us)} "
            f"WHEN MATCHED THEN {self.taking(lease_segments, lease)}"
        )
        return Statement(self._table.name, sql, operation_id, size=size, tasks=size)

    def takeable(self, position: OrderPosition, now_us: int) -> str:
        """Condition of a take: what may be taken, up to a place in the order."""
        return f"{self._table.up_to(position, 't.')} AND {predicates.is_takeable(now_us, 't.')}"

    def taking(self, lease_segments: Sequence[tuple[OrderPosition, int]], lease: NewLease) -> str:
        """The action of a take: rows move to the lease segments, each up to its position."""
        branches = "".join(
            f"WHEN {self._table.up_to(position, 't.')} THEN {bigint(lease_segment)} "
            for position, lease_segment in lease_segments[:-1]
        )
        last = bigint(lease_segments[-1][1])
        lease_segment = f"CASE {branches}ELSE {last} END" if branches else last
        return move_to_lease_segment(self._table, lease_segment, lease)

    def delete_lease_segment(self, lease_segment: int) -> Statement:
        """Remove a whole lease segment: only metadata is written; all of it is found or nothing."""
        return self.delete_segments([lease_segment])

    def delete_segments(self, segments: Sequence[int]) -> Statement:
        """Remove whole segments, whatever they hold: only metadata is written."""
        operation_id = self._fresh()
        where = f"{noted('segment')} AND segment IN ({bigints([*segments, operation_id])})"
        return Statement(
            self._table.name, f"DELETE FROM {self._table.name} WHERE {where}", operation_id
        )

    def drain(self, now_us: int) -> Statement:
        """Remove every row and leave a tombstone, or fail when a task is taken.

        The tombstone refuses every later put: it reads segment 0, too.
        """
        held = f"{predicates.effective_state(now_us, None, 't.')} = 't'"
        operation_id = self._fresh()
        # With a change feed a deleted row that was taken would be an ack.
        ended = removal(self._table, self._fresh(), None)
        sql = (
            f"MERGE INTO {self._table.name} t USING (SELECT TRUE AS mark UNION ALL SELECT FALSE) s "
            f"ON {noted('t.segment')} AND t.segment <> {bigint(operation_id)} "
            f"AND {self._table.mine('t.')} "
            f"AND s.mark = (t.segment = {bigint(SEGMENT_0)}) "
            f"WHEN MATCHED AND NOT s.mark AND {held} "
            f"THEN UPDATE SET task_id = raise_error({string(STALE)}) "
            f"WHEN MATCHED AND NOT s.mark AND t.state = 't' THEN {ended} "
            "WHEN MATCHED AND NOT s.mark THEN DELETE "
            "WHEN NOT MATCHED AND s.mark THEN INSERT (segment, tube) "
            f"VALUES ({bigint(SEGMENT_0)}, {bigint(self._table.id)})"
        )
        return Statement(self._table.name, sql, operation_id)

    def settle_segments(self, segments: Iterable[int], action: str) -> Statement:
        """Change all rows of whole segments, or fail when one of these is empty.

        Args:
            segments: Lease segments, or others where no row may have moved; at least one.
            action: `DELETE` or `UPDATE SET ...`.
        """
        return self.settle([Chosen(segment, None) for segment in segments], [("TRUE", action)], {})

    def settle(
        self,
        rows: Sequence[Chosen],
        actions: Sequence[tuple[str, str]],
        moves: Mapping[int, int],
    ) -> Statement:
        """Change rows where they are still as decided, or fail as a whole.

        A row that is still in its segment is as it was: every change would have moved it.

        Args:
            rows: What is changed, and what only moves along; of a segment that is complete nothing
                else may be there.
            actions: Conditions, and `DELETE` or `UPDATE SET ...` for the rows that meet them; the
                first that applies.
            moves: For each lease segment that loses rows: the fresh one of its rest.
        """
        operation_id = self._fresh()
        literals = bigints(
            [*dict.fromkeys(row.segment for row in rows), *moves.values(), operation_id]
        )
        stale = f"raise_error({string(STALE)})"
        clauses = [f"WHEN MATCHED AND {condition} THEN {action}" for condition, action in actions]
        if any(row.complete for row in rows):
            guard = f"WHEN MATCHED AND s.task_id = {_UNNAMED} THEN UPDATE SET task_id = {stale}"
            clauses.insert(0, guard)
        if moves:
            clauses.append(
                f"WHEN MATCHED AND t.segment IN ({bigints(moves)}) "
                f"THEN UPDATE SET segment = {moved_segment(moves)}{note(self._table, None)}"
            )
        values = [
            (row.segment, -1 if row.task_id is None else row.task_id, row.chosen) for row in rows
        ]
        values += [
            (segment, -2, False) for segment in dict.fromkeys(r.segment for r in rows if r.complete)
        ]
        columns = {"segment": "BIGINT", "task_id": "BIGINT", "chosen": "BOOLEAN"}
        source, frames = rows_source(columns, values)
        sql = (
            f"MERGE INTO {self._table.name} t USING {source} s "
            f"ON {noted('t.segment')} AND t.segment IN ({literals}) "
            f"AND t.segment = s.segment AND {_same_task(rows)} "
            f"AND {self._table.mine('t.')} {' '.join(clauses)} "
            f"WHEN NOT MATCHED AND s.task_id <> {_UNNAMED} THEN INSERT (segment) VALUES ({stale})"
        )
        # Without the rest of their lease segments, which moves along; of whole ones it is unknown.
        whole = any(row.task_id is None for row in rows)
        tasks = None if whole else sum(row.chosen for row in rows)
        return Statement(self._table.name, sql, operation_id, frames, len(rows), tasks)


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
