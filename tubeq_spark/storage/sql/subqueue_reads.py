"""Reads the sub-queues of a tube's table. No commits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.rules.order import OrderPosition
from tubeq_spark.storage.chosen import MOST_NAMED
from tubeq_spark.storage.rows import COLUMNS, stored_tasks
from tubeq_spark.storage.segment_facts import SubqueueHead
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.inline_rows import rows_source
from tubeq_spark.storage.sql.quoting import bigints, limited, moment, string
from tubeq_spark.storage.sql.selections import selection_query, selections_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.segment_facts import SegmentSelection
    from tubeq_spark.storage.sql.tube_table import TubeTable
    from tubeq_spark.storage.statement import Source

__all__ = ["Subqueues"]


class Subqueues:
    """One tube's rows by sub-queue."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read a tube's table."""
        self._engine = engine
        self._table = table
        #: Ready tasks at the last look: how large the next one will be, about.
        self._seen = 0

    def heads(
        self, now_us: int, max_attempts: int | None, busy: Collection[str | None], limit: int
    ) -> list[SubqueueHead]:
        """The sub-queues with ready tasks that are not busy, by their first task."""
        others, frames = self._not_among(busy)
        found = self._engine.arrow(
            "SELECT utube, min(struct(pri, task_id)) AS first, count(*) AS n, "
            f"bool_or(state = 't') AS in_lease_segment FROM {self._table.name} t "
            f"WHERE {self._ready(now_us, max_attempts)} AND {others} "
            f"GROUP BY utube ORDER BY first {limited(limit)}",
            frames,
            self._seen,
        )
        heads = [
            SubqueueHead(r["utube"], OrderPosition(**r["first"]), r["n"], r["in_lease_segment"])
            for r in found.to_pylist()
        ]
        self._seen = sum(head.count for head in heads)
        return heads

    def rows(
        self, now_us: int, max_attempts: int | None, quotas: Mapping[str | None, int]
    ) -> list[StoredTask]:
        """The next tasks of some sub-queues, in the tube's order; arguments as of `selections`."""
        columns = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
        ready, frames = self._ready_among(now_us, max_attempts, quotas)
        found = self._engine.arrow(
            f"SELECT {columns} FROM ({self._first_of(ready, quotas)}) "
            f"ORDER BY {self._table.in_order}",
            frames,
            sum(quotas.values()),
        )
        return stored_tasks(found)

    def selections(
        self,
        now_us: int,
        max_attempts: int | None,
        quotas: Mapping[str | None, int],
        *,
        whole: bool = False,
    ) -> list[SegmentSelection]:
        """Where the next tasks of some sub-queues are, without their rows.

        Args:
            now_us: The moment.
            max_attempts: Of the tube.
            quotas: At most so many tasks, by sub-queue.
            whole: Whether that is all there was: then nothing need be sorted to find the place.
        """
        ready, frames = self._ready_among(now_us, max_attempts, quotas)
        if whole:
            everything = self._selections(ready, quotas, frames)
            # Puts since then may have added more than was asked for.
            if _are_within(everything, quotas):
                return everything
        return self._selections(self._first_of(ready, quotas), quotas, frames)

    def all_selections(
        self, now_us: int, max_attempts: int | None, quotas: Mapping[str | None, int]
    ) -> list[SegmentSelection] | None:
        """All that is ready in the tube, where these quotas have room for all of it.

        Returns:
            `None` where they have not: then rows must be told apart by their sub-queues.
        """
        ready = f"SELECT * FROM {self._table.name} t WHERE {self._ready(now_us, max_attempts)}"
        # More selections than tasks that were asked for would be too much in any case.
        selections = self._selections(ready, quotas, {}, limited(sum(quotas.values()) + 1))
        return selections if _are_within(selections, quotas) else None

    def _selections(
        self,
        rows: str,
        quotas: Mapping[str | None, int],
        frames: dict[str, Source],
        at_most: str = "",
    ) -> list[SegmentSelection]:
        query = selection_query(rows, "utube, segment", at_most)
        return selections_of(self._engine.arrow(query, frames, sum(quotas.values())))

    def _ready_among(
        self, now_us: int, max_attempts: int | None, utubes: Collection[str | None]
    ) -> tuple[str, dict[str, Source]]:
        """A query for the ready rows of some sub-queues, and the DataFrames that it names."""
        frames: dict[str, Source] = {}
        named = predicates.of_utubes(utubes) if len(utubes) <= MOST_NAMED else ""
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

    def stored_under(
        self, take_ids: Collection[int], now_us: int
    ) -> dict[tuple[int, str | None], bool]:
        """Take id and sub-queue of all that is stored as taken under these take ids.

        Returns:
            For each whether all its leases have ended.
        """
        if not take_ids:
            return {}
        found = self._engine.arrow(
            "SELECT claim, utube, "
            f"count_if(next_event IS NULL OR next_event > {moment(now_us)}) AS lasting "
            f"FROM {self._table.name} WHERE {self._table.mine()} AND state = 't' "
            f"AND claim IN ({bigints(take_ids)}) GROUP BY claim, utube"
        )
        return {(row["claim"], row["utube"]): row["lasting"] == 0 for row in found.to_pylist()}

    def taken_in(self, segments: Collection[int]) -> set[tuple[int, str | None]]:
        """Take id and sub-queue of all that is stored as taken in some segments."""
        return self._taken(f"segment IN ({bigints(segments)})")

    def taken_under(self, take_ids: Collection[int]) -> set[tuple[int, str | None]]:
        """Take id and sub-queue of all that is stored as taken under these take ids."""
        return self._taken(f"claim IN ({bigints(take_ids)})")

    def _taken(self, where: str) -> set[tuple[int, str | None]]:
        found = self._engine.arrow(
            f"SELECT DISTINCT claim, utube FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND state = 't' AND {where}"
        )
        return {(row["claim"], row["utube"]) for row in found.to_pylist()}

    def _not_among(self, utubes: Collection[str | None]) -> tuple[str, dict[str, Source]]:
        if len(utubes) <= MOST_NAMED:
            return _none_of(utubes), {}
        some, frames = self._exists(utubes)
        return f"NOT {some}", frames

    def _exists(self, utubes: Collection[str | None]) -> tuple[str, dict[str, Source]]:
        values = [(utube,) for utube in utubes]
        source, frames = rows_source({"utube": "STRING"}, values)
        return f"EXISTS (SELECT 1 FROM {source} s WHERE s.utube <=> t.utube)", frames


def _none_of(utubes: Collection[str | None]) -> str:
    # One by one: file statistics skip what holds nothing but one of them.
    others = [f"utube <> {string(utube)}" for utube in utubes if utube is not None]
    named = " AND ".join(others) or "TRUE"
    return f"utube IS NOT NULL AND {named}" if None in utubes else f"(utube IS NULL OR ({named}))"


def _are_within(selections: Iterable[SegmentSelection], quotas: Mapping[str | None, int]) -> bool:
    found: Counter[str | None] = Counter()
    for selection in selections:
        found[selection.utube] += selection.count
    return all(count <= quotas.get(utube, 0) for utube, count in found.items())


def _within(quotas: Mapping[str | None, int]) -> str:
    """Rows within the quota of their sub-queue; nearly all have the same."""
    usual = max(quotas.values())
    others = "".join(
        f"WHEN utube <=> {string(utube)} THEN {quota} "
        for utube, quota in quotas.items()
        if quota != usual
    )
    return f"tubeq_place <= {f'CASE {others}ELSE {usual} END' if others else usual}"
