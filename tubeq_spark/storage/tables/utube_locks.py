"""Utube locks, the rows of `_tubeq_taken_utubes`: each names the take that may hold a sub-queue.

The take with the id in the lock may hold tasks of the sub-queue; the tube's table shows whether it
does. The lock is written before the tasks are taken, and removed after they are given back, so a
sub-queue is never held without a lock. A lock without tasks is an orphan, which the next take of
the sub-queue takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model.segments import hash_of
from tubeq_spark.storage.expression import (
    FAIL,
    Micros,
    Type,
    all_of,
    at,
    literal,
    row,
    small,
)
from tubeq_spark.storage.query import Select, named
from tubeq_spark.storage.rows import UtubeLock
from tubeq_spark.storage.statement import Clause, Rows, Statement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.locks.table_lock import TableLock

_BUCKETS = 16
_ROW, _T, _S = row(), row("t"), row("s")
_SUBQUEUES = {"bucket": Type.INT, "utube": Type.STRING}


def bucket_of(utube: str | None) -> int:
    """The bucket of a sub-queue: locks of different buckets never conflict."""
    return hash_of(utube) % _BUCKETS


class UtubeLocks:
    """The utube locks of one tube."""

    def __init__(self, engine: Engine, table: str, tube: int, table_lock: TableLock) -> None:
        """Use the utube locks of a tube (its id) in `table` (a SQL name)."""
        self._engine = engine
        self.table = table
        self._tube = tube
        self.table_lock = table_lock

    def all(self) -> list[UtubeLock]:
        """All utube locks, including orphans."""
        columns = {
            "utube": _ROW.utube,
            "take_id": _ROW.claim,
            "owner": _ROW.owner,
            "taken_at": Micros(_ROW.taken_at),
        }
        found = self._engine.arrow(Select(self.table, columns, _ROW.tube_id == self._tube))
        return [UtubeLock(**row) for row in found.to_pylist()]

    def tubes(self) -> set[int]:
        """The ids of all tubes with utube locks, orphans included; and negated, of tubes with moments of leases."""
        found = self._engine.rows(Select(self.table, named("tube_id"), by=["tube_id"]))
        return {row["tube_id"] for row in found}

    def acquire(
        self,
        wanted: Sequence[tuple[str | None, int, int | None]],
        owner: str,
        now_us: int,
        operation_id: int,
    ) -> Statement:
        """Lock sub-queues: all or none if it takes over orphans, otherwise those that are free.

        A MERGE that only inserts needs a third less time than one that also updates.

        Args:
            wanted: For each sub-queue: its name, the take id, and the take id of the orphan to take over.
            owner: The session that locks.
            now_us: The moment.
            operation_id: A number that was never used.
        """
        columns = _SUBQUEUES | {"claim": Type.BIGINT, "seen": Type.BIGINT}
        rows = [(bucket_of(utube), utube, take_id, seen) for utube, take_id, seen in wanted]
        held: dict[str, Expression]
        held = {"owner": literal(owner), "claim": _S.claim, "taken_at": at(now_us)}
        inserted: dict[str, Expression]
        inserted = {"tube_id": literal(self._tube), "bucket": _S.bucket, "utube": _S.utube}
        clauses = [Clause(inserted | held, inserts=True)]
        if any(seen is not None for _, _, seen in wanted):
            clauses = [Clause(held, _T.claim == _S.seen), Clause({"claim": FAIL}), *clauses]
        return self._statement(
            _T.claim != operation_id,
            clauses,
            operation_id,
            [utube for utube, _, _ in wanted],
            Rows(columns, rows),
        )

    def free(
        self, take_ids: Iterable[int], utubes: Collection[str | None], operation_id: int
    ) -> Statement:
        """Remove utube locks of some sub-queues by their take ids."""
        rows = [(bucket_of(utube), utube) for utube in utubes]
        return self._statement(
            _T.claim.is_in([*take_ids, operation_id]),
            [Clause(None)],
            operation_id,
            utubes,
            Rows(_SUBQUEUES, rows),
        )

    def _statement(
        self,
        where: Expression,
        clauses: Sequence[Clause],
        operation_id: int,
        utubes: Collection[str | None],
        using: Rows,
    ) -> Statement:
        """A statement for known sub-queues, which reads only their buckets."""
        buckets = _buckets(utubes)
        return Statement(
            self.table,
            all_of(
                _T.tube_id == self._tube,
                _T.bucket.is_in(map(small, buckets)),
                _T.bucket == _S.bucket,
                _T.utube.same_as(_S.utube),
                where,
            ),
            clauses,
            operation_id,
            _T.tube_id,
            using,
            {"tube_id": [self._tube], "bucket": buckets},
            len(using.values),
        )

    def free_all(
        self, take_ids: Iterable[int], utubes: Collection[str | None] | None, operation_id: int
    ) -> Statement:
        """Remove utube locks by their take ids.

        Args:
            take_ids: The take ids.
            utubes: All their sub-queues, if they are known. Then it does not conflict with locks in other buckets.
            operation_id: A number that was never used.
        """
        buckets = None if utubes is None else _buckets(utubes)
        where = (_ROW.tube_id == self._tube) & _ROW.claim.is_in([*take_ids, operation_id])
        if buckets is not None:
            where &= _ROW.bucket.is_in(map(small, buckets))
        return Statement(
            self.table,
            where,
            [Clause(None)],
            operation_id,
            _ROW.tube_id,
            partitions={"tube_id": [self._tube], "claim": list(take_ids)}
            | ({} if buckets is None else {"bucket": buckets}),
        )


def _buckets(utubes: Iterable[str | None]) -> list[int]:
    return sorted({bucket_of(utube) for utube in utubes})
