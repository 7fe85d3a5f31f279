"""The statements that take from sub-queues, and the fence around them: each is one commit.

A take writes to the lease segment that its take id names. Whoever takes over an orphaned utube lock
*fences* its take id first, by a row in a segment of its own, which the take with that id reads. So
the take of a consumer that was paused between its two commits fails, however late it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.inline_rows import rows_source
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, bigints, moment
from tubeq_spark.storage.sql.row_change_text import taking
from tubeq_spark.storage.sql.task_statements import partitions_of
from tubeq_spark.storage.statement import FAIL, Clause, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.storage.chosen import Acked, SubqueueShare
    from tubeq_spark.storage.sql.tube_table import TubeTable

__all__ = ["SubqueueStatements"]

#: From a take id to the segment of its fence, far below all lease segments: no number will be as
#: large for decades.
_FENCE_OFFSET = 1 << 62
#: In place of a task id, which is never negative: a task that is not named.
_UNNAMED = -1


class SubqueueStatements:
    """Builds the statements of one tube with sub-queues."""

    def __init__(self, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Write to `table`; `fresh` makes numbers that were never used."""
        self._table = table
        self._fresh = fresh

    def take(
        self,
        segments: Iterable[int],
        shares: Sequence[SubqueueShare],
        lease: NewLease,
        now_us: int,
        size: int,
    ) -> Statement:
        """Move what is takeable of some sub-queues to lease segments, unless a take id is fenced.

        Args:
            segments: Where the candidates are; none of them a lease segment.
            shares: What goes where.
            lease: Who takes, and from when on.
            now_us: The moment that the candidates were read for.
            size: How many rows it moves, about.
        """
        operation_id = self._fresh()
        take_ids = list(dict.fromkeys(share.take_id for share in shares))
        fences = [take_id - _FENCE_OFFSET for take_id in take_ids]
        columns = {"utube": "STRING", "pri": "INT", "task_id": "BIGINT", "claim": "BIGINT"}
        places = [(s.utube, s.last.pri, s.last.task_id, s.take_id) for s in shares]
        source, frames = rows_source(columns, places)
        near = [*segments, *take_ids, *fences]
        return Statement(
            self._table.name,
            f"{noted('t.segment')} AND t.segment IN ({bigints([*near, operation_id])}) "
            f"AND t.utube <=> s.utube AND ({self._takeable(now_us)})",
            [self._fail_if_fenced, Clause(taking(self._table, "s.claim", lease))],
            operation_id,
            source,
            partitions_of(near),
            frames,
            size,
            size,
        )

    def take_all(
        self, segments: Iterable[int], lease_segment: int, lease: NewLease, now_us: int, size: int
    ) -> Statement:
        """Move what is takeable in some segments to one lease segment, unless it is fenced.

        The rows are not told apart by their sub-queues, so all that is ready there must be of
        sub-queues that were locked: a segment only loses rows.

        Args:
            segments: Where the candidates are; none of them a lease segment.
            lease_segment: Where they go.
            lease: Who takes, and from when on.
            now_us: The moment that the candidates were read for.
            size: How many rows it moves, about.
        """
        operation_id, fence = self._fresh(), lease_segment - _FENCE_OFFSET
        near = [*segments, lease_segment, fence]
        return Statement(
            self._table.name,
            f"{noted('t.segment')} AND t.segment IN ({bigints([*near, operation_id])}) "
            f"AND (({self._table.mine('t.')} AND {predicates.is_takeable(now_us, 't.')}) "
            f"OR ({self._is_fence} AND t.segment = {bigint(fence)}))",
            [self._fail_if_fenced, Clause(taking(self._table, bigint(lease_segment), lease))],
            operation_id,
            "(SELECT 1 AS one)",
            partitions_of(near),
            size=size,
            tasks=size,
        )

    def exchange(
        self,
        acked: Collection[Acked],
        segments: Iterable[int],
        shares: Sequence[SubqueueShare],
        lease_segment: int,
        lease: NewLease,
        now_us: int,
        size: int,
    ) -> Statement:
        """Remove whole lease segments and move what is takeable of some sub-queues to a fresh one.

        Args:
            acked: All that is removed; it is there, or nothing is changed. Where a task is named,
                all are, and nothing else may be in these lease segments.
            segments: Where the candidates are.
            shares: What is moved, each under its take id: one that is new, or one that is kept.
            lease_segment: Where all of it goes.
            lease: Who takes, and from when on.
            now_us: The moment that the candidates were read for.
            size: How many rows it changes, about.
        """
        operation_id = self._fresh()
        gone = dict.fromkeys(row.segment for row in acked)
        fences = dict.fromkeys(share.take_id - _FENCE_OFFSET for share in shares)
        columns = {"utube": "STRING", "pri": "INT", "task_id": "BIGINT", "claim": "BIGINT"}
        rows: list[tuple[Any, ...]]
        rows = [(s.utube, s.last.pri, s.last.task_id, s.take_id, None) for s in shares]
        rows += [(row.utube, None, row.task_id, None, row.segment) for row in acked]
        named = [row.task_id for row in acked if row.task_id is not None]
        utube, is_acked = "t.utube", "TRUE"
        clauses = [
            Clause(None, "s.acked IS NOT NULL"),
            self._fail_if_fenced,
            Clause(taking(self._table, bigint(lease_segment), lease, "s.claim")),
            Clause(
                {"segment": FAIL},
                f"s.acked IS NOT NULL AND NOT s.task_id <=> {bigint(_UNNAMED)}",
                inserts=True,
            ),
        ]
        if named:
            # What is not named is matched by a row without a sub-queue.
            rows += [(None, None, _UNNAMED, None, segment) for segment in gone]
            unnamed = f"(t.segment IN ({bigints(gone)}) AND t.task_id NOT IN ({bigints(named)}))"
            utube = f"CASE WHEN {unnamed} THEN NULL ELSE t.utube END"
            is_acked = f"IF({unnamed}, {bigint(_UNNAMED)}, t.task_id) = s.task_id"
            guard = f"s.acked IS NOT NULL AND s.task_id = {bigint(_UNNAMED)}"
            clauses.insert(0, Clause({"task_id": FAIL}, guard))
        source, frames = rows_source(columns | {"acked": "BIGINT"}, rows)
        near = [*gone, *segments, lease_segment, *fences]
        return Statement(
            self._table.name,
            f"{noted('t.segment')} AND t.segment IN ({bigints([*near, operation_id])}) "
            f"AND {utube} <=> s.utube "
            f"AND (({self._table.mine('t.')} AND t.segment = s.acked AND {is_acked}) "
            f"OR (s.acked IS NULL AND ({self._takeable(now_us)})))",
            clauses,
            operation_id,
            source,
            partitions_of(near),
            frames,
            size,
            size,
            Ended(self._table.id),
        )

    def _takeable(self, now_us: int) -> str:
        """What may be taken up to a share's position, and the fence of its take id."""
        place = "t.task_id <= s.task_id"
        if self._table.order != ("task_id",):
            place = f"(t.pri < s.pri OR (t.pri = s.pri AND {place}))"
        return (
            f"({self._table.mine('t.')} AND {place} AND {predicates.is_takeable(now_us, 't.')}) "
            f"OR ({self._is_fence} AND t.segment = s.claim - {bigint(_FENCE_OFFSET)})"
        )

    @property
    def _is_fence(self) -> str:
        """Whether a row is a fence."""
        return f"t.tube = {bigint(-self._table.id)}"

    @property
    def _fail_if_fenced(self) -> Clause:
        return Clause({"task_id": FAIL}, self._is_fence)

    def fence(self, held: Sequence[tuple[int, str | None]], now_us: int) -> Statement:
        """Make every take under these take ids fail, for these sub-queues, for ever."""
        operation_id = self._fresh()
        tube, at = bigint(-self._table.id), moment(now_us)
        columns = {"segment": "BIGINT", "utube": "STRING"}
        values = [(take_id - _FENCE_OFFSET, utube) for take_id, utube in held]
        source, frames = rows_source(columns, values)
        segments = sorted({take_id - _FENCE_OFFSET for take_id, _ in held})
        row = {"segment": "s.segment", "tube": tube, "utube": "s.utube", "created": at}
        return Statement(
            self._table.name,
            f"{noted('t.segment')} AND t.segment IN ({bigints([*segments, operation_id])}) "
            f"AND t.segment = s.segment AND t.tube = {tube} AND t.utube <=> s.utube",
            [Clause(row, inserts=True)],
            operation_id,
            source,
            partitions_of(segments),
            frames,
            len(held),
        )
