"""Utube locks, the rows of `_tubeq_taken_utubes`: which take may hold a sub-queue.

A lock says that the take with this id may hold tasks of a utube; the tube says whether it does.
It is written before the tasks are taken and removed after they are given back, so that a utube is
never held without a lock; a lock without tasks is an orphan, which whoever meets it takes over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.rules.segment_layout import hash_of
from tubeq_spark.storage.spark.commit_tags import noted
from tubeq_spark.storage.spark.conflicts import STALE
from tubeq_spark.storage.spark.inline_rows import rows_source
from tubeq_spark.storage.spark.quoting import bigint, bigints, moment, string
from tubeq_spark.storage.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tubeq_spark.storage.locking import TableLock
    from tubeq_spark.storage.spark.engine import Engine

__all__ = ["UtubeLock", "UtubeLocks", "bucket_of"]

_BUCKETS = 16


@dataclass(frozen=True, slots=True)
class UtubeLock:
    """A lock on a sub-queue.

    Attributes:
        utube: The sub-queue; `None` is one too.
        take_id: The number of the take: the segment its tasks were moved to.
        owner: Session and epoch that locked it.
        taken_at: When, in microseconds.
    """

    utube: str | None
    take_id: int
    owner: str
    taken_at: int


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
        at, taken_over = moment(now_us), ""
        if any(seen is not None for _, _, seen in wanted):
            taken_over = (
                "WHEN MATCHED AND t.claim = s.seen THEN UPDATE SET claim = s.claim, "
                f"owner = {string(owner)}, taken_at = {at} "
                f"WHEN MATCHED THEN UPDATE SET claim = raise_error({string(STALE)}) "
            )
        sql = (
            f"MERGE INTO {self._table} t USING {source} s ON {noted('t.tube_id')} "
            f"AND t.tube_id = {bigint(self._tube)} "
            f"AND t.bucket IN ({_buckets(utube for utube, _, _ in wanted)}) AND t.bucket = s.bucket "
            f"AND t.utube <=> s.utube AND t.claim <> {bigint(operation_id)} "
            f"{taken_over}WHEN NOT MATCHED THEN INSERT (tube_id, bucket, utube, owner, claim, taken_at) "
            f"VALUES ({bigint(self._tube)}, s.bucket, s.utube, {string(owner)}, s.claim, {at})"
        )
        return Statement(self._table, sql, operation_id, frames, len(wanted))

    def free(
        self, take_ids: Iterable[int], utubes: Collection[str | None], operation_id: int
    ) -> Statement:
        """Remove utube locks by their take ids, of some sub-queues only."""
        columns = {"bucket": "INT", "utube": "STRING"}
        rows = [(bucket_of(utube), utube) for utube in utubes]
        source, frames = rows_source(columns, rows)
        sql = (
            f"MERGE INTO {self._table} t USING {source} s ON {noted('t.tube_id')} "
            f"AND t.tube_id = {bigint(self._tube)} "
            f"AND t.bucket IN ({_buckets(utubes)}) AND t.bucket = s.bucket "
            f"AND t.utube <=> s.utube AND t.claim IN ({bigints([*take_ids, operation_id])}) "
            "WHEN MATCHED THEN DELETE"
        )
        return Statement(self._table, sql, operation_id, frames, len(rows))

    def free_all(
        self, take_ids: Iterable[int], utubes: Collection[str | None] | None, operation_id: int
    ) -> Statement:
        """Remove utube locks by their take ids.

        Args:
            take_ids: The takes.
            utubes: All their sub-queues, where they are known: it conflicts with no lock on others.
            operation_id: A number that was never used.
        """
        near = "" if utubes is None else f" AND bucket IN ({_buckets(utubes)})"
        numbers = bigints([*take_ids, operation_id])
        where = f"tube_id = {bigint(self._tube)} AND claim IN ({numbers}){near}"
        sql = f"DELETE FROM {self._table} WHERE {noted('tube_id')} AND {where}"
        return Statement(self._table, sql, operation_id)


def _buckets(utubes: Iterable[str | None]) -> str:
    return ", ".join(map(str, sorted({bucket_of(utube) for utube in utubes})))
