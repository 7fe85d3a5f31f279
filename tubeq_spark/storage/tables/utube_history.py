"""The moments at which leases of sub-queues began: rows beside the utube locks, for `rate` and `order="fair"`.

A row has the negated id of the tube, so no query for utube locks finds it. Its column `owner` has the moments of the
last leases, in microseconds. It changes in the commit that locks its sub-queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model.limits import UtubeMoments
from tubeq_spark.storage.expression import FAIL, Type, all_of, at, row, small
from tubeq_spark.storage.query import Select, named
from tubeq_spark.storage.statement import Clause, Rows, Statement
from tubeq_spark.storage.tables.utube_locks import bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.model.limits import NewMoments
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression

#: Stands for a take id, so that the rows of one bucket are in one partition.
_NO_TAKE = 0
_ROW, _T, _S = row(), row("t"), row("s")


class UtubeHistory:
    """The moments of one tube's sub-queues."""

    def __init__(self, engine: Engine, table: str, tube: int) -> None:
        """Use the moments of a tube (its id) in `table` (a SQL name)."""
        self._engine = engine
        self._table = table
        self._tube = tube

    def all(self) -> list[UtubeMoments]:
        """The moments of all sub-queues that have a row."""
        where = _ROW.tube_id == -self._tube
        found = self._engine.arrow(Select(self._table, named("utube", "owner"), where))
        return [UtubeMoments.parse(each["utube"], each["owner"]) for each in found.to_pylist()]

    def acquire(
        self,
        wanted: Sequence[tuple[str | None, int, int | None]],
        begun: Sequence[NewMoments],
        owner: str,
        now_us: int,
        operation_id: int,
    ) -> Statement:
        """Lock sub-queues and write their moments; all of them or none.

        Args:
            wanted: For each sub-queue: its name, the take id, and the take id of the lock to replace.
            begun: The new moments. The statement fails if the moments that were read have changed.
            owner: The session that locks.
            now_us: The moment.
            operation_id: A number that was never used.
        """
        rows = [
            (self._tube, bucket_of(utube), utube, take_id, seen, owner, None)
            for utube, take_id, seen in wanted
        ] + [
            (-self._tube, bucket_of(each.utube), each.utube, _NO_TAKE, None, each.text, each.before)
            for each in begun
        ]
        columns = {
            "tube_id": Type.BIGINT,
            "bucket": Type.INT,
            "utube": Type.STRING,
            "claim": Type.BIGINT,
            "seen": Type.BIGINT,
            "owner": Type.STRING,
            "before": Type.STRING,
        }
        held: dict[str, Expression]
        held = {"owner": _S.owner, "claim": _S.claim, "taken_at": at(now_us)}
        key = {"tube_id": _S.tube_id, "bucket": _S.bucket, "utube": _S.utube}
        tubes = [self._tube, -self._tube]
        buckets = sorted({each[1] for each in rows})
        return Statement(
            self._table,
            all_of(
                _T.tube_id.is_in(tubes),
                _T.bucket.is_in(map(small, buckets)),
                _T.tube_id == _S.tube_id,
                _T.bucket == _S.bucket,
                _T.utube.same_as(_S.utube),
                _T.claim != operation_id,
            ),
            [
                Clause(held, (_S.tube_id > 0) & (_T.claim == _S.seen)),
                Clause(held, (_S.tube_id < 0) & (_T.owner == _S.before)),
                Clause({"claim": FAIL}),
                Clause(key | held, inserts=True),
            ],
            operation_id,
            _T.tube_id,
            Rows(columns, rows),
            {"tube_id": tubes, "bucket": buckets},
            len(rows),
        )

    def tidy(
        self, ended: Iterable[UtubeMoments], changed: Iterable[NewMoments], operation_id: int
    ) -> Statement:
        """Remove the rows of some sub-queues, and change others; rows that have changed since the read stay."""
        rows = [
            *((bucket_of(each.utube), each.utube, each.text, None) for each in ended),
            *((bucket_of(each.utube), each.utube, each.before, each.text) for each in changed),
        ]
        buckets = sorted({row[0] for row in rows})
        columns = {
            "bucket": Type.INT,
            "utube": Type.STRING,
            "before": Type.STRING,
            "owner": Type.STRING,
        }
        return Statement(
            self._table,
            all_of(
                _T.tube_id == -self._tube,
                _T.bucket.is_in(map(small, buckets)),
                _T.bucket == _S.bucket,
                _T.utube.same_as(_S.utube),
                _T.owner == _S.before,
                _T.claim != operation_id,
            ),
            [Clause({"owner": _S.owner}, _S.owner.is_not_null()), Clause(None)],
            operation_id,
            _T.tube_id,
            Rows(columns, rows),
            {"tube_id": [-self._tube], "bucket": buckets},
            len(rows),
        )
