"""The statements that take from sub-queues, and the fence around them: each is one commit.

A take writes to the lease segment with the number of its take id. Before a verb takes over an orphaned utube
lock, it *fences* the take id, by a row in a separate segment that only the take with this id reads. So the MERGE
of a take that was paused between its two commits fails, however late it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.model.changes import Remove
from tubeq_spark.model.tube_types import AGED
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.expression import (
    FAIL,
    TRUE,
    Type,
    all_of,
    any_of,
    at,
    case,
    literal,
    null,
    row,
)
from tubeq_spark.storage.statement import ONE_ROW, Clause, Rows, Statement
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.row_clauses import kept_for_key, taking
from tubeq_spark.storage.tables.tube_table import FENCE_OFFSET
from tubeq_spark.storage.tables.tube_writer import partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tubeq_spark.model.lease_times import NewLease
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import ExchangedRow, SubqueueShare
    from tubeq_spark.storage.tables.tube_table import TubeTable

#: Stands for a task id in a source row without one. Task ids are never negative.
_UNNAMED = -1
_T, _S = row("t"), row("s")
#: The change of acked tasks in a tube where an ack frees their keys.
_ACK = Remove()
#: The types of the columns that are compared with a position.
_KEYS = {"pri": Type.INT, "rank": Type.BIGINT}


class SubqueueWriter:
    """Builds the statements of one tube with sub-queues."""

    def __init__(self, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Write to `table`; `fresh` makes unused numbers."""
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
        """Move takeable rows of some sub-queues to lease segments, unless a take id is fenced.

        Args:
            segments: The segments of the candidates; none of them is a lease segment.
            shares: For each sub-queue, the last position to take, the lease segment and the take id.
            lease: The owner and the begin of the leases.
            now_us: The moment for which the candidates were read.
            size: The approximate number of rows that it moves.
        """
        operation_id = self._fresh()
        take_ids = list(dict.fromkeys(share.take_id for share in shares))
        fences = [take_id - FENCE_OFFSET for take_id in take_ids]
        places = [(s.utube, s.last.key, s.last.task_id, s.take_id) for s in shares]
        near = [*segments, *take_ids, *fences]
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*near, operation_id]),
                _T.utube.same_as(_S.utube),
                self._takeable(now_us),
            ),
            [self._fail_if_fenced, Clause(taking(self._table, _S.claim, lease))],
            operation_id,
            _T.segment,
            Rows(self._shares, places),
            partitions_of(near),
            size,
            size,
        )

    def take_all(
        self, segments: Iterable[int], lease_segment: int, lease: NewLease, now_us: int, size: int
    ) -> Statement:
        """Move takeable rows of some segments to one lease segment, unless it is fenced.

        It does not select rows by sub-queue, so all ready rows of the segments must be in locked sub-queues. That
        stays true, because a segment only loses rows.

        Args:
            segments: The segments of the candidates; none of them is a lease segment.
            lease_segment: The new segment of the rows.
            lease: The owner and the begin of the leases.
            now_us: The moment for which the candidates were read.
            size: The approximate number of rows that it moves.
        """
        operation_id, fence = self._fresh(), lease_segment - FENCE_OFFSET
        near = [*segments, lease_segment, fence]
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*near, operation_id]),
                any_of(
                    self._table.mine(_T) & predicates.is_takeable(now_us, _T),
                    self._is_fence & (_T.segment == fence),
                ),
            ),
            [self._fail_if_fenced, Clause(taking(self._table, literal(lease_segment), lease))],
            operation_id,
            _T.segment,
            ONE_ROW,
            partitions_of(near),
            size=size,
            tasks=size,
        )

    def exchange(
        self,
        acked: Collection[ExchangedRow],
        segments: Iterable[int],
        shares: Sequence[SubqueueShare],
        lease_segment: int,
        lease: NewLease,
        now_us: int,
        size: int,
        removal: Remove = _ACK,
    ) -> Statement:
        """Remove whole lease segments, and move takeable rows of sub-queues to a fresh one.

        Args:
            acked: The rows to remove; if one of them has moved, nothing changes. If one row names its task, all do,
                and the statement fails if these lease segments have another task.
            segments: The segments of the candidates.
            shares: For each sub-queue, the last position to take, and a take id that is new or kept.
            lease_segment: The new segment of the taken rows.
            lease: The owner and the begin of the leases.
            now_us: The moment for which the candidates were read.
            size: The approximate number of rows that it changes.
            removal: The change of the acked rows.
        """
        operation_id = self._fresh()
        gone = dict.fromkeys(each.segment for each in acked)
        fences = dict.fromkeys(share.take_id - FENCE_OFFSET for share in shares)
        rows: list[tuple[Any, ...]]
        rows = [(s.utube, s.last.key, s.last.task_id, s.take_id, None) for s in shares]
        rows += [(each.utube, None, each.task_id, None, each.segment) for each in acked]
        named = [each.task_id for each in acked if each.task_id is not None]
        utube: Expression = _T.utube
        is_acked: Expression = TRUE
        acks = _S.acked.is_not_null()
        kept = kept_for_key(self._table, removal)
        clauses = [
            *([] if kept is None else [Clause(kept, acks & _T.unique.is_not_null())]),
            Clause(None, acks),
            self._fail_if_fenced,
            Clause(taking(self._table, literal(lease_segment), lease, _S.claim)),
            Clause(
                {"segment": FAIL},
                acks & ~_S.task_id.same_as(_UNNAMED),
                inserts=True,
            ),
        ]
        if named:
            # This row, which has no sub-queue, matches tasks that no other row names.
            rows += [(None, None, _UNNAMED, None, segment) for segment in gone]
            unnamed = _T.segment.is_in(gone) & _T.task_id.not_in(named)
            utube = case((unnamed, null(Type.STRING)), other=_T.utube)
            is_acked = case((unnamed, _UNNAMED), other=_T.task_id) == _S.task_id
            guard = acks & (_S.task_id == _UNNAMED)
            clauses.insert(0, Clause({"task_id": FAIL}, guard))
        near = [*gone, *segments, lease_segment, *fences]
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*near, operation_id]),
                utube.same_as(_S.utube),
                any_of(
                    all_of(self._table.mine(_T), _T.segment == _S.acked, is_acked),
                    _S.acked.is_null() & self._takeable(now_us),
                ),
            ),
            clauses,
            operation_id,
            _T.segment,
            Rows(self._shares | {"acked": Type.BIGINT}, rows),
            partitions_of(near, removal),
            size,
            size,
            Ended(self._table.id, kept_in=removal.gone),
        )

    @property
    def _shares(self) -> dict[str, Type]:
        """The columns of a source row for a sub-queue: the last position to take, and the take id."""
        key = self._table.key
        number = Type.BIGINT
        return {"utube": Type.STRING, key: _KEYS[key], "task_id": number, "claim": number}

    def _takeable(self, now_us: int) -> Expression:
        """The takeable rows up to a share's position, and the fence of its take id."""
        near = _T.task_id <= _S.task_id
        place: Expression = near
        if self._table.order == AGED:
            place = (_T.rank < _S.rank) | ((_T.rank == _S.rank) & near)
        elif self._table.order != ("task_id",):
            place = (_T.pri < _S.pri) | ((_T.pri == _S.pri) & near)
        return any_of(
            all_of(self._table.mine(_T), place, predicates.is_takeable(now_us, _T)),
            self._is_fence & (_T.segment == _S.claim - FENCE_OFFSET),
        )

    @property
    def _is_fence(self) -> Expression:
        """Whether a row is a fence."""
        return _T.tube == -self._table.id

    @property
    def _fail_if_fenced(self) -> Clause:
        return Clause({"task_id": FAIL}, self._is_fence)

    def fence(self, held: Sequence[tuple[int, str | None]], now_us: int) -> Statement:
        """Make every later take with these take ids fail for these sub-queues."""
        operation_id = self._fresh()
        values = [(take_id - FENCE_OFFSET, utube) for take_id, utube in held]
        segments = sorted({take_id - FENCE_OFFSET for take_id, _ in held})
        fence = {
            "segment": _S.segment,
            "tube": literal(-self._table.id),
            "utube": _S.utube,
            "created": at(now_us),
        }
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*segments, operation_id]),
                _T.segment == _S.segment,
                self._is_fence,
                _T.utube.same_as(_S.utube),
            ),
            [Clause(fence, inserts=True)],
            operation_id,
            _T.segment,
            Rows({"segment": Type.BIGINT, "utube": Type.STRING}, values),
            partitions_of(segments),
            len(held),
        )
