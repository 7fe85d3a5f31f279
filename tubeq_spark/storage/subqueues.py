"""The sub-queues of a tube's table: what is read of them, and the statements that take and fence.

A take writes to the claim that its token names. Whoever takes over an orphaned claim of a sub-queue
*burns* its token first: a row in a segment of its own, which the take with that token reads. So the
take of a consumer that was paused between its two commits fails, however late it comes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage import predicates
from tubeq_spark.storage.codegen import compiled
from tubeq_spark.storage.conflicts import STALE
from tubeq_spark.storage.engine import Engine, Merge
from tubeq_spark.storage.layout import Cut, TubeTable
from tubeq_spark.storage.notes import noted
from tubeq_spark.storage.quoting import bigint, bigints, limited, moment, string
from tubeq_spark.storage.rows import COLUMNS, StoredTask, stored_tasks
from tubeq_spark.storage.sources import INLINE_ROWS, rows_source
from tubeq_spark.storage.statements import move_to_claim

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

__all__ = ["SubqueueCut", "SubqueueHead", "SubqueueShare", "Subqueues"]

#: Far below all claims: no number will be as large for decades.
_BURNT = 1 << 62


@dataclass(frozen=True, slots=True)
class SubqueueHead:
    """A sub-queue with ready tasks: the first of them, and how many there are."""

    utube: str | None
    first: Cut
    count: int
    in_claim: bool


@dataclass(frozen=True, slots=True)
class SubqueueCut:
    """What a selection found of one sub-queue in one segment."""

    utube: str | None
    segment: int
    count: int
    last: Cut
    in_claim: bool
    delayed: int
    shortest_ttr: int | None


@dataclass(frozen=True, slots=True)
class SubqueueShare:
    """What a take moves of one sub-queue: everything up to a place, to a claim."""

    utube: str | None
    last: Cut
    claim: int


class Subqueues:
    """One tube's rows by sub-queue."""

    def __init__(self, engine: Engine, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Use `table`; `fresh` makes numbers that were never used."""
        self._engine = engine
        self._table = table
        self._fresh = fresh
        #: Ready tasks at the last look: how large the next one will be, about.
        self._seen = 0

    # -- reads --------------------------------------------------------------------------------

    def heads(
        self, now_us: int, max_attempts: int | None, busy: Collection[str | None], limit: int
    ) -> list[SubqueueHead]:
        """The sub-queues with ready tasks that are not busy, by their first task."""
        others, frames = self._not_among(busy)
        with compiled(self._engine.spark, self._seen):
            found = self._engine.arrow(
                "SELECT utube, min(struct(pri, task_id)) AS first, count(*) AS n, "
                f"bool_or(state = 't') AS in_claim FROM {self._table.name} t "
                f"WHERE {self._ready(now_us, max_attempts)} AND {others} "
                f"GROUP BY utube ORDER BY first {limited(limit)}",
                frames,
            )
        heads = [
            SubqueueHead(r["utube"], Cut(**r["first"]), r["n"], r["in_claim"])
            for r in found.to_pylist()
        ]
        self._seen = sum(head.count for head in heads)
        return heads

    def rows(
        self, now_us: int, max_attempts: int | None, quotas: Mapping[str | None, int]
    ) -> list[StoredTask]:
        """The next tasks of some sub-queues, in the tube's order; arguments as of `cuts`."""
        columns = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
        ready, frames = self._ready_among(now_us, max_attempts, quotas)
        with compiled(self._engine.spark, sum(quotas.values())):
            found = self._engine.arrow(
                f"SELECT {columns} FROM ({self._first_of(ready, quotas)}) "
                f"ORDER BY {self._table.in_order}",
                frames,
            )
        return stored_tasks(found)

    def cuts(
        self,
        now_us: int,
        max_attempts: int | None,
        quotas: Mapping[str | None, int],
        *,
        whole: bool = False,
    ) -> list[SubqueueCut]:
        """Where the next tasks of some sub-queues are, without their rows.

        Args:
            now_us: The moment.
            max_attempts: Of the tube.
            quotas: At most so many tasks, by sub-queue.
            whole: Whether that is all there was: then nothing need be sorted to find the place.
        """
        ready, frames = self._ready_among(now_us, max_attempts, quotas)
        if whole:
            everything = self._cuts(ready, quotas, frames)
            found: Counter[str | None] = Counter()
            for cut in everything:
                found[cut.utube] += cut.count
            # Puts since then may have added more than was asked for.
            if all(found[utube] <= quota for utube, quota in quotas.items()):
                return everything
        return self._cuts(self._first_of(ready, quotas), quotas, frames)

    def _cuts(
        self, rows: str, quotas: Mapping[str | None, int], frames: dict[str, DataFrame]
    ) -> list[SubqueueCut]:
        with compiled(self._engine.spark, sum(quotas.values())):
            found = self._engine.arrow(
                "SELECT utube, segment, count(*) AS n, max(struct(pri, task_id)) AS last, "
                "bool_or(state = 't') AS in_claim, count_if(state = '~') AS delayed, "
                f"min(ttr) AS ttr FROM ({rows}) GROUP BY utube, segment",
                frames,
            )
        return [
            SubqueueCut(
                r["utube"],
                r["segment"],
                r["n"],
                Cut(**r["last"]),
                r["in_claim"],
                r["delayed"],
                r["ttr"],
            )
            for r in found.to_pylist()
        ]

    def _ready_among(
        self, now_us: int, max_attempts: int | None, utubes: Collection[str | None]
    ) -> tuple[str, dict[str, DataFrame]]:
        """A query for the ready rows of some sub-queues, and the DataFrames that it names."""
        frames: dict[str, DataFrame] = {}
        named = predicates.of_utubes(utubes) if len(utubes) <= INLINE_ROWS else ""
        if not named:
            named, frames = self._exists(utubes)
        ready = self._ready(now_us, max_attempts)
        return f"SELECT * FROM {self._table.name} t WHERE {ready} AND {named}", frames

    def _first_of(self, rows: str, quotas: Mapping[str | None, int]) -> str:
        """A query for the first of these rows, within the quota of their sub-queue."""
        place = f"row_number() OVER (PARTITION BY utube ORDER BY {self._table.in_order})"
        return f"SELECT * FROM (SELECT *, {place} AS tubeq_place FROM ({rows})) WHERE {_within(quotas)}"

    def _ready(self, now_us: int, max_attempts: int | None) -> str:
        return f"{self._table.mine()} AND {predicates.is_ready(now_us, max_attempts)}"

    def held(self, claims: Iterable[int], now_us: int) -> set[tuple[int, str | None]]:
        """Token and sub-queue of all that is held under these tokens, in leases that last."""
        tokens = list(claims)
        if not tokens:
            return set()
        found = self._engine.arrow(
            f"SELECT DISTINCT claim, utube FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND state = 't' AND claim IN ({bigints(tokens)}) "
            f"AND (next_event IS NULL OR next_event > {moment(now_us)})"
        )
        return {(row["claim"], row["utube"]) for row in found.to_pylist()}

    def has_ended(self, claims: Collection[int], now_us: int) -> bool:
        """Whether tasks are stored as taken under these tokens in leases that have ended."""
        if not claims:
            return False
        found = self._engine.rows(
            f"SELECT 1 AS one FROM {self._table.name} WHERE {self._table.mine()} AND state = 't' "
            f"AND claim IN ({bigints(claims)}) AND next_event <= {moment(now_us)} LIMIT 1"
        )
        return bool(found)

    def _not_among(self, utubes: Collection[str | None]) -> tuple[str, dict[str, DataFrame]]:
        if len(utubes) <= INLINE_ROWS:
            return _none_of(utubes), {}
        some, frames = self._exists(utubes)
        return f"NOT {some}", frames

    def _exists(self, utubes: Collection[str | None]) -> tuple[str, dict[str, DataFrame]]:
        values = [(utube,) for utube in utubes]
        source, frames = rows_source(self._engine, {"utube": "STRING"}, values)
        return f"EXISTS (SELECT 1 FROM {source} s WHERE s.utube <=> t.utube)", frames

    # -- statements ---------------------------------------------------------------------------

    def take(
        self,
        segments: Iterable[int],
        shares: Sequence[SubqueueShare],
        owner: str,
        now_us: int,
        size: int,
    ) -> Merge:
        """Move what is takeable of some sub-queues to claims, unless a token was burnt.

        Args:
            segments: Where the candidates are; none of them a claim.
            shares: What goes where.
            owner: Who takes.
            now_us: The moment of the take.
            size: How many rows it moves, about.
        """
        marker = self._fresh()
        claims = list(dict.fromkeys(share.claim for share in shares))
        burnt = [claim - _BURNT for claim in claims]
        columns = {"utube": "STRING", "pri": "INT", "task_id": "BIGINT", "claim": "BIGINT"}
        places = [(s.utube, s.last.pri, s.last.task_id, s.claim) for s in shares]
        source, frames = rows_source(self._engine, columns, places)
        sql = (
            f"MERGE INTO {self._table.name} t USING {source} s "
            f"ON {noted('t.segment')} "
            f"AND t.segment IN ({bigints([*segments, *claims, *burnt, marker])}) "
            f"AND t.utube <=> s.utube AND ({self._takeable(now_us)}) {self._fail_if_burnt} "
            f"WHEN MATCHED THEN {move_to_claim(self._table, 's.claim', owner, now_us)}"
        )
        return Merge(self._table.name, sql, marker, frames, size, size)

    def exchange(
        self,
        acked: Collection[tuple[int, str | None]],
        segments: Iterable[int],
        shares: Sequence[SubqueueShare],
        claim: int,
        owner: str,
        now_us: int,
        size: int,
    ) -> Merge:
        """Remove whole claims and move what is takeable of some sub-queues to a fresh one.

        Args:
            acked: Claim and sub-queue of all that is removed; it is there, or nothing is changed.
            segments: Where the candidates are.
            shares: What is moved, each under its token: one that is new, or one that is kept.
            claim: Where all of it goes.
            owner: Who takes.
            now_us: The moment of the take.
            size: How many rows it changes, about.
        """
        marker = self._fresh()
        gone = dict.fromkeys(segment for segment, _ in acked)
        burnt = dict.fromkeys(share.claim - _BURNT for share in shares)
        columns = {"utube": "STRING", "pri": "INT", "task_id": "BIGINT", "claim": "BIGINT"}
        rows: list[tuple[Any, ...]]
        rows = [(s.utube, s.last.pri, s.last.task_id, s.claim, None) for s in shares]
        rows += [(utube, None, None, None, segment) for segment, utube in acked]
        source, frames = rows_source(self._engine, columns | {"acked": "BIGINT"}, rows)
        literals = bigints([*gone, *segments, claim, *burnt, marker])
        sql = (
            f"MERGE INTO {self._table.name} t USING {source} s "
            f"ON {noted('t.segment')} AND t.segment IN ({literals}) AND t.utube <=> s.utube "
            f"AND (({self._table.mine('t.')} AND t.segment = s.acked) "
            f"OR (s.acked IS NULL AND ({self._takeable(now_us)}))) "
            f"WHEN MATCHED AND s.acked IS NOT NULL THEN DELETE {self._fail_if_burnt} "
            f"WHEN MATCHED THEN {move_to_claim(self._table, bigint(claim), owner, now_us, 's.claim')} "
            "WHEN NOT MATCHED AND s.acked IS NOT NULL "
            f"THEN INSERT (segment) VALUES (raise_error({string(STALE)}))"
        )
        return Merge(self._table.name, sql, marker, frames, size, size)

    def _takeable(self, now_us: int) -> str:
        """What may be taken up to a share's place, and the mark that its token was burnt."""
        place = "t.task_id <= s.task_id"
        if self._table.order != ("task_id",):
            place = f"(t.pri < s.pri OR (t.pri = s.pri AND {place}))"
        return (
            f"({self._table.mine('t.')} AND {place} AND {predicates.is_takeable(now_us, 't.')}) "
            f"OR (t.tube = {bigint(-self._table.id)} AND t.segment = s.claim - {bigint(_BURNT)})"
        )

    @property
    def _fail_if_burnt(self) -> str:
        return (
            f"WHEN MATCHED AND t.tube = {bigint(-self._table.id)} "
            f"THEN UPDATE SET task_id = raise_error({string(STALE)})"
        )

    def burn(self, claims: Sequence[tuple[int, str | None]], now_us: int) -> Merge:
        """Make every take under these tokens fail, for these sub-queues, for ever."""
        marker = self._fresh()
        tube, at = bigint(-self._table.id), moment(now_us)
        columns = {"segment": "BIGINT", "utube": "STRING"}
        values = [(claim - _BURNT, utube) for claim, utube in claims]
        source, frames = rows_source(self._engine, columns, values)
        segments = bigints([*sorted({claim - _BURNT for claim, _ in claims}), marker])
        sql = (
            f"MERGE INTO {self._table.name} t USING {source} s ON {noted('t.segment')} "
            f"AND t.segment IN ({segments}) AND t.segment = s.segment AND t.tube = {tube} AND t.utube <=> s.utube "
            "WHEN NOT MATCHED THEN INSERT (segment, tube, utube, created) "
            f"VALUES (s.segment, {tube}, s.utube, {at})"
        )
        return Merge(self._table.name, sql, marker, frames, len(claims))


def _none_of(utubes: Collection[str | None]) -> str:
    # One by one: file statistics skip what holds nothing but one of them.
    others = [f"utube <> {string(utube)}" for utube in utubes if utube is not None]
    named = " AND ".join(others) or "TRUE"
    return f"utube IS NOT NULL AND {named}" if None in utubes else f"(utube IS NULL OR ({named}))"


def _within(quotas: Mapping[str | None, int]) -> str:
    """Rows within the quota of their sub-queue; nearly all have the same."""
    usual = max(quotas.values())
    others = "".join(
        f"WHEN utube <=> {string(utube)} THEN {quota} "
        for utube, quota in quotas.items()
        if quota != usual
    )
    return f"tubeq_place <= {f'CASE {others}ELSE {usual} END' if others else usual}"
