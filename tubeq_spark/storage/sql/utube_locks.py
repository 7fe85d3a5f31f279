"""Utube locks, the rows of `_tubeq_taken_utubes`: which take may hold a sub-queue.

A lock says that the take with this id may hold tasks of a utube; the tube says whether it does.
It is written before the tasks are taken and removed after they are given back, so that a utube is
never held without a lock; a lock without tasks is an orphan, which whoever meets it takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.rules.segment_layout import hash_of
from tubeq_spark.storage.segment_facts import UtubeLock
from tubeq_spark.storage.sql.inline_rows import rows_source
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, bigints, moment, string
from tubeq_spark.storage.statement import FAIL, Clause, Statement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.locking import TableLock
    from tubeq_spark.storage.statement import Source

__all__ = ["UtubeLocks", "bucket_of"]

_BUCKETS = 16


def bucket_of(utube: str | None) -> int:
    """The bucket of a sub-queue: locks of different buckets never conflict."""
    return hash_of(utube) % _BUCKETS


class UtubeLocks:
    """The utube locks of one tube."""

    def __init__(self, engine: Engine, table: str, tube: int, table_lock: TableLock) -> None:
        """Use the utube locks of a tube (its id) in `table` (a SQL name)."""
        self._engine = engine
        self._table = table
        self._tube = tube
        self.table_lock = table_lock

    def all(self) -> list[UtubeLock]:
        """Every utube lock, orphans included."""
        found = self._engine.arrow(
            "SELECT utube, claim AS take_id, owner, unix_micros(taken_at) AS taken_at "
            f"FROM {self._table} WHERE tube_id = {bigint(self._tube)}"
        )
        return [UtubeLock(**row) for row in found.to_pylist()]

    def tubes(self) -> set[int]:
        """The ids of all tubes of the location with utube locks, orphans included."""
        found = self._engine.rows(f"SELECT DISTINCT tube_id FROM {self._table}")
        return {row["tube_id"] for row in found}

    def acquire(
        self,
        wanted: Sequence[tuple[str | None, int, int | None]],
        owner: str,
        now_us: int,
        operation_id: int,
    ) -> Statement:
        """Lock sub-queues: all or none where orphans are taken over, else those that are free.

        To insert only is a third cheaper than to look for matches, too.

        Args:
            wanted: Sub-queue, take id, and the take id of the orphan that it takes over.
            owner: Who locks.
            now_us: The moment.
            operation_id: A number that was never used.
        """
        columns = {"bucket": "INT", "utube": "STRING", "claim": "BIGINT", "seen": "BIGINT"}
        rows = [(bucket_of(utube), utube, take_id, seen) for utube, take_id, seen in wanted]
        source, frames = rows_source(columns, rows)
        held = {"owner": string(owner), "claim": "s.claim", "taken_at": moment(now_us)}
        inserted = {"tube_id": bigint(self._tube), "bucket": "s.bucket", "utube": "s.utube"}
        clauses = [Clause(inserted | held, inserts=True)]
        if any(seen is not None for _, _, seen in wanted):
            clauses = [Clause(held, "t.claim = s.seen"), Clause({"claim": FAIL}), *clauses]
        return self._statement(
            f"t.bucket = s.bucket AND t.utube <=> s.utube AND t.claim <> {bigint(operation_id)}",
            clauses,
            operation_id,
            [utube for utube, _, _ in wanted],
            (source, frames),
            len(wanted),
        )

    def free(
        self, take_ids: Iterable[int], utubes: Collection[str | None], operation_id: int
    ) -> Statement:
        """Remove utube locks by their take ids, of some sub-queues only."""
        columns = {"bucket": "INT", "utube": "STRING"}
        rows = [(bucket_of(utube), utube) for utube in utubes]
        source, frames = rows_source(columns, rows)
        return self._statement(
            "t.bucket = s.bucket AND t.utube <=> s.utube "
            f"AND t.claim IN ({bigints([*take_ids, operation_id])})",
            [Clause(None)],
            operation_id,
            utubes,
            (source, frames),
            len(rows),
        )

    def _statement(
        self,
        where: str,
        clauses: Sequence[Clause],
        operation_id: int,
        utubes: Collection[str | None],
        source: tuple[str, dict[str, Source]],
        size: int,
    ) -> Statement:
        """One that knows the sub-queues, and so reads their buckets only."""
        buckets = _buckets(utubes)
        return Statement(
            self._table,
            f"{noted('t.tube_id')} AND t.tube_id = {bigint(self._tube)} "
            f"AND t.bucket IN ({', '.join(map(str, buckets))}) AND {where}",
            clauses,
            operation_id,
            source[0],
            {"tube_id": [self._tube], "bucket": buckets},
            source[1],
            size,
        )

    def free_all(
        self, take_ids: Iterable[int], utubes: Collection[str | None] | None, operation_id: int
    ) -> Statement:
        """Remove utube locks by their take ids.

        Args:
            take_ids: The takes.
            utubes: All their sub-queues, where they are known: it conflicts with no lock on others.
            operation_id: A number that was never used.
        """
        buckets = None if utubes is None else _buckets(utubes)
        near = "" if buckets is None else f" AND bucket IN ({', '.join(map(str, buckets))})"
        numbers = bigints([*take_ids, operation_id])
        return Statement(
            self._table,
            f"{noted('tube_id')} AND tube_id = {bigint(self._tube)} AND claim IN ({numbers}){near}",
            [Clause(None)],
            operation_id,
            partitions={"tube_id": [self._tube], "claim": list(take_ids)}
            | ({} if buckets is None else {"bucket": buckets}),
        )


def _buckets(utubes: Iterable[str | None]) -> list[int]:
    return sorted({bucket_of(utube) for utube in utubes})
