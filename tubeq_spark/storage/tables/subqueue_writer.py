"""The statements that take from sub-queues: each is one commit. A take writes to the lease segment with its take id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.model.tube_types import AGED
from tubeq_spark.storage.expression import (
    FAIL,
    Type,
    all_of,
    any_of,
    row,
)
from tubeq_spark.storage.statement import Clause, Rows, Statement
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.row_clauses import taking
from tubeq_spark.storage.tables.tube_writer import partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import ExchangedRow, SubqueueShare
    from tubeq_spark.storage.tables.tube_table import TubeTable

_T, _S = row("t"), row("s")
#: The change of acked tasks in a tube where an ack frees their keys.
#: Fails a take if other commits have changed all tasks that it has chosen in a sub-queue. Then it has begun no leases.
_FAIL_IF_GONE = Clause({"segment": FAIL}, _S.claim.is_not_null(), inserts=True)
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
        """Move takeable rows of some sub-queues to lease segments; it fails if one of these has none any more.

        Args:
            segments: The segments of the candidates; none of them is a lease segment.
            shares: For each sub-queue, the last position to take, and the take id, which is also its lease segment.
            lease: The owner and the begin of the leases.
            now_us: The moment for which the candidates were read.
            size: The approximate number of rows that it moves.
        """
        operation_id = self._fresh()
        near = [*segments, *dict.fromkeys(share.take_id for share in shares)]
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*near, operation_id]),
                _T.utube.same_as(_S.utube),
                self._takeable(now_us),
            ),
            [Clause(taking(self._table, _S.claim, lease)), _FAIL_IF_GONE],
            operation_id,
            _T.segment,
            Rows(self._shares, [_place(share) for share in shares]),
            partitions_of(near),
            size,
            size,
        )

    def exchange(
        self,
        acked: Collection[ExchangedRow],
        segments: Iterable[int],
        shares: Sequence[SubqueueShare],
        lease: NewLease,
        now_us: int,
        size: int,
    ) -> Statement:
        """Remove tasks, and move takeable rows of sub-queues to lease segments.

        Args:
            acked: The rows to remove; if one of them has moved, nothing changes.
            segments: The segments of the candidates.
            shares: For each sub-queue, the last position to take, and the take id, which is also its lease segment.
            lease: The owner and the begin of the leases.
            now_us: The moment for which the candidates were read.
            size: The approximate number of rows that it changes.
        """
        operation_id = self._fresh()
        near = [
            *dict.fromkeys(each.segment for each in acked),
            *segments,
            *dict.fromkeys(share.take_id for share in shares),
        ]
        rows = [(*_place(share), None) for share in shares]
        rows += [(each.utube, None, each.task_id, None, each.segment) for each in acked]
        acks = _S.acked.is_not_null()
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*near, operation_id]),
                _T.utube.same_as(_S.utube),
                any_of(
                    all_of(
                        self._table.mine(_T),
                        _T.segment == _S.acked,
                        _T.task_id == _S.task_id,
                    ),
                    _S.acked.is_null() & self._takeable(now_us),
                ),
            ),
            [
                Clause(None, acks),
                Clause(taking(self._table, _S.claim, lease)),
                Clause({"segment": FAIL}, acks, inserts=True),
                _FAIL_IF_GONE,
            ],
            operation_id,
            _T.segment,
            Rows(self._shares | {"acked": Type.BIGINT}, rows),
            partitions_of(near),
            size,
            size,
        )

    @property
    def _shares(self) -> dict[str, Type]:
        """The columns of a source row for a sub-queue: the last position to take, and the take id."""
        key = self._table.key
        number = Type.BIGINT
        return {"utube": Type.STRING, key: _KEYS[key], "task_id": number, "claim": number}

    def _takeable(self, now_us: int) -> Expression:
        """The takeable rows up to a share's position."""
        near = _T.task_id <= _S.task_id
        place: Expression = near
        if self._table.order == AGED:
            place = (_T.rank < _S.rank) | ((_T.rank == _S.rank) & near)
        elif self._table.order != ("task_id",):
            place = (_T.pri < _S.pri) | ((_T.pri == _S.pri) & near)
        return all_of(self._table.mine(_T), place, predicates.is_takeable(now_us, _T))


def _place(share: SubqueueShare) -> tuple[Any, ...]:
    """A source row for a sub-queue."""
    return (share.utube, share.last.key, share.last.task_id, share.take_id)
