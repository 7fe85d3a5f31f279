"""Which sub-queues are held, under which token: `_tubeq_taken_utubes`.

A row says that the take with this token may hold tasks of a utube; the tube says whether it does.
It is written before the tasks are taken and removed after they are given back, so that a utube is
never held without a row; a row without tasks is an orphan, which whoever meets it takes over.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage import predicates
from tubeq_spark.storage.conflicts import STALE
from tubeq_spark.storage.engine import Engine, Merge
from tubeq_spark.storage.layout import INLINE_ROWS
from tubeq_spark.storage.quoting import bigint, bigints, integer, moment, string

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

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
    return zlib.crc32((utube or "").encode("utf-8", "surrogatepass")) % _BUCKETS


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

    def claim(
        self,
        wanted: Sequence[tuple[str | None, int, int | None]],
        owner: str,
        now_us: int,
        marker: int,
    ) -> Merge:
        """Claim sub-queues, all or none.

        Args:
            wanted: Sub-queue, token, and the token of the orphan that it takes over.
            owner: Who claims.
            now_us: The moment.
            marker: A number that was never used.
        """
        source, frames = self._source(wanted)
        buckets = sorted({bucket_of(utube) for utube, _, _ in wanted})
        at = moment(now_us)
        sql = (
            f"MERGE INTO {self._table} t USING {source} s ON t.tube_id = {bigint(self._tube)} "
            f"AND t.bucket IN ({', '.join(map(str, buckets))}) AND t.bucket = s.bucket "
            f"AND t.utube <=> s.utube AND t.claim <> {bigint(marker)} "
            f"WHEN MATCHED AND t.claim = s.seen THEN UPDATE SET claim = s.claim, "
            f"owner = {string(owner)}, taken_at = {at} "
            f"WHEN MATCHED THEN UPDATE SET claim = raise_error({string(STALE)}) "
            "WHEN NOT MATCHED THEN INSERT (tube_id, bucket, utube, owner, claim, taken_at) "
            f"VALUES ({bigint(self._tube)}, s.bucket, s.utube, {string(owner)}, s.claim, {at})"
        )
        return Merge(self._table, sql, marker, frames, len(wanted))

    def free(
        self, claims: Iterable[int], utubes: Iterable[str | None] | None, marker: int
    ) -> Merge:
        """Remove claims by their tokens, of some sub-queues or of all."""
        named = ""
        if utubes is not None:
            listed = list(utubes)
            buckets = sorted({bucket_of(utube) for utube in listed})
            named = f" AND bucket IN ({', '.join(map(str, buckets))}) "
            named += f"AND {predicates.of_utubes(listed)}"
        where = f"tube_id = {bigint(self._tube)} AND claim IN ({bigints([*claims, marker])}){named}"
        return Merge(self._table, f"DELETE FROM {self._table} WHERE {where}", marker)

    def _source(
        self, wanted: Sequence[tuple[str | None, int, int | None]]
    ) -> tuple[str, dict[str, DataFrame]]:
        if len(wanted) <= INLINE_ROWS:
            rows = " UNION ALL ".join(
                f"SELECT {integer(bucket_of(utube))} AS bucket, {string(utube)} AS utube, "
                f"{bigint(claim)} AS claim, {bigint(seen)} AS seen"
                for utube, claim, seen in wanted
            )
            return f"({rows})", {}
        table = pa.table(
            {
                "bucket": pa.array([bucket_of(utube) for utube, _, _ in wanted], pa.int32()),
                "utube": pa.array([utube for utube, _, _ in wanted], pa.string()),
                "claim": pa.array([claim for _, claim, _ in wanted], pa.int64()),
                "seen": pa.array([seen for _, _, seen in wanted], pa.int64()),
            }
        )
        return "{rows}", {"rows": self._engine.source(table)}
