"""Which sub-queues are held, under which token: `_tubeq_taken_utubes`.

A row says that the take with this token may hold tasks of a utube; the tube says whether it does.
It is written before the tasks are taken and removed after they are given back, so that a utube is
never held without a row; a row without tasks is an orphan, which whoever meets it takes over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.rules.segment_layout import hash_of
from tubeq_spark.storage.spark.commit_tags import noted
from tubeq_spark.storage.spark.conflicts import STALE
from tubeq_spark.storage.spark.engine import Engine, Merge
from tubeq_spark.storage.spark.inline_rows import rows_source
from tubeq_spark.storage.spark.quoting import bigint, bigints, moment, string

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tubeq_spark.storage.locking import Lane

__all__ = ["TakenUtube", "TakenUtubes", "bucket_of"]

_BUCKETS = 16


@dataclass(frozen=True, slots=True)
class TakenUtube:
    """A claim on a sub-queue.

    Attributes:
        utube: The sub-queue; `None` is one too.
        claim: Token of the take: the segment its tasks were moved to.
        owner: Session and epoch that claimed it.
        taken_at: When, in microseconds.
    """

    utube: str | None
    claim: int
    owner: str
    taken_at: int


def bucket_of(utube: str | None) -> int:
    """The bucket of a sub-queue: claims of different buckets never conflict."""
    return hash_of(utube) % _BUCKETS


class TakenUtubes:
    """The claims on one tube's sub-queues."""

    def __init__(self, engine: Engine, table: str, tube: int, lane: Lane) -> None:
        """Use the claims of a tube (its id) in `table` (a SQL name)."""
        self._engine = engine
        self._table = table
        self._tube = tube
        self.lane = lane

    def all(self) -> list[TakenUtube]:
        """Every claim, orphans included."""
        found = self._engine.arrow(
            "SELECT utube, claim, owner, unix_micros(taken_at) AS taken_at "
            f"FROM {self._table} WHERE tube_id = {bigint(self._tube)}"
        )
        return [TakenUtube(**row) for row in found.to_pylist()]

    def tubes(self) -> set[int]:
        """The ids of all tubes of the location with claims, orphans included."""
        found = self._engine.rows(f"SELECT DISTINCT tube_id FROM {self._table}")
        return {row["tube_id"] for row in found}

    def claim(
        self,
        wanted: Sequence[tuple[str | None, int, int | None]],
        owner: str,
        now_us: int,
        marker: int,
    ) -> Merge:
        """Claim sub-queues: all or none where orphans are taken over, else those that are free.

        To insert only is a third cheaper than to look for matches, too.

        Args:
            wanted: Sub-queue, token, and the token of the orphan that it takes over.
            owner: Who claims.
            now_us: The moment.
            marker: A number that was never used.
        """
        columns = {"bucket": "INT", "utube": "STRING", "claim": "BIGINT", "seen": "BIGINT"}
        rows = [(bucket_of(utube), utube, claim, seen) for utube, claim, seen in wanted]
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
            f"AND t.utube <=> s.utube AND t.claim <> {bigint(marker)} "
            f"{taken_over}WHEN NOT MATCHED THEN INSERT (tube_id, bucket, utube, owner, claim, taken_at) "
            f"VALUES ({bigint(self._tube)}, s.bucket, s.utube, {string(owner)}, s.claim, {at})"
        )
        return Merge(self._table, sql, marker, frames, len(wanted))

    def free(self, claims: Iterable[int], utubes: Collection[str | None], marker: int) -> Merge:
        """Remove claims by their tokens, of some sub-queues only."""
        columns = {"bucket": "INT", "utube": "STRING"}
        rows = [(bucket_of(utube), utube) for utube in utubes]
        source, frames = rows_source(columns, rows)
        sql = (
            f"MERGE INTO {self._table} t USING {source} s ON {noted('t.tube_id')} "
            f"AND t.tube_id = {bigint(self._tube)} "
            f"AND t.bucket IN ({_buckets(utubes)}) AND t.bucket = s.bucket "
            f"AND t.utube <=> s.utube AND t.claim IN ({bigints([*claims, marker])}) "
            "WHEN MATCHED THEN DELETE"
        )
        return Merge(self._table, sql, marker, frames, len(rows))

    def free_all(
        self, claims: Iterable[int], utubes: Collection[str | None] | None, marker: int
    ) -> Merge:
        """Remove claims by their tokens.

        Args:
            claims: The tokens.
            utubes: All their sub-queues, where they are known: it meets no claim on others.
            marker: A number that was never used.
        """
        near = "" if utubes is None else f" AND bucket IN ({_buckets(utubes)})"
        where = f"tube_id = {bigint(self._tube)} AND claim IN ({bigints([*claims, marker])}){near}"
        sql = f"DELETE FROM {self._table} WHERE {noted('tube_id')} AND {where}"
        return Merge(self._table, sql, marker)


def _buckets(utubes: Iterable[str | None]) -> str:
    return ", ".join(map(str, sorted({bucket_of(utube) for utube in utubes})))
